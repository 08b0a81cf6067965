"""The command: what it prints, what it refuses, and its exit codes."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import spec
from oracle import backends, cli
from oracle.commands import check

REPOSITORY = Path(spec.__file__).parents[1]
QUICK = [
    "check",
    "--backend",
    "spec",
    "--jobs",
    "1",
    "--cases",
    "16",
    "--family",
    "ties,permute-*",
    "--tile",
    "7",
]


def run(*arguments, cwd, **options):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=120,
        **options,
    )


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_passing_run_exits_0_with_a_table_and_a_verdict(capsys):
    assert cli.main(QUICK) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].split() == [
        "backend",
        "device",
        "family",
        "launches",
        "bits",
        "compared",
        "mismatches",
        "launches/s",
    ]
    assert [line.split()[2] for line in lines[2:4]] == ["ties", "permute-mixed"]
    assert lines[-1].startswith("PASS: spec on cpu: all ")
    assert "120 launches" in lines[-1]
    assert "\r" not in printed.out + printed.err
    assert not Path("replays").exists()


def test_the_sums_of_the_table_are_those_of_its_rows(capsys):
    assert cli.main([*QUICK, "--json", "out.json"]) == 0
    rows = json.loads(Path("out.json").read_text())["rows"]
    total = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("all "))
    launches, bits = (int(word.replace(",", "")) for word in total.split()[1:3])
    assert launches == sum(row["launches"] for row in rows) == 16 + 8 * 13
    assert bits == sum(row["bits_compared"] for row in rows)
    ties = next(row for row in rows if row["family"] == "ties")
    assert ties["bits_compared"] == 2 * sum(range(1, 9)) * 16 * 32


def test_the_json_has_verdict_versions_and_rows(capsys):
    assert cli.main([*QUICK, "--json", "out.json"]) == 0
    content = json.loads(Path("out.json").read_text())
    assert set(content) == {"verdict", "versions", "rows"}
    assert content["verdict"] == "pass"
    assert {"python", "numpy"} <= set(content["versions"])
    columns = {"backend", "device", "family", "launches", "bits_compared", "mismatches", "launches_per_s"}
    assert all(set(row) == columns for row in content["rows"])


def test_a_mismatch_exits_1_with_a_replay_file_that_replays_it(plant, capsys):
    plant(lambda batch, outputs: outputs.ids.__setitem__((0, 0, 0), 300))
    arguments = [
        "check",
        "--backend",
        "faulty",
        "--jobs",
        "1",
        "--cases",
        "16",
        "--family",
        "ties",
        "--json",
        "out.json",
    ]
    assert cli.main(arguments) == 1
    printed = capsys.readouterr().out
    assert "FAIL: faulty on cpu: 16 mismatches in 16 launches" in printed
    assert json.loads(Path("out.json").read_text())["verdict"] == "fail"
    line = next(line for line in printed.splitlines() if "again: " in line)
    command = line.split("again: python -m oracle ")[1].split()
    assert cli.main(command) == 1
    assert "actual 0x0000012c (300)" in capsys.readouterr().out


def test_two_workers_give_the_numbers_of_one(capsys):
    def rows(jobs):
        assert cli.main([*QUICK[:3], "--jobs", jobs, *QUICK[5:], "--json", "out.json"]) == 0
        found = json.loads(Path("out.json").read_text())["rows"]
        return [{key: row[key] for key in row if key != "launches_per_s"} for row in found]

    assert rows("1") == rows("2")


BAD = {
    "an-unknown-backend": (
        ["--backend", "cuda"],
        "argument --backend: no backend 'cuda': there are cute, flashinfer",
    ),
    "an-unknown-device": (["--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
    "an-unknown-family": (
        ["--family", "tie"],
        "argument --family: no family 'tie': there are known-selection",
    ),
    "a-batch-of-0": (["--batch", "0"], "argument --batch: must be a number in 1..8, not '0'"),
    "a-batch-of-9": (["--batch", "1-9"], "argument --batch: must be a number in 1..8, not '9'"),
    "a-batch-backwards": (["--batch", "5-2"], "argument --batch: '5-2' runs backwards"),
    "a-tile-of-257": (["--tile", "257"], "argument --tile: must be a number in 1..256, not '257'"),
    "a-tile-that-is-no-number": (["--tile", "8,x"], "argument --tile: must be a number in 1..256, not 'x'"),
    "a-range-without-count": (
        ["--range", "8"],
        "argument --range: must be sample, all or OFFSET:COUNT, not '8'",
    ),
    "a-range-of-nothing": (["--range", "8:0"], "argument --range: '8:0' must hold at least one expert"),
    "a-range-past-the-end": (
        ["--range", "200:57"],
        "argument --range: '200:57' must hold at least one expert and end",
    ),
    "cases-of-0": (["--cases", "0"], "argument --cases: must be a number in"),
    "a-negative-seed": (["--seed=-1"], "argument --seed: must be a number in"),
    "jobs-of-0": (["--jobs", "0"], "argument --jobs: must be a number in 1..1024, not '0'"),
    "an-unknown-option": (["--what"], "unrecognized arguments: --what"),
    "nothing-to-run": (["--backend", "torch", "--family", "ties"], "these options leave nothing to run"),
    "a-json-in-no-folder": (["--json", "none/out.json"], "--json: no folder none"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_argument_is_one_line_with_exit_2(bad, capsys):
    options, message = BAD[bad]
    try:
        code = cli.main(["check", "--backend", "spec", *options])
    except SystemExit as end:
        code = end.code
    printed = capsys.readouterr()
    assert code == 2
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize("arguments", [[], ["chek"], ["replay"]])
def test_a_wrong_command_is_one_line_with_exit_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_device_that_a_backend_does_not_have_is_exit_3_with_the_reason(capsys):
    assert cli.main(["check", "--backend", "spec", "--device", "sim"]) == 3
    assert (
        capsys.readouterr().err
        == "could not run: spec on sim: backend spec does not run on sim, only on cpu\n"
    )


def test_lists_of_values_and_ranges_are_read_in_order_and_once(monkeypatch):
    seen = []
    monkeypatch.setattr(check, "execute", lambda options: seen.append(options) or 0)
    cli.main(
        ["check", "--batch", "3,1-2,2", "--tile", "8,1-3", "--range", "0:64,sample", "--backend", "cute,cute"]
    )
    assert seen[0].batch == (1, 2, 3)
    assert seen[0].tile == (1, 2, 3, 8)
    assert seen[0].range.fixed[0] == (0, 64)
    assert seen[0].range.number == 13
    assert seen[0].backend == ("cute",)


def test_backends_lists_every_backend_on_each_of_its_devices(capsys):
    assert cli.main(["backends"]) == 0
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert [tuple(line[:2]) for line in lines] == [
        (name, device) for name in backends.names() for device in backends.get(name).devices
    ]
    assert all(line[2] == "ready" or line[2].startswith("cannot run: ") for line in lines)


def test_ctrl_c_ends_all_processes_at_once_with_exit_130_and_no_traceback(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [
        sys.executable,
        "-m",
        "oracle",
        "check",
        "--backend",
        "spec",
        "--jobs",
        "2",
        "--cases",
        "100000",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while len(children.read_text().split()) < 3:  # both workers, and Python's resource tracker
        time.sleep(0.05)
    time.sleep(0.5)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - start < 5
    assert "Traceback" not in error + out
    assert error.endswith("interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_the_modules_entry_point_is_the_command(tmp_path):
    done = run("-m", "oracle", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PASS" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr


def test_a_reader_that_goes_away_makes_no_traceback(tmp_path):
    command = f"{sys.executable} -m oracle {' '.join(QUICK)} | head -c 1"
    done = run("-c", f"import subprocess; subprocess.run({command!r}, shell=True)", cwd=tmp_path)
    assert len(done.stdout) == 1
    assert "Traceback" not in done.stderr


NO_TORCH = """
import sys
from oracle.cli import main
code = main(["check", "--device", "sim", "--jobs", "1", "--cases", "1", "--batch", "1", "--tile", "8",
             "--family", "ties,permute-natural"])
assert code == 0, code
assert {"cutlass", "triton", "numpy"} <= set(sys.modules)
assert "torch" not in sys.modules
"""


def test_check_on_the_simulator_compiles_and_runs_both_kernels_without_importing_torch(tmp_path, monkeypatch):
    assert importlib.util.find_spec("torch") is not None
    monkeypatch.setenv("MUSESPARK_ROUTING_CACHE", str(tmp_path / "cache"))
    done = run("-c", NO_TORCH, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: cute on sim, triton on sim" in done.stdout
