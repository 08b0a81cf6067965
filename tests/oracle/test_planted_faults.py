"""Faults planted one at a time in copies of the two kernels: `check` must catch each, under its clause."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import spec

REPOSITORY = Path(spec.__file__).parents[1]


@dataclass(frozen=True)
class Fault:
    """Texts of ``impl_<backend>/kernel.py``, each there exactly once, what replaces them, and what finds it.

    found
        A pattern for the line that names the mismatch.
    """

    backend: str
    edits: tuple[tuple[str, str], ...]
    options: str
    found: str


SELECTION = "--cases 1 --batch 3 --family"
"""One problem a family: one kernel, with renormalize."""

POINTS = "--batch 5 --family"


def cute(old: str, new: str, options: str, found: str, *more: tuple[str, str]) -> Fault:
    return Fault("cute", ((old, new), *more), options, found)


def triton(old: str, new: str, options: str, found: str, *more: tuple[str, str]) -> Fault:
    return Fault("triton", ((old, new), *more), options, found)


FAULTS = {
    "R3-tie-break-cute": cute(
        "lower = Uint32(lane < first_group + i)",
        "lower = Uint32(lane > first_group + i)",
        f"{SELECTION} all-equal",
        "R3",
    ),
    "R3-tie-break-triton": triton(
        "below = (1 << lane) - 1",
        "below = -2 << lane",
        f"{SELECTION} all-equal",
        "R3",
        ("brev.b32 r, $1; bfind.shiftamt.u32", "mov.b32 r, $1; bfind.u32"),
    ),
    "R3-equal-keys-of-a-group-taken-for-one-cute": cute(
        "key - Uint32(lower))",
        "key)",
        f"{SELECTION} all-equal",
        "stopped by the simulator\n  race",
    ),
    "R3-a-candidate-left-out-cute": cute(
        "_choose(is_best, rank, rank * 2 + place)",
        "_choose(is_best, rank, rank * 2 + place + 1)",
        f"{SELECTION} known-selection",
        "stopped by the simulator\n  uninitialised",
    ),
    "R2-key-cut-short-cute": cute(
        "key = ordered_key(add_rn(scored, bias_value))",
        "key = ordered_key(add_rn(scored, bias_value)) & Uint32(0xFFFFFF00)",
        f"{SELECTION} near-ties,near-scores",
        "R3",
    ),
    "R5-sum-order-cute": cute(
        "in shared_load_4(picked) + shared_load_4(picked + 4)",
        "in shared_load_4(picked + 4) + shared_load_4(picked)",
        f"{SELECTION} known-selection",
        "R5/R6",
    ),
    "R5-sum-order-triton": triton(
        "total = total + shuffle(picked, j)",
        "total = total + shuffle(picked, TOP_K - 1 - j)",
        f"{SELECTION} known-selection",
        "R5/R6",
    ),
    "A4-plain-division-cute": cute(
        "mul_rn(rcp(add_rn(total, Float32(SUM_EPSILON))), scale)",
        "scale / add_rn(total, Float32(SUM_EPSILON))",
        f"{SELECTION} known-selection",
        "R5/R6",
    ),
    "A4-plain-division-triton": triton(
        "inverse = rcp_approx(total + SUM_EPSILON) * scale",
        "inverse = gl.div_rn(scale, total + SUM_EPSILON)",
        f"{SELECTION} known-selection",
        "R5/R6",
    ),
    "R6-bias-subtracted-back-cute": cute(
        "select(key, scored, thread, entries, picks, picked)",
        "select(key, add_rn(add_rn(scored, bias_value), mul_rn(bias_value, Float32(-1.0))), thread, entries,"
        " picks, picked)",
        f"{SELECTION} known-selection",
        "R5/R6",
    ),
    "R6-bias-subtracted-back-triton": triton(
        "weighed = weigh(scores, picks, scale, renormalize)",
        "weighed = weigh((scores + correction) - correction, picks, scale, renormalize)",
        f"{SELECTION} known-selection",
        "R5/R6",
    ),
    "M1-prefix-sum-cute": cute(
        "low_bits(cutlass.max(expert - word * WARP, 0))",
        "low_bits(cutlass.max(expert + 1 - word * WARP, 0))",
        f"{POINTS} permute-all-local --tile 2 --range 0:8",
        "M[23]",
    ),
    "M1-prefix-sum-triton": triton(
        "lane_cta0 = warp_scan(lane_ctas) - lane_ctas",
        "lane_cta0 = warp_scan(lane_ctas)",
        f"{POINTS} permute-all-local --tile 2 --range 0:8",
        "M[23]",
    ),
    "M1-offset-cute": cute(
        "is_local = Uint32(thread - offset) < Uint32(count)",
        "is_local = Uint32(thread) < Uint32(count)",
        f"{POINTS} permute-all-local --tile 4 --range 64:64",
        "stopped by the simulator\n  race",
    ),
    "M2-offset-triton": triton(
        "gl.store(metadata + CTA_BATCH + cta, expert, mask=is_first)",
        "gl.store(metadata + CTA_BATCH + cta, ids, mask=is_first)",
        f"{POINTS} permute-all-local --tile 4 --range 64:64",
        "M2",
    ),
    "M3-row-limit-cute": cute(
        "first + cutlass.min((lane + 1) * tile, hits)",
        "first + (lane + 1) * tile",
        f"{POINTS} permute-shared --tile 8 --range 0:256",
        "M3",
    ),
    "M3-row-limit-triton": triton(
        "gl.minimum((cta + 1) * tile, limit)",
        "(cta + 1) * tile",
        f"{POINTS} permute-shared --tile 8 --range 0:256",
        "M3",
    ),
    "M6-earlier-tokens-cute": cute(
        "select_(is_local, routed, Int32(-1))",
        "select_(is_local, first, Int32(-1))",
        f"{POINTS} permute-shared --tile 8 --range 0:256",
        "M6",
    ),
    "M6-earlier-tokens-triton": triton(
        "other[None, :, :] < token[:, None, :]",
        "other[None, :, :] <= token[:, None, :]",
        f"{POINTS} permute-shared --tile 8 --range 0:256",
        "M6",
    ),
    "M7-padding-not-written-cute": cute(
        "first + hits + lane, end, PAD_STORES",
        "first + hits + lane, end - 1, PAD_STORES",
        f"{POINTS} permute-natural --tile 4 --range 0:256",
        "M7",
    ),
    "M7-padding-not-written-triton": triton(
        "fill(metadata + PERMUTED_TO_TOKEN, padded)",
        "fill(metadata + PERMUTED_TO_TOKEN, padded - 4)",
        f"{POINTS} permute-natural --tile 4 --range 0:256",
        "M7",
    ),
    "M8-one-word-too-many-cute": cute(
        "META_PADDED_TOKENS, num_ctas * tile, num_ctas)",
        "META_PADDED_TOKENS, num_ctas * tile, num_ctas)\n"
        "                store(metadata.toint() + WORD * 2, num_ctas)",
        f"{POINTS} permute-natural --tile 3 --range 0:256",
        "M8",
    ),
    "missing-barrier-cute": cute(
        "        select(key, scored, thread, entries, picks, picked)\n        cute.arch.sync_threads()\n",
        "        select(key, scored, thread, entries, picks, picked)\n",
        f"{SELECTION} known-selection",
        "stopped by the simulator\n  race",
        ("SELECT_BARRIERS: Final = 3", "SELECT_BARRIERS: Final = 2"),
    ),
    "picks-read-before-they-arrive-cute": cute(
        "            wait_bytes(arrived)\n            permute(",
        "            permute(",
        f"{POINTS} permute-shared --tile 8 --range 0:256",
        "stopped by the simulator\n  race",
    ),
    "picks-sent-to-a-cta-that-has-not-started-cute": cute(
        "            there_arrived = in_cta(arrived, peer)\n            cluster_wait()\n",
        "            there_arrived = in_cta(arrived, peer)\n",
        f"{POINTS} permute-shared --tile 8 --range 0:256",
        "stopped by the simulator\n  absent CTA",
        ("        cluster_wait()\n        for _ in", "        for _ in"),
    ),
    "missing-barrier-triton": triton(
        "    tl.debug_barrier()\n",
        "",
        f"{POINTS} permute-shared --tile 8 --range 0:256",
        "stopped by the simulator\n  race",
    ),
    "a-store-before-the-wait-cute": cute(
        "        dependency_wait()\n        logit = load(start)\n",
        "        store(ids.toint() + WORD * Int64(thread & 7), Int32(0))\n"
        "        dependency_wait()\n        logit = load(start)\n",
        f"{SELECTION} ties",
        "stopped by the simulator\n  before the wait",
    ),
}  # fmt: skip


def copy_with(fault: Fault, folder: Path) -> None:
    """Copy the backend's package into ``folder`` and make the edits."""
    package = f"impl_{fault.backend}"
    shutil.copytree(REPOSITORY / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    source = folder / package / "kernel.py"
    text = source.read_text(encoding="utf-8")
    for old, new in fault.edits:
        assert text.count(old) == 1, f"{package}/kernel.py has {text.count(old)} times, not once:\n{old}"
        text = text.replace(old, new)
    source.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", FAULTS)
def test_the_planted_fault_is_caught(name, tmp_path):
    fault = FAULTS[name]
    copy_with(fault, tmp_path)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)]),
        "MUSESPARK_ROUTING_CACHE": str(tmp_path / "cache"),
    }
    command = ["-m", "oracle", "check", "--backend", fault.backend, "--jobs", "1", *fault.options.split()]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^MISMATCH {fault.backend} on sim: (.*, )?{fault.found}", done.stdout, re.MULTILINE), (
        done.stdout
    )
    assert "FAIL" in done.stdout
