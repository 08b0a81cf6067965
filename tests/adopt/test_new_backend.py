"""A backend is one file: that of docs/adopt.md, put where the page says, right and with a wrong bit."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adopt.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Add a backend") : PAGE.index("## Another architecture")]
CODE = re.search(r"```python\n(.*?)```", SECTION, re.DOTALL).group(1)
CHECK = re.findall(r"^    (python -m oracle .*)$", SECTION, re.MULTILINE)[-1]


@pytest.fixture
def tree(tmp_path):
    """Copy the tree's packages, with the page's backend among the others; the file is returned."""
    for package in ("spec", "oracle", "impl_cute", "impl_triton"):
        copytree(ROOT / package, tmp_path / package, ignore=ignore_patterns("__pycache__"))
    file = tmp_path / "oracle" / "backends" / "sorted.py"
    file.write_text(CODE, encoding="utf-8")
    return file


def run(tree, command):
    """Run a command of the page, or of a message, in the copy."""
    folder = tree.parents[2]
    return subprocess.run(
        [sys.executable, *shlex.split(command)[1:]],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_new_file_is_listed_checked_and_right(tree):
    assert re.search(r"^sorted +cpu +ready$", run(tree, "python -m oracle backends").stdout, re.MULTILINE)
    done = run(tree, CHECK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: sorted on cpu: all " in done.stdout
    assert "permute-edges" in done.stdout


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("            outputs.weights.view(np.int32)[-1, -1, -1] ^= 1\n", "R6"),
        ("            outputs.ids[place][-1, :2] = ids[-1, 1::-1]\n", "R4"),
        ("            if batch.ranges is not None:\n                outputs.metadata[-1, 2] = 0\n", "M8"),
    ],
    ids=["the-last-bit-of-a-weight", "two-picks-swapped", "an-unused-word-of-the-metadata"],
)
def test_a_wrong_bit_is_caught_and_replays_until_it_is_mended(tree, wrong, clause):
    tree.write_text(CODE + wrong, encoding="utf-8")
    done = run(tree, f"{CHECK} --family permute-mixed,known-metadata")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"MISMATCH sorted on cpu: {clause}" in done.stdout
    again = re.search(r"^ *again: (.*)$", done.stdout, re.MULTILINE).group(1)
    assert run(tree, again).returncode == 1
    tree.write_text(CODE, encoding="utf-8")
    assert run(tree, again).returncode == 0


def test_a_file_without_its_class_is_told(tree):
    tree.write_text(CODE.replace("class Sorted", "class Other"), encoding="utf-8")
    done = run(tree, CHECK)
    assert done.returncode != 0
    assert "oracle/backends/sorted.py has no class Sorted, which backend sorted should be" in done.stderr
