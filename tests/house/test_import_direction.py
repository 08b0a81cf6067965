"""Arrows point one way, and the linter that says so would notice if they did not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("spec", "impl_cute", "impl_triton", "oracle", "musespark_routing.py", "pyproject.toml")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from importlinter.cli import lint_imports; "
    code += "sys.exit(lint_imports(cache_dir=None))"
    return subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


def copy(folder: Path) -> Path:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    return folder


def test_arrows_of_this_tree_point_one_way():
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("spec/layout.py", "import oracle.problem"),
        ("impl_cute/kernel.py", "import impl_triton.kernel"),
        ("impl_triton/host.py", "import impl_cute.host"),
        ("impl_triton/kernel.py", "import spec.selection"),
        ("impl_cute/compiler.py", "import torch"),
        ("oracle/ptxsim/__init__.py", "import torch"),
        ("oracle/problem.py", "import musespark_routing"),
    ],
)
def test_a_wrong_arrow_is_caught(tmp_path, file, line):
    target = copy(tmp_path) / file
    text = target.read_text(encoding="utf-8")
    target.write_text(f"{text}\n{line}\n", encoding="utf-8")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
