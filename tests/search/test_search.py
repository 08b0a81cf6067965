"""Searching: planted faults are found and made small, the same seed finds the same, and it ends in time."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import spec
from oracle import cli, replay
from oracle.cases import known
from oracle.plan import Target

REPOSITORY = Path(spec.__file__).parents[1]
PLANTED = ["search", "--backend", "planted", "--jobs", "1"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def found(capsys, *arguments):
    """Search, expect a failure, and return the replayed batch and what was printed."""
    assert cli.main([*PLANTED, "--examples", "200", *arguments]) == 1
    printed = capsys.readouterr()
    assert "Hypothesis" not in printed.err
    (path,) = re.findall(r"again: python -m oracle replay (\S+)", printed.out)
    target, batch, _ = replay.load(Path(path))
    assert target == Target("planted", "cpu")
    assert cli.main(["replay", path]) == 1
    capsys.readouterr()
    return batch, printed.out


def words(batch):
    return np.concatenate([batch.logits[0].ravel(), batch.bias[0]]).view(np.uint32)


def test_a_tie_across_lanes_at_the_cutoff_is_found_and_shrunk_to_one_row_without_exceptions(
    plant, sorted_keys, capsys
):
    plant(lambda batch: (sorted_keys(batch)[..., 7] == sorted_keys(batch)[..., 8]).any(axis=1))
    batch, told = found(capsys)
    assert batch.tokens == 1
    assert len(np.unique(words(batch))) == 1
    assert batch.ranges is None
    assert "MISMATCH planted on cpu: R3" in told
    assert "\n  logits[0]: 0\n  bias: 0\n" in told
    assert re.search(r"^FAIL: planted on cpu: [\d,]+ problems in \d+ batches", told, re.MULTILINE)


def test_picks_that_differ_in_the_last_bit_are_found_and_shrunk_to_few_values(plant, sorted_keys, capsys):
    plant(lambda batch: (np.diff(sorted_keys(batch)[..., :8]) == -1).any(axis=(1, 2)))
    batch, _ = found(capsys)
    assert batch.tokens == 1
    values, counts = np.unique(words(batch), return_counts=True)
    assert len(values) <= 4
    assert np.sort(counts)[:-2].sum() <= 8


def test_a_fault_of_three_equal_rows_needs_three_rows(plant, capsys):
    plant(lambda batch: np.full(len(batch), batch.tokens >= 3), "weights")
    batch, _ = found(capsys)
    assert batch.tokens == 3


def test_a_range_that_splits_a_tie_and_its_tile_are_kept_small(plant, sorted_keys, capsys):
    def broken(batch):
        if batch.ranges is None:
            return np.zeros(len(batch), bool)
        end = batch.ranges.offset + batch.ranges.count
        key = spec.ordered_key(spec.add_rn(spec.sigmoid(batch.logits), batch.bias[:, None, :]))[:, 0]
        at = np.arange(len(batch))
        split = (end < 256) & (key[at, end % 256] == key[at, end - 1]) & (batch.ranges.offset > 0)
        return split & (key[at, end - 1] > np.median(key, axis=1)) & (batch.ranges.tile > 2)

    plant(broken, "metadata")
    batch, told = found(capsys)
    assert batch.ranges is not None
    assert (batch.ranges.tile[0], batch.ranges.offset[0]) == (3, 1)
    assert (words(batch) != words(batch)[-1]).sum() <= 2
    assert "MISMATCH planted on cpu: M5" in told


def test_a_row_stride_beyond_2_to_the_31_and_aligned_outputs_are_found(plant, capsys):
    plant(lambda batch: (batch.row_stride > 2**31) & (batch.tokens > 1))
    batch, _ = found(capsys)
    assert batch.tokens == 2
    assert batch.row_stride[0] == 2**31 + 4
    plant(lambda batch: np.full(len(batch), batch.shift[1] == 0))
    batch, _ = found(capsys)
    assert batch.shift == (1, 0)


def test_nan_in_the_bias_is_found_whatever_its_bits(plant, capsys):
    plant(lambda batch: (batch.bias.view(np.uint32) == 0x7F800001).any(axis=1))
    batch, told = found(capsys)
    assert (batch.bias.view(np.uint32) == 0x7F800001).any()
    assert "0x7f800001" in told


def test_the_same_seed_finds_the_same(plant, sorted_keys, capsys):
    plant(lambda batch: (np.diff(sorted_keys(batch)[..., :8]) == -1).sum(axis=(1, 2)) > 3)
    one, told = found(capsys, "--seed", "5")
    other, again = found(capsys, "--seed", "5")
    assert np.array_equal(words(one), words(other))
    one_told, other_told = (re.sub(r", [\d,]+ a second .*", "", text) for text in (told, again))
    assert one_told == other_told


def test_what_is_right_ends_with_the_time_and_finds_nothing(capsys):
    start = time.monotonic()
    assert cli.main(["search", "--backend", "spec", "--jobs", "1", "--seconds", "2"]) == 0
    assert time.monotonic() - start < 60
    told = capsys.readouterr().out
    assert re.match(r"PASS: spec on cpu: nothing found in [\d,]+ problems in \d+ batches", told)
    assert not Path("replays").exists()
    assert not Path(".hypothesis").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "torch"], "torch is asked no problems but its own family's"),
        (["--backend", "nothing"], "no backend 'nothing'"),
        (["--seconds", "1", "--examples", "1"], "not allowed with"),
        (["--examples", "0"], "must be a number"),
        (["--keep", "Two Words"], "a case is named in words"),
        (["--keep", "two-finite-keys"], "has a case 'two-finite-keys' already"),
    ],
    ids=["asked-nothing", "unknown", "both-limits", "no-examples", "name", "taken-name"],
)
def test_bad_arguments_are_one_line(arguments, message, capsys):
    try:
        code = cli.main(["search", *arguments])
    except SystemExit as end:
        code = end.code
    told = capsys.readouterr().err
    assert code == 2
    assert message in told
    assert told.count("\n") == 1


def test_without_hypothesis_it_says_so(monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "hypothesis" else real(name)
    )
    assert cli.main(["search", "--backend", "spec"]) == 3
    assert "could not run: hypothesis is not installed" in capsys.readouterr().err


def test_a_fault_of_a_real_kernel_is_found_shrunk_kept_and_met_by_the_next_check(tmp_path):
    for package in ("oracle", "impl_triton"):
        shutil.copytree(
            REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    kernel = tmp_path / "impl_triton" / "kernel.py"
    right = kernel.read_text(encoding="utf-8")
    kernel.write_text(right.replace("shuffle(picked, j)", "shuffle(picked, TOP_K - 1 - j)"), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "oracle", *arguments, "--jobs", "1"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    done = run("search", "--backend", "triton", "--examples", "64", "--keep", "sum-in-another-order")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "MISMATCH triton on sim: R5/R6" in done.stdout
    assert re.search(r"problem: family search, seed 0, b 1, scale 0x3f800000", done.stdout)
    number = len(known.entries("selection"))
    assert f"kept as case 'sum-in-another-order', number {number} of " in done.stdout
    assert "\n  logits[1]" not in done.stdout
    met = run("check", "--family", "known-selection", "--batch", "1")
    assert met.returncode == 1
    assert "MISMATCH triton on sim: R5/R6" in met.stdout
    assert "FAIL: triton on sim" in met.stdout
    kernel.write_text(right, encoding="utf-8")
    mended = run("check", "--family", "known-selection", "--batch", "1")
    assert mended.returncode == 0, mended.stdout
