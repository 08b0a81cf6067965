"""docs/performance.md shows the newest record of the bench, and nothing else."""

import json

import pytest

from oracle.bench import document
from oracle.bench.figures import Figure
from oracle.bench.kernels import Kernels
from oracle.bench.points import Point
from oracle.bench.targets import of_kernels


def test_the_page_is_what_the_newest_record_makes_of_it():
    text = document.DOCUMENT.read_text(encoding="utf-8")
    right, drawing = document.expected(text)
    assert text == right, "run `python -m oracle.bench.document`"
    if drawing is not None:
        assert (document.DOCUMENT.parent / document.DRAWING).read_text(encoding="utf-8") == drawing


def record(date, microseconds):
    found = Kernels()
    steady, unsteady = Point("cute", 1), Point("cute", 2)
    found.figures = {
        steady: Figure("us", microseconds, microseconds, microseconds),
        unsteady: Figure("us", 1.0, 2.0, 1.5),
    }
    found.differing = {steady: 0, unsteady: 0}
    return {
        "command": "bench",
        "date": date,
        "host": {"card": "NVIDIA H200", "driver": "1.2"},
        "versions": {"triton": "3.6.0"},
        "verdict": "pass",
        "kernels": found.records(),
        "left_out": {"vllm": "it is not here"},
        "targets": [goal.record() for goal in of_kernels(found)],
    }


@pytest.fixture
def folder(tmp_path):
    for date, microseconds in (("2026-01-01T00:00:00", 7.5), ("2026-01-02T00:00:00", 8.25)):
        name = date.replace("-", "").replace(":", "")
        (tmp_path / f"bench-{name}.json").write_text(json.dumps(record(date, microseconds)))
    (tmp_path / "bench-20260103T000000.json").write_text(
        json.dumps({"command": "bench", "date": "2026-01-03T00:00:00", "verdict": "pass"})
    )
    return tmp_path


PAGE = f"before\n{document.BEGIN}\nold\n{document.END}\nafter\n"


def test_the_newest_record_with_kernels_is_shown(folder):
    text, drawing = document.expected(PAGE, folder)
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "[bench-20260102T000000.json](../evidence/bench-20260102T000000.json)" in text
    assert "2026-01-02, NVIDIA H200, driver 1.2, Triton 3.6.0:" in text
    assert "| CuTe DSL | 8.25 | refused |  |  | 100.0% |" in text
    assert "- kernels: cute, natural, 0, 2: refused: measured 1 and 2 us" in text
    assert "- vllm: it is not here" in text
    assert drawing.startswith("<svg")


def test_writing_twice_is_writing_once(folder):
    page = folder / "page.md"
    page.write_text(PAGE)
    assert document.main([], page, folder) == 0
    once = page.read_text()
    assert document.main([], page, folder) == 0
    assert page.read_text() == once
    assert (folder / document.DRAWING).read_text().startswith("<svg")


def test_without_a_record_the_page_says_so(tmp_path):
    text, drawing = document.expected(PAGE, tmp_path)
    assert "No run on a card" in text
    assert drawing is None


def test_a_page_without_markers_is_refused(folder, capsys):
    page = folder / "page.md"
    page.write_text("nothing")
    assert document.main([], page, folder) == 2
    assert document.BEGIN in capsys.readouterr().err
