"""Records of runs: how they are written, read, and shown in the README."""

import json

import pytest

from oracle import evidence
from oracle.card import sanitize, sanitized, sweep, test


def test_the_readmes_table_is_that_of_the_folder():
    text = (evidence.ROOT / "README.md").read_text(encoding="utf-8")
    assert text == evidence.with_table(text, evidence.table()), "run python -m oracle.evidence"


def test_a_record_is_named_for_its_command_and_time_and_says_where_it_was_made(tmp_path):
    path = evidence.write("calibrate", {"verdict": "pass", "inputs": 7, "mismatches": 0}, tmp_path)
    assert evidence._NAME.fullmatch(path.name)
    ((found, record),) = evidence.entries(tmp_path)
    assert found == path
    assert record["command"] == "calibrate"
    assert "card" in record["host"]
    assert "numpy" in record["versions"]
    assert evidence.table(tmp_path).endswith("| 7 | 0 | pass |")


def test_rows_are_added_up_in_the_table(tmp_path):
    rows = [{"launches": 1000, "mismatches": 1}, {"launches": 500, "mismatches": 2}]
    evidence.write("check", {"verdict": "fail", "rows": rows}, tmp_path)
    assert evidence.table(tmp_path).endswith("| 1,500 | 3 | fail |")


@pytest.mark.parametrize("name", ["check-now.json", "sweep-20261201T000000.json", "notes.json"])
def test_a_file_that_the_tools_did_not_write_is_refused(tmp_path, name):
    (tmp_path / name).write_text(json.dumps({"command": "check", "date": "2026-12-01"}))
    with pytest.raises(ValueError, match="no record of this tool"):
        evidence.entries(tmp_path)


def test_a_command_or_verdict_that_is_not_known_is_refused(tmp_path):
    with pytest.raises(ValueError, match="command must be one of"):
        evidence.write("fuzz", {"verdict": "pass"}, tmp_path)
    with pytest.raises(ValueError, match="verdict pass or fail"):
        evidence.write("check", {"verdict": "fine"}, tmp_path)


def test_a_text_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="once each"):
        evidence.with_table("no table here", "| |")


def test_reports_are_read_from_each_tools_summary():
    assert sanitize.reports("========= ERROR SUMMARY: 0 errors") == 0
    assert sanitize.reports("========= ERROR SUMMARY: 12 errors\n") == 12
    assert sanitize.reports("========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)") == 3
    assert sanitize.reports("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)") == 1
    assert sanitize.reports("Error: the tool did not start") is None


def test_each_tool_has_a_planted_fault():
    assert set(sanitized.FAULTS) == set(sanitize.TOOL_NAMES)
    assert {sanitized.fault_ptx(name) for name in sanitized.FAULTS.values()} >= {sanitized.fault_ptx("race")}


def test_tests_are_counted_from_pytests_report():
    report = '<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3" /></testsuites>'
    assert test.counts(report) == {"tests": 9, "failed": 3, "skipped": 3}


def test_the_ledger_knows_what_is_left_for_these_kernels(tmp_path):
    ledger = sweep.Ledger(tmp_path / "ledger.jsonl", {"cute": "1", "triton": "2"})
    whole = len(ledger.missing())
    assert whole == 2048
    shard = sweep.Shard.parse("3/64")
    assert ledger.left(shard)
    ledger.append({"shard": "3/64", "mismatches": {"cute": 0, "triton": 0}, "between": 0})
    assert not ledger.left(shard)
    assert len(ledger.missing()) == whole - 32
    assert ledger.left(sweep.Shard.parse("1/2"))
    with ledger.path.open("a") as file:
        file.write('{"shard": "4/6')  # cut off
    assert len(ledger.missing()) == whole - 32
    ledger.append({"shard": "5/64", "mismatches": {"cute": 0, "triton": 9}, "between": 9})
    assert ledger.left(sweep.Shard.parse("5/64"))
    ledger.append({"shard": "4/64", "mismatches": {"cute": 0, "triton": 0}, "between": 0})
    assert len(ledger.missing()) == whole - 64
    assert len(sweep.Ledger(ledger.path, {"cute": "changed", "triton": "2"}).missing()) == whole


def test_shards_share_all_points_out():
    units = [unit for i in range(5) for unit in sweep.Shard(i, 5).units()]
    assert sorted((unit.tokens, unit.tile) for unit in units) == [
        (b, t) for b in range(1, 9) for t in range(1, 257)
    ]


@pytest.mark.parametrize("text", ["", "3", "64/64", "-1/4", "1/0", "a/b", "1/4096"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(sweep.argparse.ArgumentTypeError, match="a shard is i/n"):
        sweep.Shard.parse(text)
