"""`check --fast`: it passes what is right, names what an edit broke wherever that is, and takes no choice."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spec
from oracle import cases, cli, fast, ptxsim, replay
from oracle.outcome import Result, Tally
from oracle.plan import Target
from oracle.ptxsim import SimulationError

REPOSITORY = Path(spec.__file__).parents[1]
TRITON = Target("triton", "sim")


def run(folder: Path, backend: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``check --fast`` in ``folder``, whose packages come before the repository's."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)])}
    return subprocess.run(
        [sys.executable, "-m", "oracle", "check", "--fast", "--backend", backend, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def edit(folder: Path, package: str, **changes: tuple[str, str]) -> None:
    """Copy a package into ``folder`` and replace a text, there once, in each module named."""
    shutil.copytree(REPOSITORY / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for module, (old, new) in changes.items():
        path = folder / package / f"{module}.py"
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, (module, old)
        path.write_text(text.replace(old, new), encoding="utf-8")


def test_what_is_right_passes(tmp_path):
    done = run(tmp_path, "cute", "--json", "out.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(
        r"PASS: cute on sim: all [\d,]+ output bits of [\d,]+ launches are as specified, [\d,]+ also in",
        done.stdout,
    )
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["verdict"], record["complaints"], record["not_asked"]) == ("pass", [], [])
    assert record["rows"][0]["launches"] >= 2000
    assert not (tmp_path / "replays").exists()


def test_a_fault_in_the_kernel_the_compile_functions_and_the_door_is_named_at_each_place(tmp_path):
    edit(
        tmp_path,
        "impl_triton",
        kernel=("gl.minimum((cta + 1) * tile, limit)", "(cta + 1) * tile"),
        compiler=('"launch_pdl": True', '"launch_pdl": False'),
        host=("row_stride // ROW_STRIDE_MULTIPLE, scale", "row_stride // 8, scale"),
    )
    done = run(tmp_path, "triton", "--json", "out.json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "MISMATCH triton on sim: M3\n" in done.stdout
    assert "MISMATCH triton: launch\n  the launch is not programmatic dependent" in done.stdout
    assert "MISMATCH triton: functions of the door\n" in done.stdout
    assert re.search(r"^FAIL: triton on sim: [\d,]+ mismatches in .*; triton: ", done.stdout, re.MULTILINE)
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "fail"

    (path,) = re.findall(r"again: python -m oracle replay (\S+)", done.stdout)
    target, batch, _ = replay.load(tmp_path / path)
    assert target == TRITON
    assert batch.index is not None
    made = cases.batch(
        cases.FAMILIES[batch.family], batch.seed, batch.index, batch.tokens, batch.renormalize, batch.ranges
    )
    assert np.array_equal(made.logits.view(np.uint32), batch.logits.view(np.uint32))


def test_a_kernel_that_does_not_compile_is_told_as_such(tmp_path):
    edit(tmp_path, "impl_triton", kernel=("return picked * inverse", "return picked *"))
    done = run(tmp_path, "triton")
    assert done.returncode == 3
    assert "could not run: compiling triton for sm_90a failed: SyntaxError" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fast", "--batch", "3"], "--fast makes its own choice: no --batch"),
        (["--fast", "--device", "cuda"], "--fast makes its own choice: no --device"),
        (["--fast", "--backend", "cute,spec"], "--fast is for cute, triton, not spec"),
        (["--fast", "--json", "/nowhere/x.json"], "--json: no folder /nowhere"),
        (["--watch", "--seed", "1"], "--watch makes its own choice: no --seed"),
        (["--watch", "--json", "x.json"], "--watch makes its own choice: no --json"),
    ],
    ids=["batch", "device", "backend", "json", "watch-seed", "watch-json"],
)
def test_a_choice_beside_fast_is_refused_in_one_line(arguments, message, capsys):
    assert cli.main(["check", *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_every_variant_and_family_is_asked_and_the_kernels_come_first():
    jobs = list(fast._jobs(("cute", "triton"), without_functions=False))
    assert [job.part for job in jobs] == ["kernel"] * 8 + ["compiler"] * 2 + ["functions"] * 2
    assert {job.variant for job in jobs[:8]} == {(m, r) for m in (True, False) for r in (True, False)}
    trials = fast.trials()
    assert {trial.variant for trial in trials} == {job.variant for job in jobs[:8]}
    assert {name for trial in trials for name in trial.families} == set(cases.FAMILIES)
    assert {trial.batch.tokens for trial in trials} == set(range(1, 9))


def test_without_torch_the_functions_of_the_door_are_named_as_not_asked():
    assert all(job.part != "functions" for job in fast._jobs(("cute",), without_functions=True))
    result = Result({(TRITON, fast.FAMILY): Tally(10, 320, 0, 1.0)}, 0, 2.0)
    told = fast.verdict(
        fast.FastResult(result, (), ("the functions of the door, since torch is not installed",))
    )
    assert told.startswith(
        "not asked: the functions of the door, since torch is not installed\nPASS: triton on sim"
    )


def test_a_complaint_alone_fails_the_run():
    result = Result({(TRITON, fast.FAMILY): Tally(10, 320, 0, 1.0)}, 0, 2.0)
    failed = fast.FastResult(result, (fast.Complaint("triton", "compiled code", "4 threads"),), ())
    assert not failed.passed
    assert fast.verdict(failed) == "FAIL: triton: compiled code (2 s)"


def test_an_endless_kernel_is_stopped_soon():
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    text = head + ".visible .entry spin()\n{\n$again:\n bra $again;\n}\n"
    program = ptxsim.parse(text, "spin")
    with fast._impatient(), pytest.raises(SimulationError, match="instruction budget"):
        ptxsim.launch(program, ptxsim.Memory(launches=1), [], block=32)
