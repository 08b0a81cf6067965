"""Operations that NumPy has no single function for, on arrays of any one shape, after the PTX ISA.

Arguments are unsigned or signed integer arrays (or scalars) of 2, 4 or 8 bytes, results of the stated type.
"""

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_BYTE_REVERSED: Final = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], np.uint8)
_BYTE_ONES: Final = np.array([i.bit_count() for i in range(256)], np.uint8)


def select(condition: Array, a: Array, b: Array) -> Array:
    """Return ``a`` where the condition holds, else ``b``."""
    if a.dtype.kind in "ui" and a.dtype == b.dtype:
        # By exclusive or, which takes the same time for any pattern of the condition.
        return np.asarray(((a ^ b) * condition) ^ b)
    if a.dtype == np.bool_:
        return np.asarray((a & condition) | (b & ~condition))
    return np.where(condition, a, b)


def _bits(a: Array) -> int:
    return 8 * a.dtype.itemsize


def multiply_high(a: Array, b: Array) -> Array:
    """High half of the product, in the operands' type."""
    size = a.dtype.itemsize
    if size < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * size}")
        return np.asarray(((a.astype(wide) * b.astype(wide)) >> wide.type(8 * size)).astype(a.dtype))
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = ua & mask, ua >> half, ub & mask, ub >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    high = a1 * b1 + (middle >> half) + ((a0 * b1 + (middle & mask)) >> half)
    if a.dtype.kind == "i":
        high = high - ub * (a < 0) - ua * (b < 0)
    return np.asarray(high.view(a.dtype))


def div(a: Array, b: Array) -> Array:
    """Quotient, rounded toward zero; the divisor is not zero."""
    if a.dtype.kind == "u":
        return np.asarray(a // b)
    magnitude = np.abs(a).view(f"u{a.dtype.itemsize}") // np.abs(b).view(f"u{b.dtype.itemsize}")
    signed: Array = magnitude.view(a.dtype)
    return np.where((a < 0) != (b < 0), -signed, signed)


def rem(a: Array, b: Array) -> Array:
    """Remainder, with the sign of the dividend."""
    return np.asarray(a - div(a, b) * b)


def absolute_difference(a: Array, b: Array) -> Array:
    """Return ``abs(a - b)``, as unsigned."""
    unsigned = f"u{a.dtype.itemsize}"
    larger, smaller = np.asarray(np.maximum(a, b)), np.asarray(np.minimum(a, b))
    return np.asarray(larger.view(unsigned) - smaller.view(unsigned))


def popc(a: Array) -> Array:
    """Count the one bits, as u32."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(a).astype(np.uint32)
    octets = np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, a.dtype.itemsize)
    return np.asarray(_BYTE_ONES[octets].sum(-1, dtype=np.uint32))


def clz(a: Array) -> Array:
    """Count the leading zero bits, as u32."""
    smeared = a
    for shift in (1, 2, 4, 8, 16, 32)[: 5 + (a.dtype.itemsize == 8)]:
        smeared = smeared | (smeared >> a.dtype.type(shift))
    return popc(~smeared)


def reverse_bits(a: Array) -> Array:
    """Bits in reverse order."""
    return _BYTE_REVERSED[np.ascontiguousarray(a.byteswap()).view(np.uint8)].view(a.dtype)


def find_bit(a: Array, shift: bool) -> Array:
    """Highest non-sign bit (bfind), or the shift that brings it to the top; 0xffffffff if there is none."""
    magnitude = a.view(f"u{a.dtype.itemsize}")
    if a.dtype.kind == "i":
        magnitude = np.where(a < 0, ~a, a).view(magnitude.dtype)
    leading = clz(magnitude)
    found = leading if shift else np.uint32(_bits(a) - 1) - leading
    return np.where(magnitude == 0, np.uint32(0xFFFFFFFF), found)


def funnel_shift(a: Array, b: Array, c: Array, side: str, mode: str) -> Array:
    """High half of b:a shifted left, or low half of it shifted right, by c modulo 32 or at most 32."""
    amount = (c & np.uint32(31) if mode == "wrap" else np.minimum(c, np.uint32(32))).astype(np.uint64)
    both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    shifted = (both << amount) >> np.uint64(32) if side == "l" else both >> amount
    return shifted.astype(np.uint32)


def _field_number(number: Array, width: int) -> Array:
    """Position or length of a bit field: 32-bit fields read its low 8 bits.

    The PTX ISA says so of 64-bit fields too; sm_90 builds those of shifts, which read all 32 bits and clamp.
    """
    return np.asarray(number & np.uint32(255) if width == 32 else number)


def extract_field(a: Array, b: Array, c: Array) -> Array:
    """Bit field (bfe) at position b, of length c."""
    width = _bits(a)
    kind = np.dtype(f"u{a.dtype.itemsize}")
    position = _field_number(b, width).astype(kind)
    length = np.minimum(_field_number(c, width), np.uint32(width)).astype(kind)
    unsigned = a.view(kind)
    inside = np.minimum(length, kind.type(width) - np.minimum(position, kind.type(width)))
    mask = ~(~kind.type(0) << inside)
    value = (unsigned >> position) & mask
    if a.dtype.kind == "u":
        return np.asarray(value)
    last = np.minimum(position + length - kind.type(1), kind.type(width - 1))
    sign = (unsigned >> last) & kind.type(1) & (length != 0)
    return np.asarray((value | (~mask * sign)).view(a.dtype))


def make_mask(a: Array, b: Array, mode: str) -> Array:
    """``bmsk``: b ones from position a on."""
    position, width = (x & 31 if mode == "wrap" else np.minimum(x, 32) for x in (a, b))
    wide = (np.uint64(1) << width.astype(np.uint64)) - np.uint64(1)
    return (wide << position.astype(np.uint64)).astype(np.uint32)


def insert_field(a: Array, b: Array, c: Array, d: Array) -> Array:
    """B with the low d bits of a at position c (bfi)."""
    width = _bits(a)
    position = _field_number(c, width).astype(a.dtype)
    length = np.minimum(_field_number(d, width), np.uint32(width)).astype(a.dtype)
    mask = ~(~a.dtype.type(0) << length) << position
    return np.asarray((b & ~mask) | ((a << position) & mask))


def permute_bytes(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Four bytes of b:a (prmt); without a mode each nibble of c picks one, its top bit asks for the sign."""
    if mode == "" and a.ndim == b.ndim == 0 and c.ndim:
        return _permutations(int(a), int(b)).take(np.ascontiguousarray(c).view(np.uint16)[::2])
    both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    low = c & np.uint32(3)
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for k in range(4):
        if mode == "":
            pick, sign = (c >> np.uint32(4 * k)) & np.uint32(7), (c >> np.uint32(4 * k + 3)) & np.uint32(1)
        else:
            sign = np.zeros_like(c)
            number = np.uint32(k)
            pick = {
                "f4e": low + number,
                "b4e": (low - number) & np.uint32(7),
                "rc8": low,
                "ecl": np.maximum(low, number),
                "ecr": np.minimum(low, number),
                "rc16": ((low & np.uint32(1)) << np.uint32(1)) | (number & np.uint32(1)),
            }[mode]
        byte = ((both >> (pick.astype(np.uint64) << np.uint64(3))) & np.uint64(255)).astype(np.uint32)
        replicated = (byte >> np.uint32(7)) * np.uint32(255)
        byte = np.where(sign != 0, replicated, byte)
        result = result | (byte << np.uint32(8 * k))
    return result


@lru_cache(maxsize=16)
def _permutations(a: int, b: int) -> Array:
    """Return what `permute_bytes` makes of two constants, for every selector of 16 bits."""
    selectors = np.arange(1 << 16, dtype=np.uint32)
    return permute_bytes(np.full(1, a, np.uint32), np.full(1, b, np.uint32), selectors, "")


def lop3(a: Array, b: Array, c: Array, table: int) -> Array:
    """Bit function of three inputs: bit 4a + 2b + c of the table."""
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for entry in range(8):
        if table >> entry & 1:
            result |= (a if entry & 4 else ~a) & (b if entry & 2 else ~b) & (c if entry & 1 else ~c)
    return result


def minimum_float(a: Array, b: Array, propagate: bool) -> Array:
    """Smaller float: -0 is below +0; one NaN is dropped unless ``propagate``; a NaN result is 0x7fffffff."""
    return _extreme(a, b, propagate, least=True)


def maximum_float(a: Array, b: Array, propagate: bool) -> Array:
    """Larger float: -0 is below +0; one NaN is dropped unless ``propagate``; a NaN result is 0x7fffffff."""
    return _extreme(a, b, propagate, least=False)


def _extreme(a: Array, b: Array, propagate: bool, *, least: bool) -> Array:
    a, b = np.broadcast_arrays(a, b)
    a_nan, b_nan = np.isnan(a), np.isnan(b)
    take_a = (a < b if least else a > b) | ((a == b) & (np.signbit(a) == least))
    result: Array = np.where((take_a & ~a_nan) | b_nan, a, b)
    nan = (a_nan | b_nan) if propagate else (a_nan & b_nan)
    result[nan] = np.array(0x7FFFFFFF, np.uint32).view(np.float32)
    return result


def to_integer(a: Array, code: str, rounding: str) -> Array:
    """Float to integer: rounded by rni, rzi, rmi or rpi, saturated to the type.

    NaN gives 0, as the PTX ISA says, but for 64-bit integers 2^63: so sm_90 does it.
    """
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](a).astype(
        np.float64
    )
    limits = np.iinfo(np.dtype(code))
    # The largest 64-bit integers are no doubles: compare with the power of two above, then pick the limit
    # itself.
    above, below = rounded >= float(limits.max) + (limits.bits < 64), rounded <= float(limits.min)
    inside = np.where(above | below | np.isnan(rounded), 0.0, rounded)
    result: Array = inside.astype(np.dtype(code))
    result = np.where(above, limits.max, result).astype(np.dtype(code))
    result = np.where(below, limits.min, result).astype(np.dtype(code))
    if limits.bits == 64:
        result[np.isnan(rounded)] = np.array(1 << 63, np.uint64).view(np.dtype(code))
    return result


def saturate(a: Array, code: str) -> Array:
    """Clamp an integer of any type to the range of integer type ``code``."""
    limits, own = np.iinfo(np.dtype(code)), np.iinfo(a.dtype)
    low, high = max(limits.min, own.min), min(limits.max, own.max)
    return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(np.dtype(code))


def negative(a: Array) -> Array:
    """Float32 with its sign turned; a NaN is 0x7fffffff."""
    return _quiet_nan(a, a.view(np.uint32) ^ np.uint32(0x80000000))


def quotient(a: Array, b: Array) -> Array:
    """Float32 a / b, rounded to nearest even, subnormals kept; a NaN is 0x7fffffff."""
    divided = np.asarray(a / b)
    return _quiet_nan(divided, divided.view(np.uint32))


def magnitude(a: Array) -> Array:
    """Float32 with its sign cleared; a NaN is 0x7fffffff."""
    return _quiet_nan(a, a.view(np.uint32) & np.uint32(0x7FFFFFFF))


def _quiet_nan(a: Array, bits: Array) -> Array:
    return np.where(np.isnan(a), np.uint32(0x7FFFFFFF), bits).view(np.float32)


def halves(words: Array) -> Array:
    """View 64-bit words as pairs of float32, the low half first: ``[n]`` to ``[n, 2]``."""
    return np.ascontiguousarray(words).view(np.float32).reshape(-1, 2)


def joined(pairs: Array) -> Array:
    """View pairs of float32 as 64-bit words: ``[n, 2]`` to ``[n]``."""
    return pairs.view(np.uint64).reshape(-1)
