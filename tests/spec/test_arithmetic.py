"""A1-A8 on chosen bits: special values, the edges of every branch, arrays and NumPy's settings."""

import warnings

import numpy as np
import pytest

import spec

INF, NAN = 0x7F800000, 0x7FFFFFFF
NEG_INF, NEG_ZERO = 0xFF800000, 0x80000000
FUNCTIONS = {
    "mul_rn": 2,
    "add_rn": 2,
    "fma_rn": 3,
    "ex2_approx": 1,
    "ex2_approx_ftz": 1,
    "rcp_approx": 1,
    "div_full": 2,
    "sigmoid": 1,
}


def floats(*bits: int) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


def bits_of(function: str, *operands: int) -> int:
    result = getattr(spec, function)(*(floats(x) for x in operands))
    assert result.dtype == np.float32
    return int(result.view(np.uint32)[0])


CASES = {
    # A1
    "A1-subnormal-product-is-kept": ("mul_rn", (0x00800000, 0x3F000000), 0x00400000),
    "A1-tie-goes-to-even": ("mul_rn", (0x3F800001, 0x3FC00000), 0x3FC00002),
    "A1-zero-times-infinity": ("mul_rn", (NEG_ZERO, INF), NAN),
    "A1-overflow": ("mul_rn", (0x7F7FFFFF, 0xC0000000), NEG_INF),
    # A2
    "A2-opposites-give-plus-zero": ("add_rn", (0x3F800000, 0xBF800000), 0),
    "A2-minus-zeros-stay": ("add_rn", (NEG_ZERO, NEG_ZERO), NEG_ZERO),
    "A2-infinities-cancel-to-nan": ("add_rn", (INF, NEG_INF), NAN),
    "A2-tie-goes-to-even": ("add_rn", (0x3F800001, 0x33800000), 0x3F800002),
    # fma: 257 * 65281/2^24 is 1 + 2^-24, a tie of float32, and 1549 * 10831/2^24 is 1 + 3 * 2^-24, another;
    # float64 cannot see the subnormal that breaks them.
    "fma-tie-broken-upward-by-a-subnormal": ("fma_rn", (0x43808000, 0x3B7F0100, 0x00000001), 0x3F800001),
    "fma-tie-broken-downward-by-a-subnormal": ("fma_rn", (0x44C1A000, 0x3A293C00, 0x80000001), 0x3F800001),
    "fma-tie-left-alone-goes-to-even": ("fma_rn", (0x44C1A000, 0x3A293C00, 0), 0x3F800002),
    "fma-exact-cancellation-is-plus-zero": ("fma_rn", (0x40000000, 0x40000000, 0xC0800000), 0),
    "fma-keeps-the-residue-of-a-product": ("fma_rn", (0x3F800001, 0x3F800001, 0xBF800002), 0x28800000),
    "fma-minus-zero": ("fma_rn", (NEG_ZERO, 0x3F800000, NEG_ZERO), NEG_ZERO),
    "fma-a-huge-product-comes-back": ("fma_rn", (0x7F7FFFFF, 0x40000000, 0xFF7FFFFF), 0x7F7FFFFF),
    "fma-infinite-product-less-infinity": ("fma_rn", (INF, 0x3F800000, NEG_INF), NAN),
    # A3: below -126 the unit sees half the argument and the result is squared
    "A3-the-last-argument-that-is-not-halved": ("ex2_approx", (0xC2FC0000,), 0x00800000),
    "A3-the-smallest-subnormal": ("ex2_approx", (0xC3150000,), 0x00000001),
    "A3-below-every-subnormal": ("ex2_approx", (0xC3160001,), 0),
    "A3-minus-infinity": ("ex2_approx", (NEG_INF,), 0),
    "A3-infinity": ("ex2_approx", (INF,), INF),
    "A3-zero": ("ex2_approx", (NEG_ZERO,), 0x3F800000),
    # A4
    "A4-a-quotient-of-exactly-0.625-is-one-place-off": ("div_full", (0x40960000, 0x40F00000), 0x3F200001),
    "A4-largest-divisor-not-scaled": ("div_full", (0x3F800000, 0x7E800000), 0x00800000),
    "A4-scaled-divisor-keeps-a-subnormal-quotient": ("div_full", (0x3F800000, 0x7F000000), 0x00400000),
    "A4-scaling-loses-the-last-bit-of-a-subnormal": ("div_full", (0x00000001, 0x7F000000), 0),
    "A4-subnormal-divisor": ("div_full", (0x00000002, 0x00000001), 0x40000000),
    "A4-subnormal-divisor-overflows": ("div_full", (0x3F800000, 0x00000001), INF),
    "A4-zero-by-zero": ("div_full", (0, 0), NAN),
    "A4-one-by-minus-zero": ("div_full", (0x3F800000, NEG_ZERO), NEG_INF),
    "A4-infinity-by-infinity": ("div_full", (INF, INF), NAN),
    "A4-one-by-minus-infinity": ("div_full", (0x3F800000, NEG_INF), NEG_ZERO),
    # A5
    "A5-integer-argument": ("ex2_approx_ftz", (0x40400000,), 0x41000000),
    "A5-negative-integer-argument": ("ex2_approx_ftz", (0xC0400000,), 0x3E000000),
    "A5-subnormal-counts-as-zero": ("ex2_approx_ftz", (0x807FFFFF,), 0x3F800000),
    "A5-bits-below-the-fixed-point-are-dropped": ("ex2_approx_ftz", (0xB3FFFFFF,), 0x3F800000),
    "A5-128-is-infinity": ("ex2_approx_ftz", (0x43000000,), INF),
    "A5-minus-126-is-the-least-normal": ("ex2_approx_ftz", (0xC2FC0000,), 0x00800000),
    "A5-below-minus-126-is-plus-zero": ("ex2_approx_ftz", (0xC2FC0001,), 0),
    "A5-minus-infinity": ("ex2_approx_ftz", (NEG_INF,), 0),
    # A6
    "A6-one": ("rcp_approx", (0x3F800000,), 0x3F800000),
    "A6-minus-four": ("rcp_approx", (0xC0800000,), 0xBE800000),
    "A6-subnormal-gives-infinity": ("rcp_approx", (0x807FFFFF,), NEG_INF),
    "A6-zero": ("rcp_approx", (NEG_ZERO,), NEG_INF),
    "A6-infinity": ("rcp_approx", (NEG_INF,), NEG_ZERO),
    "A6-two-to-126-is-normal": ("rcp_approx", (0x7E800000,), 0x00800000),
    "A6-subnormal-result-is-zero": ("rcp_approx", (0xFE800001,), NEG_ZERO),
    "A6-least-normal": ("rcp_approx", (0x00800000,), 0x7E800000),
    # A7
    "A7-zero-is-exactly-a-half": ("sigmoid", (0,), 0x3F000000),
    "A7-infinity": ("sigmoid", (INF,), 0x3F800000),
    "A7-minus-infinity": ("sigmoid", (NEG_INF,), 0),
}


@pytest.mark.parametrize(("function", "operands", "expected"), CASES.values(), ids=CASES.keys())
def test_chosen_bits(function, operands, expected):
    assert f"{bits_of(function, *operands):08x}" == f"{expected:08x}"


def test_a7_constant_is_minus_log2_e_in_float32():
    assert int(np.float32(-1.4426950408889634).view(np.uint32)) == spec.NEG_LOG2E_BITS


@pytest.mark.parametrize("nan", [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC12345])
@pytest.mark.parametrize(("function", "arity"), FUNCTIONS.items(), ids=[f"A8-{name}" for name in FUNCTIONS])
def test_every_nan_comes_out_as_7fffffff(function, arity, nan):
    for position in range(arity):
        operands = [0x3F800000] * arity
        operands[position] = nan
        assert bits_of(function, *operands) == spec.NAN_BITS


@pytest.mark.parametrize(("function", "arity"), FUNCTIONS.items(), ids=FUNCTIONS)
class TestArrays:
    # Every branch is taken by some element: zeros, subnormals, both ends, infinities, NaN of two kinds.
    MIXED = floats(0, NEG_ZERO, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, INF, NEG_INF, 0x7F800001,
                   0xFFC00001, 0xC2FD0000, 0xC3800000, 0x43000000, 0x7E800001, 0xC0490FDB)  # fmt: skip

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 8), (2, 2, 4)], ids=str)
    def test_shape_and_dtype_are_kept(self, function, arity, shape):
        operands = [np.resize(self.MIXED, shape).astype(np.float32) for _ in range(arity)]
        result = getattr(spec, function)(*operands)
        assert isinstance(result, np.ndarray)
        assert (result.shape, result.dtype) == (shape, np.float32)

    def test_strided_operands_give_what_contiguous_ones_do(self, function, arity):
        wide = np.stack([self.MIXED, np.full_like(self.MIXED, 9.0)], axis=1)
        strided = [wide[::-1, 0]] * arity
        expected = getattr(spec, function)(*(x.copy() for x in strided))
        np.testing.assert_array_equal(
            getattr(spec, function)(*strided).view(np.uint32), expected.view(np.uint32)
        )

    def test_operands_broadcast_and_stay_as_they_were(self, function, arity):
        operands = [self.MIXED.copy(), self.MIXED[:4, None].copy(), floats(0x3F800000)][:arity]
        before = [x.copy() for x in operands]
        result = getattr(spec, function)(*operands)
        assert result.shape == np.broadcast_shapes(*(x.shape for x in operands))
        full = [np.broadcast_to(x, result.shape).copy() for x in operands]
        np.testing.assert_array_equal(result.view(np.uint32), getattr(spec, function)(*full).view(np.uint32))
        for now, then in zip(operands, before, strict=True):
            np.testing.assert_array_equal(now.view(np.uint32), then.view(np.uint32))

    def test_no_warning_or_error_of_numpy_escapes(self, function, arity):
        operands = np.meshgrid(*[self.MIXED] * arity)
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            assert getattr(spec, function)(*operands).size == len(self.MIXED) ** arity
            assert np.geterr()["invalid"] == "raise"

    def test_another_dtype_is_refused(self, function, arity):
        with pytest.raises(TypeError, match="must be float32, not float64"):
            getattr(spec, function)(*[np.ones(2)] * arity)
