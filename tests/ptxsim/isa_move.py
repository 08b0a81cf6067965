"""Cases of moves, conversions, comparisons and selections."""

import operator
from collections.abc import Iterator
from fractions import Fraction

from ptxsim_tests_isa_case import (
    WIDTH,
    Case,
    floats,
    is_infinite,
    is_nan,
    mask,
    nearest,
    samples,
    signed,
    typed,
    value_case,
    value_of,
)

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
MOVED = ("pred", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")


def moves() -> Iterator[Case]:
    """Copies, packing, addresses."""
    for kind in MOVED:
        yield value_case(
            f"mov.{kind}", f"mov.{kind} {{x}}, {{a}}", [kind], [kind], samples([kind]), lambda a: a
        )
    for kind, constant, bits in (
        ("b32", "-7", 0xFFFFFFF9),
        ("u32", "0x1F", 31),
        ("f32", "0f3F800000", 0x3F800000),
        ("f32", "-0.5", 0xBF000000),
        ("b64", "0xFFFFFFFFFF", 0xFFFFFFFFFF),
        ("u16", "017", 15),
        ("f64", "0d3FF8000000000000", 0x3FF8 << 48),
        ("f64", "1.5", 0x3FF8 << 48),
        ("u32", "0b101U", 5),
        ("b32", "0f7FC00001", 0x7FC00001),
    ):
        yield value_case(
            f"mov.{kind}",
            f"mov.{kind} {{x}}, {constant}",
            [kind],
            [kind],
            samples([kind], 32),
            lambda a, bits=bits: bits,
            f"mov.{kind}-{constant}",
        )
    for total, count in ((32, 2), (64, 2), (64, 4)):
        part = total // count
        letters = "abcd"[:count]
        columns = samples([f"b{part}"] * count)
        yield value_case(
            f"mov.b{total}.pack{count}",
            f"mov.b{total} {{x}}, {{{{{', '.join(f'{{{c}}}' for c in letters)}}}}}",
            [f"b{part}"] * count,
            [f"b{total}"],
            columns,
            lambda *v, part=part: sum(x << part * k for k, x in enumerate(v)),
        )
        outputs = "xyzw"[:count]
        yield value_case(
            f"mov.b{total}.unpack{count}",
            f"mov.b{total} {{{{{', '.join(f'{{{c}}}' for c in outputs)}}}}}, {{a}}",
            [f"b{total}"],
            [f"b{part}"] * count,
            samples([f"b{total}"]),
            lambda a, part=part, count=count: tuple(mask(a >> part * k, part) for k in range(count)),
        )
    yield value_case(
        "mov.b64.unpack2",
        "mov.b64 {{_, {x}}}, {a}",
        ["b64"],
        ["b32"],
        samples(["b64"]),
        lambda a: a >> 32,
        "mov.b64-keeps-only-the-upper-half",
    )
    for space in ("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param"):
        # There and back gives the same address; global addresses are generic ones.
        yield value_case(
            f"cvta.{space}.u64",
            f"cvta.{space}.u64 {{x}}, {{a}}; cvta.to.{space}.u64 {{x}}, {{x}}",
            ["u64"],
            ["u64"],
            samples(["u32"]),
            lambda a: a,
            f"cvta.{space}.u64-and-back",
        )
        yield value_case(
            f"cvta.to.{space}.u64",
            f"cvta.to.{space}.u64 {{x}}, {{a}}; cvta.{space}.u64 {{x}}, {{x}}",
            ["u64"],
            ["u64"],
            samples(["u64"]),
            lambda a: a,
            f"cvta.to.{space}.u64-and-back",
        )


def selections() -> Iterator[Case]:
    """``selp``."""
    for kind in MOVED[1:]:
        columns = samples([kind, kind, "pred"])
        yield value_case(
            f"selp.{kind}",
            f"selp.{kind} {{x}}, {{a}}, {{b}}, {{c}}",
            [kind, kind, "pred"],
            [kind],
            columns,
            lambda a, b, c: a if c else b,
        )
    for first, second in (
        ("{a}", "0"),
        ("0", "{a}"),
        ("6", "{a}"),
        ("{a}", "-1"),
        ("7", "9"),
        ("1", "0"),
        ("0", "0"),
    ):

        def pick(a, c, first=first, second=second):
            chosen = first if c else second
            return a if chosen == "{a}" else mask(int(chosen), 32)

        yield value_case(
            "selp.b32",
            f"selp.b32 {{x}}, {first}, {second}, {{b}}",
            ["b32", "pred"],
            ["b32"],
            samples(["b32", "pred"]),
            pick,
            f"selp.b32-of-{first.strip('{}')}-and-{second.strip('{}')}",
        )


COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
COMBINE = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
DOUBLES = [
    0,
    1 << 63,
    0x3FF0 << 48,
    0xBFF0 << 48,
    0x7FF0 << 48,
    0xFFF0 << 48,
    0x7FF8 << 48,
    0xFFF8000000000001,
    1,
    0x7FF0000000000001,
]


def compared(comparison: str, kind: str, a: int, b: int) -> int:
    """Compare two registers as the ISA says."""
    if kind[0] != "f":
        return int(COMPARE[comparison](typed(a, kind), typed(b, kind)))
    width, limit = (32, 0x7F800000) if kind == "f32" else (64, 0x7FF0 << 48)
    magnitude = [v & ~(1 << (width - 1)) for v in (a, b)]
    nan = any(m > limit for m in magnitude)
    if comparison in ("num", "nan"):
        return int(nan == (comparison == "nan"))
    if nan:
        return int(comparison.endswith("u") and comparison not in ("eq", "ne"))
    values = [-m if v >> (width - 1) else m for m, v in zip(magnitude, (a, b), strict=True)]
    return int(COMPARE[comparison[:2]](*values))


def comparisons() -> Iterator[Case]:
    """``setp``, alone and combined."""
    kinds = [(kind, ("eq", "ne")) for kind in ("b16", "b32", "b64")]
    for letter in "us":
        kinds += [(f"{letter}{n}", ("eq", "ne", "lt", "le", "gt", "ge")) for n in (16, 32, 64)]
    kinds += [(f"u{n}", ("lo", "ls", "hi", "hs")) for n in (16, 32, 64)]
    kinds += [
        (kind, ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"))
        for kind in ("f32", "f64")
    ]
    for kind, names in kinds:
        if kind == "f32":
            columns = floats(160, 2)
        elif kind == "f64":
            columns = [[x for x in DOUBLES for _ in DOUBLES], DOUBLES * len(DOUBLES)]
        else:
            columns = samples([kind] * 2, 64)
            columns[1][::3] = columns[0][::3]
        third = samples(["pred"], len(columns[0]))
        for name in names:
            form = f"setp.{name}.{kind}"
            yield value_case(
                form,
                f"{form} {{x}}|{{y}}, {{a}}, {{b}}",
                [kind] * 2,
                ["pred"] * 2,
                columns,
                lambda a, b, n=name, k=kind: (compared(n, k, a, b), 1 - compared(n, k, a, b)),
            )
            for word, combine in COMBINE.items():
                form = f"setp.{name}.{word}.{kind}"
                yield value_case(
                    form,
                    f"{form} {{x}}|{{y}}, {{a}}, {{b}}, !{{c}}",
                    [kind, kind, "pred"],
                    ["pred"] * 2,
                    [*columns, *third],
                    lambda a, b, c, n=name, k=kind, combine=combine: (
                        combine(compared(n, k, a, b), 1 - c),
                        combine(1 - compared(n, k, a, b), 1 - c),
                    ),
                )
    yield value_case(
        "setp.eq.b32",
        "setp.eq.b32 {x}, {a}, 0",
        ["b32"],
        ["pred"],
        samples(["b32"]),
        lambda a: int(a == 0),
        "setp.eq.b32-with-a-constant",
    )


def conversions() -> Iterator[Case]:
    """``cvt``."""
    for to in INTEGERS:
        for of in INTEGERS:
            wide_to = to if WIDTH[to] > 8 else to[0] + "32"
            wide_of = of if WIDTH[of] > 8 else of[0] + "32"
            columns = samples([wide_of])
            yield value_case(
                f"cvt.{to}.{of}",
                f"cvt.{to}.{of} {{x}}, {{a}}",
                [wide_of],
                [wide_to],
                columns,
                lambda a, to=to, of=of, w=wide_to: mask(typed(typed(a, of), to), WIDTH[w]),
            )

            def clamped(a, to=to, of=of, w=wide_to):
                low = -(1 << (WIDTH[to] - 1)) if to[0] == "s" else 0
                high = (1 << (WIDTH[to] - (to[0] == "s"))) - 1
                return mask(min(max(typed(a, of), low), high), WIDTH[w])

            yield value_case(
                f"cvt.sat.{to}.{of}",
                f"cvt.sat.{to}.{of} {{x}}, {{a}}",
                [wide_of],
                [wide_to],
                columns,
                clamped,
            )
        wide = to if WIDTH[to] > 8 else to[0] + "32"
        columns = samples([wide])
        if WIDTH[to] >= 32:
            # Halfway between two floats, and just beside it.
            columns[0][:3] = [(1 << 24) + 1, (1 << 24) + 3, mask((1 << 31) - 64, WIDTH[to])]
        yield value_case(
            f"cvt.rn.f32.{to}",
            f"cvt.rn.f32.{to} {{x}}, {{a}}",
            [wide],
            ["f32"],
            columns,
            lambda a, to=to: nearest(Fraction(typed(a, to))),
        )
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        for to in ("s32", "u32", "s64", "u64"):

            def convert(a, rounding=rounding, to=to):
                low = -(1 << (WIDTH[to] - 1)) if to[0] == "s" else 0
                high = (1 << (WIDTH[to] - (to[0] == "s"))) - 1
                if is_nan(a):  # 2^63 for 64-bit integers is what an H200 gives; the PTX ISA says 0
                    return 1 << 63 if WIDTH[to] == 64 else 0
                if is_infinite(a):
                    return mask(low if a >> 31 else high, WIDTH[to])
                value = value_of(a)
                whole = {
                    "rni": round,
                    "rzi": int,
                    "rmi": lambda v: v.__floor__(),
                    "rpi": lambda v: v.__ceil__(),
                }[rounding](value)
                return mask(min(max(whole, low), high), WIDTH[to])

            form = f"cvt.{rounding}.{to}.f32"
            yield value_case(form, f"{form} {{x}}, {{a}}", ["f32"], [to], floats(200, 1), convert)
    yield value_case(
        "cvt.f32.bf16", "cvt.f32.bf16 {x}, {a}", ["b16"], ["f32"], samples(["b16"]), lambda a: a << 16
    )
    yield value_case(
        "cvt.s32.s8",
        "cvt.s32.s8 {x}, {a}",
        ["s32"],
        ["s32"],
        samples(["s32"]),
        lambda a: mask(signed(a, 8), 32),
        "cvt.s32.s8-reads-the-low-byte",
    )


def cases() -> list[Case]:
    """Return every case of this file."""
    return [*moves(), *selections(), *comparisons(), *conversions()]
