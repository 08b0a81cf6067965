import numpy as np
import pytest

import oracle.backends.triton as adapter
from oracle import backends
from oracle.artifacts import artifact
from oracle.problem import Batch, Outputs, Ranges

PROBLEMS = 24


def batch_of(tokens, renormalize, metadata, tiles=(1, 2, 3, 7, 8, 64, 255, 256)):
    """Problems with ties, NaN, infinities and masks, shared experts, strided rows, every kind of range."""
    rng = np.random.default_rng(tokens)
    logits = rng.normal(0, 3, (PROBLEMS, tokens, 256)).astype(np.float32)
    bias = rng.normal(0, 0.1, (PROBLEMS, 256)).astype(np.float32)
    logits[0::4] = np.round(logits[0::4])  # ties
    bias[0::4] = 0
    bits = rng.integers(0, 1 << 32, logits[1::4].shape, np.uint32)
    logits[1::4] = bits.view(np.float32)
    bias[2::4][:, 5:] = -np.inf  # fewer than eight finite keys
    logits[3::4] = logits[3::4, :1]  # all tokens pick the same experts
    scale = rng.choice(np.array([1, -2.5, np.inf, np.nan, 0], np.float32), PROBLEMS)
    stride = rng.choice(np.array([256, 260, 4096, 1 << 33]), PROBLEMS)
    ranges = None
    if metadata:
        first = rng.choice([0, 0, 3, 128, 255], PROBLEMS)
        count = np.minimum(rng.choice([1, 32, 128, 256], PROBLEMS), 256 - first)
        tile = np.resize(tiles, PROBLEMS)
        ranges = Ranges(first.astype(np.int32), count.astype(np.int32), tile.astype(np.int32))
    return Batch("mixed", logits, bias, scale, renormalize, stride.astype(np.int64), ranges)


def words(outputs):
    """All output bits, as integers."""
    written = [outputs.ids, outputs.weights.view(np.int32)]
    return written if outputs.metadata is None else [*written, outputs.metadata]


def assert_as_specified(batch):
    expected, actual = Outputs.poisoned(batch), Outputs.poisoned(batch)
    backends.get("spec").run(batch, expected, "cpu")
    backends.get("triton").run(batch, actual, "sim")
    for want, got in zip(words(expected), words(actual), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("tokens", range(1, 9), ids=lambda tokens: f"b{tokens}")
@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
@pytest.mark.parametrize("renormalize", [False, True], ids=["raw", "renormalize"])
def test_r1_to_m8_the_kernel_in_the_simulator_writes_what_is_specified(tokens, metadata, renormalize):
    assert_as_specified(batch_of(tokens, renormalize, metadata))


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a", "sm_120a"])
@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_r1_to_m8_the_ptx_of_a_newer_architecture_computes_the_same(monkeypatch, arch, metadata):
    monkeypatch.setattr(
        adapter, "artifact", lambda name, *variant, **early: artifact(name, *variant, arch, **early)
    )
    assert_as_specified(batch_of(8, True, metadata))
