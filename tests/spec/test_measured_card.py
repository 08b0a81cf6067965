"""The model of the special function unit against everything recorded from a card (A3-A7)."""

import csv
import lzma
from pathlib import Path

import numpy as np
import pytest

import spec
from spec.constants import COEFFICIENTS_FILE

RECORDED = Path(__file__).parents[1] / "data" / COEFFICIENTS_FILE.removesuffix(".csv")
ENTRIES = 1 << 23
CHECKSUMS = {
    int(row["top_byte"], 16): int(row["checksum"], 16)
    for row in csv.DictReader((RECORDED / "sigmoid_checksums.csv").read_text().splitlines())
}
# Zeros and subnormals; the curve from 1/8 to 128 on both sides, where EX2 leaves its range and the divisor is
# scaled; the flat ends; infinities and NaN.
ALWAYS = (0x00, 0x80, 0x3E, 0x3F, 0x40, 0x41, 0x42, 0x43, 0xBE, 0xBF, 0xC0, 0xC1, 0xC2, 0xC3, 0x7F, 0xFF)


def recorded(name: str) -> np.ndarray:
    raw = lzma.decompress((RECORDED / f"{name}.d2.xz").read_bytes())
    true_first, chain_first, second = np.frombuffer(raw, "<i8", count=3)
    bends = np.frombuffer(raw, np.int8, offset=24).astype(np.int64)
    assert len(bends) == ENTRIES - 2
    steps = np.cumsum(np.concatenate([[second - chain_first], bends]))
    results = np.concatenate([[true_first], chain_first + np.cumsum(steps)])
    return results.astype(np.uint32)


@pytest.mark.parametrize(
    ("name", "function", "argument"),
    [
        pytest.param("rcp", spec.rcp_approx, lambda m: 1 + m, id="A6-rcp-of-every-mantissa"),
        pytest.param("ex2_pos", spec.ex2_approx_ftz, lambda m: m, id="A5-ex2-of-every-positive-fraction"),
        pytest.param("ex2_neg", spec.ex2_approx_ftz, lambda m: -m, id="A5-ex2-of-every-negative-fraction"),
    ],
)
def test_the_model_rebuilds_the_recorded_table(name, function, argument):
    expected = recorded(name)
    for start in range(0, ENTRIES, 1 << 20):
        m = np.arange(start, start + (1 << 20), dtype=np.float64) / ENTRIES
        actual = function(argument(m).astype(np.float32)).view(np.uint32)
        np.testing.assert_array_equal(actual, expected[start : start + (1 << 20)])


def mix(z: np.ndarray) -> np.ndarray:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def test_the_checksums_cover_every_top_byte():
    assert sorted(CHECKSUMS) == list(range(256))


@pytest.mark.parametrize(
    "top",
    [pytest.param(t, id=f"A7-{t:02x}", marks=[] if t in ALWAYS else pytest.mark.slow) for t in range(256)],
)
def test_the_sigmoid_of_all_floats_of_one_top_byte(top):
    chunk = 1 << 15
    total = 0
    for start in range(top << 24, (top + 1) << 24, chunk):
        x = np.arange(start, start + chunk, dtype=np.int64).astype(np.uint32)
        y = spec.sigmoid(x.view(np.float32)).view(np.uint32)
        total += int(mix((x.astype(np.uint64) << np.uint64(32)) | y).sum(dtype=np.uint64))
    assert f"{total % 2**64:016x}" == f"{CHECKSUMS[top]:016x}"
