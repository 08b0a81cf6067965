"""The published kernels, in the simulator and on the card; the header of the run says which are here."""

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from oracle.backends import flashinfer
from oracle.check import execute
from oracle.outcome import ChunkResult
from oracle.peers import find
from oracle.peers.flashinfer import CALL, driver
from oracle.plan import Plan, RangeChoice, Target

RANGES = RangeChoice(((0, 256), (64, 64), (37, 101), (255, 1)))

DEVICES = ["sim", pytest.param("cuda", marks=pytest.mark.card)]


def needs(name: str) -> pytest.MarkDecorator:
    """Leave a test out where nobody asked for the kernel and it is not installed, as the header says."""
    absent = find.VARIABLE not in os.environ and find.missing(name) is not None
    return pytest.mark.skipif(absent, reason=f"published kernel {name} is missing, as the header says")


needs_flashinfer, needs_vllm = needs("flashinfer"), needs("vllm")


def answered(plan: Plan) -> Iterator[ChunkResult]:
    for chunk in plan.chunks():
        yield execute(chunk)


def mismatches(plan: Plan) -> tuple[int, int]:
    """Problems answered, and words that differ from what is right for the kernel."""
    tallies = [tally for result in answered(plan) for tally in result.tallies.values()]
    return sum(tally.launches for tally in tallies), sum(tally.mismatches for tally in tallies)


@needs_flashinfer
@pytest.mark.parametrize("name", ["flashinfer", "flashinfer-logits"])
@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("device", DEVICES)
def test_m1_to_m8_flashinfer_writes_the_metadata_of_the_specification(name: str, tokens: int, device: str):
    tiles = (1, 3, 8, 64, 192, 256)
    families = ("permute-mixed", "permute-shared", "permute-natural", "permute-edges")
    plan = Plan((Target(name, device),), families, batch=(tokens,), tile=tiles, ranges=RANGES)
    assert mismatches(plan) == (len(tiles) * RANGES.number, 0)


@needs_flashinfer
@pytest.mark.parametrize("device", DEVICES)
def test_r3_flashinfer_picks_as_the_specification_where_keys_are_apart(device: str):
    families = ("random-scales", "ties", "near-ties", "saturated", "masked")
    plan = Plan((Target("flashinfer-logits", device),), families, batch=(3,), count=8)
    assert mismatches(plan) == (8 * len(families), 0)


@needs_flashinfer
def test_flashinfers_own_host_code_fills_the_parameters():
    calls = np.zeros(2, CALL)
    calls["ids"], calls["tokens"], calls["tile"] = 0x123456789A, 5, (8, 12)
    packed = driver().pack(calls)
    assert packed.shape[0] == 2
    assert np.array([0x123456789A], np.uint64).tobytes() in packed[0].tobytes()
    # mUsePdl and mIsPow2 lead the struct.
    assert packed[:, :2].tolist() == [[1, 1], [1, 0]]


@needs_flashinfer
def test_a_fault_in_flashinfers_kernel_is_seen(monkeypatch: pytest.MonkeyPatch):
    def wrong(*arguments: object) -> dict[str, np.ndarray]:
        buffers = allocate(*arguments)
        buffers["ids"][:, 0] = buffers["ids"][:, 0, ::-1].copy()
        return buffers

    allocate = flashinfer.allocate
    monkeypatch.setattr(flashinfer, "allocate", wrong)
    plan = Plan((Target("flashinfer", "sim"),), ("permute-all-local",), (2,), (8,), RangeChoice(((0, 256),)))
    assert mismatches(plan)[1] > 0


@needs_vllm
@pytest.mark.parametrize(
    "family",
    ["random-scales", "ties", "near-scores", "masked", "nan", "small-totals", "scale-values", "exact"],
)
@pytest.mark.parametrize("device", DEVICES)
def test_r1_to_r6_vllm_picks_and_weighs_as_the_specification(family: str, device: str):
    plan = Plan((Target("vllm", device),), (family,), batch=(1, 4), count=16)
    assert mismatches(plan) == (8, 0)


@needs_vllm
def test_vllm_compiles_without_torch():
    code = "import sys; from oracle.peers import vllm; vllm.kernel(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
