"""A1-A8: float32 arithmetic as sm_90 does it, bit for bit, on arrays of any shape.

Every function takes float32 arrays (or Python numbers, which are rounded to float32), broadcasts them, and
returns a new float32 array, 0-d included. Rounding is to nearest even, subnormals are kept, and a NaN result
is 0x7fffffff whatever NaN went in (A8). No NumPy warning escapes, whatever the caller's `numpy.seterr`.

The special function unit (A5, A6) is modelled in integers, one quadratic per segment. A table of all 2^23
results was measured as no faster at 8k elements (it misses the caches) and would cost a process 64 MB.
"""

import csv
from collections.abc import Callable
from functools import wraps
from importlib import resources
from typing import Final, ParamSpec

import numpy as np
import numpy.typing as npt

from spec.constants import COEFFICIENTS_FILE, NAN_BITS, NEG_LOG2E_BITS

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
_P = ParamSpec("_P")

_FRACTION: Final = 0x007FFFFF
_EXPONENT: Final = 0x7F800000
_MAGNITUDE: Final = 0x7FFFFFFF
_SIGN: Final = -0x80000000
_LEAST_NORMAL: Final = 0x00800000
_ONE: Final = 0x3F800000
_TWO_TO_126: Final = 0x7E800000
_ODD: Final = np.int64(1)
NEG_LOG2E: Final = np.array(NEG_LOG2E_BITS, np.uint32).view(np.float32)
"""A7: -log2(e), a 0-d float32 array."""


def _quiet(function: Callable[_P, F32]) -> Callable[_P, F32]:
    """Let no floating-point warning or error of NumPy out of ``function``."""

    @wraps(function)
    def quiet(*args: _P.args, **kwargs: _P.kwargs) -> F32:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return quiet


def _float32(x: npt.ArrayLike) -> F32:
    """Return ``x`` as a float32 array; another dtype is refused, since rounding it would hide a mistake."""
    if isinstance(x, np.ndarray):
        if x.dtype != np.float32:
            raise TypeError(f"an array must be float32, not {x.dtype}")
        return x
    return np.asarray(x, np.float32)


def canonical_nan(result: npt.ArrayLike) -> F32:
    """A8: replace every NaN of a fresh ``result`` by 0x7fffffff, in place where it is an array."""
    r: F32 = np.asarray(result)
    nan = np.isnan(r)
    if np.count_nonzero(nan):
        r.view(np.int32)[nan] = NAN_BITS
    return r


def _operands(*xs: npt.ArrayLike) -> tuple[tuple[int, ...], list[F32]]:
    """Return the broadcast shape, and each operand flat, of as many elements or of one."""
    arrays = [_float32(x) for x in xs]
    shape = arrays[0].shape
    if any(a.shape != shape for a in arrays):
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        arrays = [a if a.shape == shape or a.size == 1 else np.broadcast_to(a, shape) for a in arrays]
    return shape, [a.reshape(-1) for a in arrays]


@_quiet
def mul_rn(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """A1, ``mul.rn.f32``: the IEEE 754 product."""
    return canonical_nan(np.multiply(_float32(a), _float32(b)))


@_quiet
def add_rn(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """A2, ``add.rn.f32``: the IEEE 754 sum."""
    return canonical_nan(np.add(_float32(a), _float32(b)))


@_quiet
def fma_rn(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F32:
    """``fma.rn.f32``: ``a * b + c`` rounded once.

    The product of two float32 is exact in float64. Its sum with ``c`` is rounded to odd there, so that the
    second rounding, to float32, sees on which side of every tie the exact sum lies.
    """
    shape, (fa, fb, fc) = _operands(a, b, c)
    product = fa.astype(np.float64) * fb
    addend = fc.astype(np.float64)
    total = product + addend
    from_addend = total - product
    lost = (product - (total - from_addend)) + (addend - from_addend)
    bits = total.view(np.int64)
    # A total of infinity or NaN has lost NaN, which no comparison selects.
    inexact_even = (np.abs(lost) > 0) & ((bits & 1) == 0)
    if np.count_nonzero(inexact_even):
        outward = np.signbit(lost) == np.signbit(total)
        bits += inexact_even * np.where(outward, _ODD, -_ODD)
    return canonical_nan(total.astype(np.float32)).reshape(shape)


@_quiet
def ex2_approx(x: npt.ArrayLike) -> F32:
    """A3, ``ex2.approx.f32``: two to the ``x``, results below 2^-126 included."""
    wide = _float32(x)
    fx = wide.reshape(-1)
    far = fx < -126.0
    if not np.count_nonzero(far):
        return _ex2(fx).reshape(wide.shape)
    result = _ex2(np.where(far, fx * np.float32(0.5), fx))
    np.multiply(result, result, out=result, where=far)
    return result.reshape(wide.shape)


@_quiet
def ex2_approx_ftz(x: npt.ArrayLike) -> F32:
    """A5, ``ex2.approx.ftz.f32``, the unit's EX2: a subnormal ``x`` is 0, a result below 2^-126 is +0."""
    wide = _float32(x)
    return _ex2(wide.reshape(-1)).reshape(wide.shape)


@_quiet
def rcp_approx(x: npt.ArrayLike) -> F32:
    """A6, ``rcp.approx.ftz.f32``, the unit's RCP: a subnormal ``x`` is 0, and so is a subnormal result."""
    wide = _float32(x)
    return _rcp(wide.reshape(-1)).reshape(wide.shape)


@_quiet
def div_full(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """A4, ``div.full.f32``: ``a`` times the unit's reciprocal of ``b``, both scaled if ``b`` is extreme."""
    shape, (fa, fb) = _operands(a, b)
    if np.count_nonzero(_beyond_rcp(fb)):
        magnitude = np.abs(fb)
        factor = np.ones_like(fb)
        factor[magnitude > np.float32(2.0**126)] = 0.25
        factor[magnitude < np.float32(2.0**-126)] = 2.0**24
        fa, fb = fa * factor, fb * factor
    return canonical_nan(_rcp(fb) * fa).reshape(shape)


def sigmoid(x: npt.ArrayLike) -> F32:
    """A7 and R1: the score of a logit, ``1 / (1 + 2^(-x log2 e))`` through A1-A4."""
    return div_full(1.0, add_rn(ex2_approx(mul_rn(x, NEG_LOG2E)), 1.0))


def _folded_squares() -> I64:
    """Return sq(z) for every z of 15 bits: the partial products of z*z without the columns below 2^15."""
    z = np.arange(1 << 15)
    bit = [(z >> i) & 1 for i in range(15)]
    diagonal = sum(bit[i] << (2 * i - 15) for i in range(8, 15))
    pairs = sum((bit[i] & bit[j]) << (i + j - 14) for j in range(15) for i in range(j) if i + j >= 14)
    return np.asarray(diagonal + pairs, np.int64)


_SQUARES: Final = _folded_squares()


def _coefficients(function: str, bias: int, origin: int) -> tuple[I64, I64, I64]:
    """Return C0 * 2^13 + bias + origin * 2^15, C1 and C2 of each segment of ``function``."""
    with (resources.files("spec") / "data" / COEFFICIENTS_FILE).open() as file:
        rows = [row for row in csv.DictReader(file) if row["function"] == function]
    c0, c1, c2 = (np.array([int(row[name]) for row in rows], np.int64) for name in ("c0", "c1", "c2"))
    return (c0 << 13) + bias + (origin << 15), c1, c2


# The bits to which y is added enter with the constant term: 0x3f800000 for EX2, and for RCP 0x3f000000 with
# the 127 * 2^23 that turn a subtracted exponent field into a negated exponent, together 0x7e800000.
_EX2_COEFFICIENTS: Final = _coefficients("ex2", 6114, _ONE)
_RCP_COEFFICIENTS: Final = _coefficients("rcp", 2023, _TWO_TO_126)


def _interpolate(coefficients: tuple[I64, I64, I64], fraction: I32, shift: int) -> I32:
    """Return ``origin + ((C0*2^13 + bias + C1*k + C2*sq(z)) >> 15)`` at ``fraction``, 23 bits.

    The low ``shift`` bits of the fraction are k, the bits above name the segment, and z is k's upper 15 bits.
    """
    c0, c1, c2 = coefficients
    k = fraction.astype(np.int64)
    segment = k >> shift
    k &= (1 << shift) - 1
    y = c1.take(segment)
    y *= k
    square = _SQUARES.take(k >> (shift - 15))
    square *= c2.take(segment)
    y += square
    y += c0.take(segment)
    y >>= 15
    return y.astype(np.int32)


def _ex2(x: F32) -> F32:
    """A5 on a flat array."""
    # The fraction is 0 at both ends, so what is clipped becomes infinity or zero by the same sums.
    fixed = (x.clip(-127.0, 128.0) * np.float32(2.0**23)).astype(np.int32)
    fixed -= (x < 0) & ((fixed & _FRACTION) != 0)
    bits = _interpolate(_EX2_COEFFICIENTS, fixed & _FRACTION, 17)
    bits += fixed & ~_FRACTION
    below = bits < _LEAST_NORMAL
    if np.count_nonzero(below):
        bits[below] = 0
    nan = np.isnan(x)
    if np.count_nonzero(nan):
        bits[nan] = NAN_BITS
    return bits.view(np.float32)


def _beyond_rcp(x: F32) -> npt.NDArray[np.bool_]:
    """Return where |x| is outside 2^-126 .. 2^126, NaN included: only there is RCP no plain interpolation."""
    magnitude = (x.view(np.int32) & _MAGNITUDE).view(np.uint32)
    magnitude -= np.uint32(_LEAST_NORMAL)
    return magnitude > np.uint32(_TWO_TO_126 - _LEAST_NORMAL)


def _rcp(x: F32) -> F32:
    """A6 on a flat array."""
    word = x.view(np.int32)
    bits = _interpolate(_RCP_COEFFICIENTS, word & _FRACTION, 16)
    bits -= word & _EXPONENT
    sign = word & _SIGN
    beyond = _beyond_rcp(x)
    if np.count_nonzero(beyond):
        bits[beyond & (bits < _LEAST_NORMAL)] = 0
        bits[(word & _EXPONENT) == 0] = _EXPONENT
        bits |= sign
        bits[np.isnan(x)] = NAN_BITS
        return bits.view(np.float32)
    bits |= sign
    return bits.view(np.float32)
