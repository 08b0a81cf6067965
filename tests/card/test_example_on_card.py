"""The adoption guide's example with both kernels: eager, compiled, and in a CUDA graph."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.card
ROOT = Path(__file__).resolve().parents[2]


def test_two_ranks_add_up_to_every_expert(backend):
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "examples" / "moe_layer.py"],
        cwd=ROOT,
        env=os.environ
        | {"MUSESPARK_ROUTING_BACKEND": backend, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{backend} on cuda: two ranks add up to every expert\n"
