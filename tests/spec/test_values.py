"""Numbers of callers: integers without bools, and the scale rounded to float32 once."""

from fractions import Fraction

import numpy as np
import pytest

from spec.values import as_integer, round_scale, shown

TIE = 1 + Fraction(1, 2**24)  # half-way between 1 and the next float32


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        pytest.param(1, 1.0, id="int"),
        pytest.param(TIE, 1.0, id="tie-to-even"),
        pytest.param(TIE + Fraction(1, 2**80), 1 + 2.0**-23, id="just-above-a-tie-that-a-double-cannot-see"),
        pytest.param(TIE + Fraction(2**57 - 1, 2**80), 1 + 2.0**-23, id="just-below-the-next-tie"),
        pytest.param(-(TIE + Fraction(1, 2**80)), -1 - 2.0**-23, id="just-below-a-negative-tie"),
        pytest.param(2**60 + 2**36 + 1, 2.0**60 + 2.0**37, id="int-just-above-a-tie"),
        pytest.param(np.int64(2**60 + 2**36 + 1), 2.0**60 + 2.0**37, id="numpy-int-just-above-a-tie"),
        pytest.param(np.longdouble(1) + np.longdouble(2) ** -24, 1.0, id="long-double-tie"),
        pytest.param(np.float16(0.1), float(np.float16(0.1)), id="float16"),
        pytest.param(np.float32(1.5), 1.5, id="float32"),
        pytest.param(Fraction(1, 10**400), 0.0, id="tiny-fraction"),
        pytest.param(10**400, float("inf"), id="huge-int"),
        pytest.param(-(10**400), float("-inf"), id="huge-negative-int"),
        pytest.param(Fraction(10**400, 3), float("inf"), id="huge-fraction"),
        pytest.param(3.4028235677973366e38, float("inf"), id="half-a-place-beyond-all"),
        pytest.param(3.4028235677973362e38, float(np.finfo(np.float32).max), id="less-than-half-a-place"),
        pytest.param(1e-46, 0.0, id="below-half-of-the-smallest"),
        pytest.param(float("-inf"), float("-inf"), id="minus-infinity"),
    ],
)
def test_r5_scale_is_rounded_once(scale, expected):
    rounded = round_scale(scale)
    assert type(rounded) is float
    assert rounded.hex() == expected.hex()


def test_r5_scale_may_be_nan():
    assert np.isnan(round_scale(float("nan")))


def test_a_real_that_cannot_be_converted_is_named():
    class Stubborn(Fraction):
        def __float__(self):
            raise RuntimeError("no")

    with pytest.raises(ValueError, match="scale must convert to float"):
        round_scale(Stubborn(1))


@pytest.mark.parametrize("value", [7, np.int8(7), np.uint64(7)], ids=lambda v: type(v).__name__)
def test_integers_of_any_kind_are_ints(value):
    assert type(as_integer("n", value)) is int
    assert as_integer("n", value) == 7


@pytest.mark.parametrize("value", [True, np.False_, 7.0, "7", None, Fraction(7)], ids=repr)
def test_anything_else_is_named(value):
    with pytest.raises(ValueError, match="n must be an integer"):
        as_integer("n", value)


def test_a_message_shows_any_value_in_few_characters():
    assert shown(10**5000) == "<int>"
    assert len(shown("x" * 1000)) < 110
    assert shown(8) == "8"
