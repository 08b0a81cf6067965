"""How a run is judged and shown, with made-up cells; and what the README says of the newest one."""

import json

import pytest

from oracle import evidence
from oracle.errors import CannotRunError
from oracle.matrix import __main__ as command
from oracle.matrix import inside, run, table
from oracle.matrix.cells import Cell
from oracle.progress import Progress

RIGHT = {
    "architectures": {
        arch: {"instructions": {"plain-raw": {"ptx": 10, "sass": 20}}}
        for arch in ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
    },
    "launches": 7, "bits_compared": 700, "mismatches": 0, "digest": "right", "compile_seconds": 1,
    "run_seconds": 2,
}  # fmt: skip
NEW, OLD, BESIDE = Cell("triton", "3.9.0"), Cell("triton", "3.8.0"), Cell("triton", "3.5.1", required=False)
NOT_THERE = {"step": "install", "why": "ERROR: no such | version"}


@pytest.fixture
def make(monkeypatch, tmp_path):
    """Make a run of cells that find what is given."""
    monkeypatch.setattr(inside, "expected_digest", lambda: "right")

    def make(found):
        return run.run(
            list(found),
            tmp_path,
            2,
            Progress(unit="environments"),
            lambda cell, folder, processes: found[cell],
        )

    return make


def test_a_run_passes_where_all_required_versions_give_the_specifications_bits(make):
    record = make({BESIDE: NOT_THERE, OLD: RIGHT, NEW: RIGHT}).record
    assert (record["verdict"], record["launches"], record["mismatches"], record["versions_run"]) == (
        "pass",
        14,
        0,
        2,
    )
    assert table.verdict(record).startswith("PASS: 2 environments give the same bits, those of the spec")
    assert [row["version"] for row in record["rows"]] == ["3.5.1", "3.8.0", "3.9.0"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (NOT_THERE, "install: ERROR: no such | version"),
        (RIGHT | {"digest": "wrong"}, f"run: {run.DIFFERENT}"),
        (RIGHT | {"mismatches": 1, "step": "run", "why": "MISMATCH: M3\n  more"}, "run: MISMATCH: M3"),
    ],
    ids=["not-installed", "other-digest", "mismatch"],
)
def test_a_required_version_that_fails_fails_the_run(make, found, said):
    record = make({OLD: RIGHT, NEW: found}).record
    assert record["verdict"] == "fail"
    assert table.verdict(record).startswith("FAIL: triton 3.9.0 (")
    assert table.text(record).splitlines()[-1].endswith(said)


def test_a_fault_of_the_tool_is_no_verdict(monkeypatch, make):
    class Broken(dict):
        def __getitem__(self, cell):
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        make(Broken({NEW: RIGHT}))


def test_the_readmes_table_has_a_line_for_consecutive_versions_that_came_out_alike(make):
    pinned = Cell("triton", "3.8.0", ("numpy==1.26",))
    partly = RIGHT | {"architectures": {"sm_90a": RIGHT["architectures"]["sm_90a"]}}
    record = make({BESIDE: NOT_THERE, pinned: RIGHT, NEW: RIGHT, Cell("cute", "4.8.1"): partly}).record
    assert table.markdown(record).splitlines()[2:] == [
        "| triton | 3.5.1 | none |  |  | not supported: install: ERROR: no such \\| version |",
        "| triton | 3.8.0 numpy==1.26, 3.9.0 | all | 7 | 0 | the same bits |",
        "| nvidia-cutlass-dsl | 4.8.1 | sm_90a | 7 | 0 | the same bits |",
    ]


class TestTheCommand:
    @pytest.fixture(autouse=True)
    def evidence_folder(self, monkeypatch, tmp_path):
        folder, write = tmp_path / "evidence", evidence.write
        monkeypatch.setattr(evidence, "write", lambda command, record: write(command, record, folder))
        return folder

    def answer(self, monkeypatch, found):
        monkeypatch.setattr(inside, "expected_digest", lambda: "right")
        monkeypatch.setattr(run, "ask_cell", lambda cell, folder, processes: found)

    def test_all_versions_leave_a_record(self, monkeypatch, capsys, evidence_folder):
        self.answer(monkeypatch, RIGHT)
        monkeypatch.setattr(command.cells, "every", lambda: [OLD, NEW])
        assert command.main([]) == 0
        ((path, record),) = evidence.entries(evidence_folder)
        assert capsys.readouterr().out.splitlines()[-1] == f"evidence: {path}"
        assert evidence.table(evidence_folder).endswith("| 14 | 0 | pass |")
        assert evidence.newest("matrix", evidence_folder) == record

    def test_a_chosen_version_decides_also_outside_the_range_and_leaves_none(
        self, monkeypatch, capsys, evidence_folder, tmp_path
    ):
        self.answer(monkeypatch, NOT_THERE)
        assert command.main(["triton==3.5.1", "--json", str(tmp_path / "run.json")]) == 1
        assert json.loads((tmp_path / "run.json").read_text())["rows"][0]["version"] == "3.5.1"
        assert not evidence_folder.exists()

    def test_arguments_that_are_wrong_are_told_in_one_line(self, capsys):
        for words in (["numpy==1.26"], ["--jobs", "0"], ["--json", "/nowhere/at/all.json"]):
            with pytest.raises(SystemExit) as end:
                command.main(words)
            assert end.value.code == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith("python -m oracle.matrix: ")

    def test_an_index_that_cannot_be_asked_is_told(self, monkeypatch, capsys):
        def nothing():
            raise CannotRunError("pip finds no releases of triton")

        monkeypatch.setattr(command.cells, "every", nothing)
        assert command.main([]) == 3
        assert capsys.readouterr().err == "could not run: pip finds no releases of triton\n"
