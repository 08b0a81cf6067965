"""The clauses a second time, in plain Python integers, to test the first version.

Written differently on purpose: a float32 is its bit pattern, a finite value is an exact multiple of 2^-149,
the picks are eight scans, and the metadata lists grow expert by expert. Nothing here is fast.
"""

import csv
from collections.abc import Sequence
from importlib import resources
from typing import Final

from spec.constants import COEFFICIENTS_FILE

NAN: Final = 0x7FFFFFFF
"""A8: every NaN result."""

SIGN: Final = 1 << 31
INFINITY: Final = 0x7F800000
ONE: Final = 0x3F800000
QUARTER: Final = 0x3E800000
HALF: Final = 0x3F000000
TWO_TO_24: Final = 0x4B800000
TWO_TO_126: Final = 0x7E800000
LEAST_NORMAL: Final = 0x00800000
MINUS_LOG2E: Final = 0xBFB8AA3B


def is_nan(bits: int) -> bool:
    """Return whether the bit pattern is a NaN."""
    return bits & ~SIGN > INFINITY


def units(bits: int) -> int:
    """Return a finite float32 as a whole number of 2^-149."""
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    magnitude = fraction if exponent == 0 else (fraction + (1 << 23)) << (exponent - 1)
    return -magnitude if bits & SIGN else magnitude


def nearest(sign: int, magnitude: int, exponent: int) -> int:
    """Return the float32 of this sign (0 or `SIGN`) nearest to ``magnitude * 2^exponent``, ties to even."""
    last_place = max(magnitude.bit_length() + exponent - 24, -149)
    dropped = last_place - exponent
    if dropped <= 0:
        kept = magnitude << -dropped
    else:
        kept, rest = magnitude >> dropped, magnitude & ((1 << dropped) - 1)
        half = 1 << (dropped - 1)
        if rest > half or (rest == half and kept % 2 == 1):
            kept += 1
    return sign | min(((last_place + 149) << 23) + kept, INFINITY)


def mul_rn(a: int, b: int) -> int:
    """A1."""
    sign = (a ^ b) & SIGN
    if is_nan(a) or is_nan(b):
        return NAN
    if INFINITY in (a & ~SIGN, b & ~SIGN):
        return NAN if 0 in (a & ~SIGN, b & ~SIGN) else sign | INFINITY
    return nearest(sign, abs(units(a) * units(b)), -298)


def add_rn(a: int, b: int) -> int:
    """A2."""
    return fma_rn(a, ONE, b)


def fma_rn(a: int, b: int, c: int) -> int:
    """Return ``a * b + c``, rounded once."""
    product = mul_rn(a, b)
    if is_nan(product) or is_nan(c):
        return NAN
    if INFINITY in (a & ~SIGN, b & ~SIGN):
        return NAN if c == product ^ SIGN else product
    if c & ~SIGN == INFINITY:
        return c
    exact = units(a) * units(b) + (units(c) << 149)
    if exact == 0:
        return (a ^ b) & c & SIGN
    return nearest(SIGN if exact < 0 else 0, abs(exact), -298)


def ex2_approx(x: int) -> int:
    """A3."""
    if is_nan(x):
        return NAN
    if x == SIGN | INFINITY or (x != INFINITY and units(x) < -126 << 149):
        root = ex2_approx_ftz(mul_rn(x, HALF))
        return mul_rn(root, root)
    return ex2_approx_ftz(x)


def ex2_approx_ftz(x: int) -> int:
    """A5."""
    if is_nan(x):
        return NAN
    if x & ~SIGN == INFINITY:
        return 0 if x & SIGN else INFINITY
    if units(x) >= 128 << 149:
        return INFINITY
    fixed = abs(units(x)) >> 126
    n, f = fixed >> 23, fixed & 0x7FFFFF
    if x & SIGN:
        n, f = (-n - 1, ~f & 0x7FFFFF) if f else (-n, 0)
    result = ONE + quadratic("ex2", f >> 17, f & 0x1FFFF, (f & 0x1FFFF) >> 2, 6114) + (n << 23)
    return 0 if result < LEAST_NORMAL else result


def rcp_approx(x: int) -> int:
    """A6."""
    if is_nan(x):
        return NAN
    sign, magnitude = x & SIGN, x & ~SIGN
    if magnitude < LEAST_NORMAL:
        return sign | INFINITY
    if magnitude == INFINITY:
        return sign
    m = magnitude & 0x7FFFFF
    mantissa = ONE if m == 0 else HALF + quadratic("rcp", m >> 16, m & 0xFFFF, (m & 0xFFFF) >> 1, 2023)
    result = mantissa - (((magnitude >> 23) - 127) << 23)
    return sign if result < LEAST_NORMAL else sign | result


def div_full(a: int, b: int) -> int:
    """A4."""
    if is_nan(b):
        return NAN
    if b & ~SIGN > TWO_TO_126:
        a, b = mul_rn(a, QUARTER), mul_rn(b, QUARTER)
    elif b & ~SIGN < LEAST_NORMAL:
        a, b = mul_rn(a, TWO_TO_24), mul_rn(b, TWO_TO_24)
    return mul_rn(rcp_approx(b), a)


def sigmoid(x: int) -> int:
    """A7 and R1."""
    return div_full(ONE, add_rn(ex2_approx(mul_rn(x, MINUS_LOG2E)), ONE))


def quadratic(function: str, segment: int, k: int, z: int, bias: int) -> int:
    """Return what the special function unit interpolates in one segment."""
    c0, c1, c2 = COEFFICIENTS[function, segment]
    return (c0 * 2**13 + bias + c1 * k + c2 * folded_square(z)) >> 15


def folded_square(z: int) -> int:
    """Return sq(z): the partial products of z*z from column 2^15 up, the two of a pair folded into one."""
    ones = [i for i in range(15) if z >> i & 1]
    total = 0
    for i in ones:
        for j in ones:
            if i == j and i >= 8:
                total += 2 ** (2 * i - 15)
            elif i < j and i + j >= 14:
                total += 2 ** (i + j - 14)
    return total


def read_coefficients() -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return C0, C1 and C2 by function and segment."""
    with (resources.files("spec") / "data" / COEFFICIENTS_FILE).open() as file:
        rows = list(csv.reader(file))[1:]
    return {(name, int(segment)): (int(c0), int(c1), int(c2)) for name, segment, c0, c1, c2 in rows}


COEFFICIENTS: Final = read_coefficients()
EPSILON: Final = nearest(0, 2**200 // 10**15 | 1, -200)
"""R5: 1e-15f. The bit set last stands for the digits of the quotient that are cut off."""


def place(key: int) -> int:
    """R2: an integer that grows as the keys do, zeros alike, every NaN above infinity."""
    if is_nan(key):
        return 1 << 400
    if key & ~SIGN == INFINITY:
        return -1 << 300 if key & SIGN else 1 << 300
    return units(key)


def pick(keys: Sequence[int]) -> list[int]:
    """R3, R4: eight times the first of the largest keys among the experts not yet picked."""
    places = [place(k) for k in keys]
    picked: list[int] = []
    while len(picked) < 8:
        left = [expert for expert in range(len(places)) if expert not in picked]
        best = left[0]
        for expert in left:
            if places[expert] > places[best]:
                best = expert
        picked.append(best)
    return picked


def route(
    logits: Sequence[Sequence[int]], bias: Sequence[int], scale: int, renormalize: bool
) -> tuple[list[list[int]], list[list[int]]]:
    """Return ids and weight bits of every row (R1-R6); all floats are float32 bit patterns."""
    ids, weights = [], []
    for row in logits:
        scores = [sigmoid(x) for x in row]
        picked = pick([add_rn(s, b) for s, b in zip(scores, bias, strict=True)])
        factor = scale
        if renormalize:
            total = 0
            for expert in picked:
                total = add_rn(total, scores[expert])
            factor = div_full(scale, add_rn(total, EPSILON))
        ids.append(picked)
        weights.append([mul_rn(scores[expert], factor) for expert in picked])
    return ids, weights


def metadata(ids: Sequence[Sequence[int]], offset: int, count: int, tile: int) -> dict[str, int | list[int]]:
    """Return every field by name (M1-M8), the lists as long as they are written."""
    cta_batch: list[int] = []
    cta_limit: list[int] = []
    permuted_to_token: list[int] = []
    expanded_to_permuted = [-1] * (8 * len(ids))
    for expert in range(count):
        picks = [(t, j) for t, row in enumerate(ids) for j in range(8) if row[j] == offset + expert]
        routes = [(t, 8 * t + j) for t, j in picks]
        while routes:
            here, routes = routes[:tile], routes[tile:]
            cta_batch.append(expert)
            cta_limit.append(len(permuted_to_token) + len(here))
            for token, route_number in here:
                expanded_to_permuted[route_number] = len(permuted_to_token)
                permuted_to_token.append(token)
            permuted_to_token.extend([-1] * (tile - len(here)))
    return {
        "padded_tokens": len(permuted_to_token),
        "num_ctas": len(cta_batch),
        "cta_batch": cta_batch,
        "cta_limit": cta_limit,
        "expanded_to_permuted": expanded_to_permuted,
        "permuted_to_token": permuted_to_token,
    }
