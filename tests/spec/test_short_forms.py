"""A4 and A7 without their branches, as kernels compute them where a branch cannot matter: the same bits."""

import numpy as np
import pytest

import spec
from spec.arithmetic import NEG_LOG2E

SIGNS = np.array([0, 0x80000000], np.uint32)
EXPONENTS = np.arange(256, dtype=np.uint32) << 23
SEGMENTS = np.arange(128, dtype=np.uint32) << 16
"""The finer of the two tables: EX2's 64 segments start at every other one."""


def strata(random: int) -> np.ndarray:
    """Every sign, exponent and segment: both ends of it, and ``random`` fractions in it."""
    rng = np.random.default_rng(7)
    shape = (len(SIGNS), len(EXPONENTS), len(SEGMENTS), random)
    within = rng.integers(0, 1 << 16, shape, np.uint32)
    within[..., :2] = 0, 0xFFFF
    words = SIGNS[:, None, None, None] | EXPONENTS[:, None, None] | SEGMENTS[:, None] | within
    return words.reshape(-1).view(np.float32)


def powers(random: int) -> np.ndarray:
    """Logits whose power of two meets every segment of EX2, and every step of the exponent down to none."""
    steps = np.arange(-160, 161, dtype=np.float64)[:, None, None]
    rng = np.random.default_rng(8)
    fractions = (np.arange(64)[:, None] + rng.random((321, 64, random))) / 64
    return ((steps + fractions) / -np.log2(np.e)).astype(np.float32).reshape(-1)


def short_sigmoid(x: np.ndarray, part: float = 0.25) -> np.ndarray:
    total = spec.add_rn(spec.ex2_approx_ftz(spec.mul_rn(x, NEG_LOG2E)), 1.0)
    return spec.mul_rn(spec.rcp_approx(spec.mul_rn(total, part)), part)


def differing(got: np.ndarray, want: np.ndarray) -> int:
    return int(np.count_nonzero(got.view(np.uint32) != want.view(np.uint32)))


def near(*values: float) -> np.ndarray:
    """The 2^15 floats on either side of each value."""
    at = np.array(values, np.float32).view(np.int32)[:, None] + np.arange(-(1 << 15), 1 << 15, dtype=np.int32)
    return at.reshape(-1).view(np.float32)


A7_SAMPLES = {
    "every-sign-exponent-and-segment": lambda: strata(24),
    "every-power-of-two": lambda: powers(64),
    # The sum passes 2^126, 2^127 and infinity; the power passes 2^-126, 2^-149 and the last place of 1.
    "the-edges-of-the-branches": lambda: near(-87.3365, -88.0297, -88.7228, 87.3365, 103.28, 16.6355),
    "infinities-and-nan": lambda: np.array(
        [0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], np.uint32
    ).view(np.float32),
    "zeros-and-subnormals": lambda: (
        (SIGNS[:, None] | np.arange(0, 1 << 23, 61, dtype=np.uint32)).reshape(-1).view(np.float32)
    ),
}


@pytest.mark.parametrize("sample", A7_SAMPLES.values(), ids=[f"A7-{name}" for name in A7_SAMPLES])
def test_the_sigmoid_of_quarters_has_the_bits_of_a7(sample):
    x = sample()
    assert differing(short_sigmoid(x), spec.sigmoid(x)) == 0


@pytest.mark.parametrize("part", [1.0, 0.5, 0.125], ids=["A7-all-of-it", "A7-a-half", "A7-an-eighth"])
def test_the_sigmoid_of_another_part_has_other_bits_or_none_to_gain(part):
    # Beyond 2^127 a half is out of A6's reach; a smaller part than a quarter would be as right.
    x = near(-88.4)
    assert (differing(short_sigmoid(x, part), spec.sigmoid(x)) > 0) == (part > 0.25)


def test_a4_is_a_product_with_a6_for_every_sum_of_eight_scores():
    # R5: from no score at all, the epsilon alone, to eight of 1; every exponent and segment of A6 between.
    first, last = (int(np.float32(x).view(np.uint32)) for x in (1e-15, 9))
    total = np.arange(first, last, 251, dtype=np.uint32).view(np.float32)
    scales = np.resize(strata(3), total.size)
    np.random.default_rng(9).shuffle(scales)
    assert differing(spec.mul_rn(spec.rcp_approx(total), scales), spec.div_full(scales, total)) == 0
    nan = np.full(4, np.nan, np.float32)
    assert differing(spec.mul_rn(spec.rcp_approx(nan), scales[:4]), spec.div_full(scales[:4], nan)) == 0
