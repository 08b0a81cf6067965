"""The house's own rules on its files: length, and no word of the machine it was written on."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[Path]:
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]
    hidden = {".venv", ".git", "__pycache__"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not hidden & set(path.parts)]


def test_no_python_file_is_longer_than_400_lines():
    sizes = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in tracked() if path.suffix == ".py"
    }
    assert len(sizes) > 10
    assert {str(path): size for path, size in sizes.items() if size > 400} == {}


def test_no_file_names_a_path_of_one_machine():
    pattern = re.compile(r"/work/|/tmp/dev|\.\./shared|/root/")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        if path.suffix in {".py", ".md", ".toml", ".sh", ".cu", ".cuh", ".ptx"}
        or path.parent.name in {"ci", ".ci"}
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []
