"""docs/adopt.md says what is so: its example is the file and runs, its names, sizes and links are right."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import spec

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adopt.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "docs" / "examples" / "moe_layer.py"


def test_the_example_on_the_page_is_the_file():
    assert f"```python\n{EXAMPLE.read_text(encoding='utf-8')}```\n" in PAGE


def test_the_example_runs(tmp_path):
    environment = os.environ | {"MUSESPARK_ROUTING_BACKEND": "spec", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, EXAMPLE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "spec on cpu: two ranks add up to every expert\n"


def test_the_sizes_are_those_of_the_buffer():
    tiles, sizes = (
        re.search(rf"^ *\| {start}.*$", PAGE, re.M).group() for start in ("`tile_n`", "`metadata_size")
    )
    numbers = [[int(cell) for cell in row.split("|")[2:-1]] for row in (tiles, sizes)]
    assert numbers[0] == [1, 8, 16, 32, 64, 128, 256]
    assert numbers[1] == [spec.metadata_size(tile) for tile in numbers[0]]


def test_every_field_of_the_buffer_is_in_the_table_once(door):
    named = re.findall(r"^\| `(META_\w+)` \|", PAGE, re.M)
    assert sorted(named) == sorted(name for name in door.__all__ if name.startswith("META_"))


def test_every_link_and_every_file_named_is_there():
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE)
    assert len(links) > 5
    named = re.findall(r"`((?:docs|oracle|spec|tests|ci)/[\w/.]+)`", PAGE)
    assert len(named) > 5
    yet_to_come = ("tests/data/mufu_sm100",)
    wanted = [ROOT / "docs" / link for link in links] + [
        ROOT / name for name in named if name not in yet_to_come
    ]
    assert [str(path) for path in wanted if not path.exists()] == []


@pytest.mark.parametrize("heading", re.findall(r"README\.md#([\w-]+)|specification\.md#([\w-]+)", PAGE))
def test_every_heading_that_is_linked_is_there(heading):
    file, anchor = ("README.md", heading[0]) if heading[0] else ("docs/specification.md", heading[1])
    headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.M)
    assert anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
