"""Judging: a fixed sample is caught whole, what survives is told, and the host judges see what is planted."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import spec
from oracle import artifacts, cli
from oracle.mutants import command, launches, sources
from oracle.mutants.run import Judged, Score
from oracle.mutants.verdict import CAUGHT, EQUIVALENT, REJECTED, SURVIVED, Verdict

ROOT = Path(spec.__file__).parents[1]
SAMPLE = 12


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oracle", "mutants", *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def test_a_fixed_sample_is_caught(tmp_path):
    path = tmp_path / "mutants.json"
    done = run("--sample", str(SAMPLE), "--jobs", "1", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nPASS: " in done.stdout
    record = json.loads(path.read_text())
    assert (record["verdict"], record["mutants"], record["survivors"]) == ("pass", SAMPLE, [])
    assert len(record["rows"]) == SAMPLE
    caught = [row for row in record["rows"] if row["outcome"] == CAUGHT]
    assert len(caught) >= SAMPLE // 2
    assert all(row["by"] and row["detail"] and row["seconds"] > 0 for row in caught)
    assert {row["group"] for row in caught} == {"cute", "triton", "contract"}


def judged(*outcomes: Verdict) -> tuple[Judged, ...]:
    mutants = sources.mutants("cute")
    return tuple(Judged(mutant, verdict) for mutant, verdict in zip(mutants, outcomes, strict=False))


MIXED = judged(
    Verdict(CAUGHT, "bits", "R3", "ties"), Verdict(CAUGHT, "simulator", "race", "ties"),
    Verdict(REJECTED, "compiler"), Verdict(EQUIVALENT, "same code"), Verdict(SURVIVED),
)  # fmt: skip


def test_a_survivor_is_shown_with_its_change_and_fails_the_run():
    score = Score(MIXED, (), 3.0, 5.0)
    assert not score.passed
    last = MIXED[-1].mutant
    told = "\n".join(command._told(score))
    assert f"SURVIVED {last.id}" in told
    assert f"impl_cute/{last.module.split('.')[1]}.py:{last.line}" in told
    assert f"  - {last.before.splitlines()[0]}" in told
    assert "FAIL: 2 of 3 mutants caught (66.7%); 1 more did not compile, 1 are no change" in command.verdict(
        score
    )
    assert json.loads(command.as_json(score))["survivors"] == [last.id]


def test_what_cannot_compile_and_what_is_no_change_do_not_count():
    score = Score(MIXED[:-1], (), 3.0, 5.0)
    assert score.passed
    assert "PASS: 2 of 2 mutants caught (100.0%)" in command.verdict(score)
    (last,) = [
        line for line in command.table(score).splitlines() if line.startswith("cute") and " all " in line
    ]
    assert last.split() == ["cute", "all", "4", "2", "1", "1", "1", "1"]


def test_an_equivalent_that_is_caught_after_all_fails_the_run():
    score = Score(MIXED[:1], (f"{MIXED[0].mutant.id} is caught",), 3.0, 5.0)
    assert not score.passed
    assert "NOT EQUIVALENT" in "\n".join(command._told(score))


def test_mutants_are_listed(capsys):
    assert cli.main(["mutants", "--list", "--only", "spec.contract:check_range:*"]) == 0
    listed = capsys.readouterr().out
    assert "spec.contract:check_range:boundary:" in listed
    assert "if offset < 0: -> if offset <= 0:" in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "no mutant 'nothing'"),
        (["--backend", "torch"], "no kernel 'torch'"),
        (["--sample", "0"], "must be a number"),
        (
            ["--only", "spec.contract:check_range:boundary:*", "--json", "/nowhere/x.json"],
            "no folder /nowhere",
        ),
    ],
    ids=["id", "backend", "sample", "json"],
)
def test_bad_arguments_are_one_line(arguments, message, capsys):
    try:
        code = cli.main(["mutants", *arguments])
    except SystemExit as end:
        code = end.code
    told = capsys.readouterr().err
    assert code == 2
    assert message in told
    assert told.count("\n") == 1


HOST_CODE = """
  llvm.func @cutlass_launch_x(%arg0: !llvm.struct<(ptr<1>)>) -> i32 {
    %0 = llvm.mlir.constant(6 : i32) : i32
    %1 = llvm.mlir.constant(256 : i32) : i32
  }
"""


@pytest.mark.parametrize(
    ("told", "noticed"), [("row_ctas", "the launch is of ["), ("cluster", "the launch is of clusters of [")]
)
def test_a_launch_of_other_ctas_than_the_compiled_kernel_says_is_noticed(monkeypatch, told, noticed):
    def lying(backend, *variant):
        made = artifacts.artifact(backend, *variant)
        return replace(made, **{told: not getattr(made, told)})

    assert launches.CHECKS["cute"]() is None
    monkeypatch.setattr(launches, "artifact", lying)
    assert str(launches.CHECKS["cute"]()).startswith(noticed)
    assert launches.CHECKS["triton"]() == "the one CTA is said to be more"


def test_host_code_that_passes_no_argument_is_noticed():
    assert "the launch passes ['nothing'" in str(launches._read_host_code(HOST_CODE, True))
