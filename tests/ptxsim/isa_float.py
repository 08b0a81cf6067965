"""Cases of the float forms: exact rationals rounded once, hand-picked values for the approximations."""

from collections.abc import Iterator

from ptxsim_tests_isa_case import (
    INFINITY,
    NAN,
    Case,
    floats,
    is_infinite,
    is_nan,
    nearest,
    value_case,
    value_of,
)

SIGN = 1 << 31
WORD = 0xFFFFFFFF


def total(a: int, b: int) -> int:
    """IEEE sum; a NaN is 0x7fffffff."""
    if is_nan(a) or is_nan(b) or (is_infinite(a) and is_infinite(b) and a != b):
        return NAN
    if is_infinite(a) or is_infinite(b):
        return a if is_infinite(a) else b
    return nearest(value_of(a) + value_of(b), a >> 31 & b >> 31)


def product(a: int, b: int) -> int:
    """IEEE product; a NaN is 0x7fffffff."""
    sign = (a ^ b) & SIGN
    if is_nan(a) or is_nan(b):
        return NAN
    if is_infinite(a) or is_infinite(b):
        return NAN if a & ~SIGN == 0 or b & ~SIGN == 0 else sign | INFINITY
    return nearest(value_of(a) * value_of(b), sign >> 31)


def fused(a: int, b: int, c: int) -> int:
    """IEEE fused multiply-add; a NaN is 0x7fffffff."""
    if is_nan(c) or is_nan(a) or is_nan(b) or is_infinite(a) or is_infinite(b):
        return total(product(a, b), c)
    if is_infinite(c):
        return c
    sign = (a ^ b) >> 31
    exact = value_of(a) * value_of(b)
    zero = sign & c >> 31 if exact == 0 else 0
    return nearest(exact + value_of(c), zero)


def ratio(a: int, b: int) -> int:
    """IEEE quotient; a NaN is 0x7fffffff."""
    sign = (a ^ b) & SIGN
    if is_nan(a) or is_nan(b) or (is_infinite(a) and is_infinite(b)) or (a | b) & ~SIGN == 0:
        return NAN
    if is_infinite(a) or b & ~SIGN == 0:
        return sign | INFINITY
    return sign if is_infinite(b) else nearest(value_of(a) / value_of(b), sign >> 31)


def extreme(a: int, b: int, least: bool, propagate: bool) -> int:
    """Minimum or maximum: -0 is below +0."""
    if is_nan(a) or is_nan(b):
        both = is_nan(a) and is_nan(b)
        return NAN if both or propagate else b if is_nan(a) else a

    def order(bits: int) -> int:
        return -(bits & ~SIGN) - 1 if bits >> 31 else bits

    return (min if least else max)(a, b, key=order)


POWERS = {
    0x00000000: 0x3F800000,
    0x80000000: 0x3F800000,
    0x3F800000: 0x40000000,
    0xBF800000: 0x3F000000,
    0x41200000: 0x44800000,
    0x42FE0000: 0x7F000000,
    0x43000000: INFINITY,
    INFINITY: INFINITY,
    0xFF800000: 0,
    0xC2FC0000: 0x00800000,
    0x7FC00000: NAN,
    0xFFC00001: NAN,
    0x00000001: 0x3F800000,
}
RECIPROCALS = {
    0x3F800000: 0x3F800000,
    0x40000000: 0x3F000000,
    0xC0800000: 0xBE800000,
    0x00000000: INFINITY,
    0x80000000: 0xFF800000,
    0x00000001: INFINITY,
    INFINITY: 0,
    0xFF800000: SIGN,
    0x7FC00000: NAN,
    0x7E800000: 0x00800000,
    0x7F000000: 0,
}
QUOTIENTS = {
    (0x3F800000, 0x40800000): 0x3E800000,
    (0x40400000, 0xBF800000): 0xC0400000,
    (0, 0): NAN,
    (0x3F800000, 0x00000000): INFINITY,
    (0x3F800000, INFINITY): 0,
    (INFINITY, INFINITY): NAN,
    (0x7E800000, 0x7F000000): 0x3F000000,
    (0x00800000, 0x00400000): 0x40000000,
    (0x7FC00000, 0x3F800000): NAN,
}


def cases() -> list[Case]:
    """Return every case of this file."""
    return list(_cases())


def _cases() -> Iterator[Case]:
    two, three = floats(400, 2), floats(400, 3)
    for rounding in ("", ".rn"):
        for name, work in (("add", total), ("sub", lambda a, b: total(a, b ^ SIGN)), ("mul", product)):
            form = f"{name}{rounding}.f32"
            yield value_case(form, f"{form} {{x}}, {{a}}, {{b}}", ["f32"] * 2, ["f32"], two, work)
        for name, work in (("add", total), ("mul", product)):
            form = f"{name}{rounding}.f32x2"
            pairs = [
                [low | high << 32 for low, high in zip(column[::2], column[1::2], strict=True)]
                for column in two
            ]
            yield value_case(
                form,
                f"{form} {{x}}, {{a}}, {{b}}",
                ["b64"] * 2,
                ["b64"],
                pairs,
                lambda a, b, work=work: work(a & WORD, b & WORD) | work(a >> 32, b >> 32) << 32,
            )
    yield value_case("div.rn.f32", "div.rn.f32 {x}, {a}, {b}", ["f32"] * 2, ["f32"], two, ratio)
    yield value_case(
        "add.rn.f32",
        "add.rn.f32 {x}, {a}, 0f3F800000",
        ["f32"],
        ["f32"],
        two[:1],
        lambda a: total(a, 0x3F800000),
        "add.rn.f32-of-a-constant",
    )
    yield value_case(
        "mul.rn.f32",
        "mul.rn.f32 {x}, {a}, 1.5",
        ["f32"],
        ["f32"],
        two[:1],
        lambda a: product(a, 0x3FC00000),
        "mul.rn.f32-by-a-decimal-constant",
    )
    yield value_case("fma.rn.f32", "fma.rn.f32 {x}, {a}, {b}, {c}", ["f32"] * 3, ["f32"], three, fused)
    for name in ("min", "max"):
        for nan in ("", ".NaN"):
            form = f"{name}{nan}.f32"
            yield value_case(
                form,
                f"{form} {{x}}, {{a}}, {{b}}",
                ["f32"] * 2,
                ["f32"],
                two,
                lambda a, b, least=name == "min", nan=bool(nan): extreme(a, b, least, nan),
            )
    yield value_case(
        "neg.f32", "neg.f32 {x}, {a}", ["f32"], ["f32"], two[:1], lambda a: NAN if is_nan(a) else a ^ SIGN
    )
    yield value_case(
        "abs.f32", "abs.f32 {x}, {a}", ["f32"], ["f32"], two[:1], lambda a: NAN if is_nan(a) else a & ~SIGN
    )
    yield value_case(
        "copysign.f32",
        "copysign.f32 {x}, {a}, {b}",
        ["f32"] * 2,
        ["f32"],
        two,
        lambda a, b: a & SIGN | b & ~SIGN,
    )
    # 2^-128 and 2^-148 are subnormal: kept without .ftz, zero with it.
    powers, small = list(POWERS), [0xC3000000, 0xC3140000]
    yield value_case(
        "ex2.approx.f32",
        "ex2.approx.f32 {x}, {a}",
        ["f32"],
        ["f32"],
        [[*powers, *small]],
        lambda a: {**POWERS, small[0]: 0x00200000, small[1]: 0x00000002}[a],
    )
    yield value_case(
        "ex2.approx.ftz.f32",
        "ex2.approx.ftz.f32 {x}, {a}",
        ["f32"],
        ["f32"],
        [[*powers, *small]],
        lambda a: POWERS.get(a, 0),
    )
    yield value_case(
        "rcp.approx.ftz.f32",
        "rcp.approx.ftz.f32 {x}, {a}",
        ["f32"],
        ["f32"],
        [list(RECIPROCALS)],
        RECIPROCALS.__getitem__,
    )
    yield value_case(
        "div.full.f32",
        "div.full.f32 {x}, {a}, {b}",
        ["f32"] * 2,
        ["f32"],
        [list(column) for column in zip(*QUOTIENTS, strict=True)],
        lambda a, b: QUOTIENTS[a, b],
    )
