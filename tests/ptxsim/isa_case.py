"""What a case of an instruction form is, and plain-integer helpers to work out expected values."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

WIDTH = {f"{kind}{bits}": bits for kind in "busf" for bits in (8, 16, 32, 64)} | {"pred": 1, "bf16": 16}
NAN = 0x7FFFFFFF
INFINITY = 0x7F800000


@dataclass(frozen=True)
class Case:
    """One form: PTX between 64-bit inputs and outputs, the inputs of each thread, and what must come out."""

    name: str
    form: str
    body: str
    inputs: list[list[int]]
    expected: list[list[int]]
    threads: int
    module: str = ""
    keywords: dict[str, object] = field(default_factory=dict)


def mask(value: int, bits: int) -> int:
    """Return the low bits of an integer."""
    return value & ((1 << bits) - 1)


def signed(value: int, bits: int) -> int:
    """Read the low bits of an integer as two's complement."""
    value = mask(value, bits)
    return value - (1 << bits) if value >> (bits - 1) else value


def typed(value: int, kind: str) -> int:
    """Read a register as the value of an integer type."""
    return signed(value, WIDTH[kind]) if kind.startswith("s") else mask(value, WIDTH[kind])


def samples(
    kinds: Sequence[str], count: int = 96, seed: int = 1, small: Sequence[int] = ()
) -> list[list[int]]:
    """Return operands of each kind, edges and random bits; positions in ``small`` get small numbers."""
    draw = random.Random(seed + len(kinds))
    columns = []
    for position, kind in enumerate(kinds):
        bits = WIDTH[kind]
        edges = [
            0,
            1,
            2,
            mask(-1, bits),
            mask(-2, bits),
            1 << (bits - 1),
            mask((1 << (bits - 1)) - 1, bits),
            bits - 1,
            bits,
            3,
            mask(-7, bits),
            7,
        ]
        column = []
        for _ in range(count):
            if position in small:
                column.append(
                    draw.choice([0, 1, 3, 5, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 65, 100, 255, 256, 300])
                )
            elif draw.random() < 0.5:
                column.append(mask(draw.choice(edges), bits))
            else:
                column.append(
                    draw.getrandbits(bits) >> draw.choice([0, 0, 0, bits // 2, bits - 3] if bits > 1 else [0])
                )
        columns.append(column)
    return columns


FLOATS = [
    0x00000000,
    0x80000000,
    0x3F800000,
    0xBF800000,
    0x3F800001,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0xFFC12345,
    0x7F800001,
    0x00000001,
    0x80000001,
    0x007FFFFF,
    0x00800000,
    0x7F7FFFFF,
    0xFF7FFFFF,
    0x40490FDB,
    0xC2F6E979,
    0x4B000000,
    0x4B7FFFFF,
    0x34000000,
    0x33800000,
    0x3EAAAAAB,
    0x5F000000,
    0xDF000000,
    0x4F000000,
    0xCF000000,
    0x4F800000,
    0x3F000000,
    0x3FC00000,
    0xBF000000,
    0x40200000,
]


def floats(count: int, columns: int, seed: int = 2) -> list[list[int]]:
    """Return float32 bit patterns: edges in all pairings, and random bits."""
    draw = random.Random(seed)
    return [
        [draw.choice(FLOATS) if draw.random() < 0.6 else draw.getrandbits(32) for _ in range(count)]
        for _ in range(columns)
    ]


def is_nan(bits: int) -> bool:
    """Whether float32 bits are a NaN."""
    return bits & 0x7FFFFFFF > INFINITY


def is_infinite(bits: int) -> bool:
    """Whether float32 bits are an infinity."""
    return bits & 0x7FFFFFFF == INFINITY


def value_of(bits: int) -> Fraction:
    """Return the exact value of finite float32 bits."""
    exponent, fraction = bits >> 23 & 255, bits & 0x7FFFFF
    magnitude = (
        Fraction(fraction, 1 << 149)
        if exponent == 0
        else (Fraction((1 << 23) | fraction) * Fraction(2) ** (exponent - 150))
    )
    return -magnitude if bits >> 31 else magnitude


def nearest(value: Fraction, zero_sign: int = 0) -> int:
    """Round an exact value to float32 bits, to nearest even; a zero value gets ``zero_sign``."""
    if value == 0:
        return zero_sign << 31
    sign = int(value < 0)
    magnitude = abs(value)
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length(), -150)
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    while exponent > -126 and Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, -126)
    scaled = magnitude / Fraction(2) ** (exponent - 23)
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    bits = whole + ((exponent + 126) << 23)
    if whole >= 1 << 23:
        bits = whole - (1 << 23) + ((exponent + 127) << 23)
    return sign << 31 | min(bits, INFINITY)


def value_case(
    form: str,
    statement: str,
    reads: Sequence[str],
    writes: Sequence[str],
    columns: list[list[int]],
    reference: Callable[..., int | tuple[int, ...]],
    name: str = "",
    declare: str = "",
) -> Case:
    """Make a case of one instruction on registers.

    ``statement`` may use ``{a} {b} {c} {d}`` for the inputs and ``{x} {y}`` for the outputs, whose PTX types
    are ``reads`` and ``writes``; ``reference`` takes the inputs' bits and returns the outputs' bits.
    """
    lines, names = [declare], {}
    for k, kind in enumerate(reads):
        letter = "abcdefgh"[k]
        names[letter] = f"%{letter}"
        bits = WIDTH[kind]
        lines.append(f".reg .{'pred' if kind == 'pred' else kind if bits > 8 else 'b16'} %{letter};")
        if kind == "pred":
            lines.append(f"setp.ne.b64 %{letter}, %in{k}, 0;")
        elif bits == 64:
            lines.append(f"mov.b64 %{letter}, %in{k};")
        else:
            lines += [
                f"{{ .reg .b{max(bits, 16)} t; cvt.u{max(bits, 16)}.u64 t, %in{k};",
                f"mov.b{max(bits, 16)} %{letter}, t; }}",
            ]
    tail = []
    for k, kind in enumerate(writes):
        letter = "xyzwuvst"[k]
        names[letter] = f"%{letter}"
        bits = WIDTH[kind]
        lines.append(f".reg .{'pred' if kind == 'pred' else kind if bits > 8 else 'b16'} %{letter};")
        if kind == "pred":
            tail.append(f"selp.b64 %out{k}, 1, 0, %{letter};")
        elif bits == 64:
            tail.append(f"mov.b64 %out{k}, %{letter};")
        else:
            tail += [
                f"{{ .reg .b{max(bits, 16)} t; mov.b{max(bits, 16)} t, %{letter};",
                f"cvt.u64.u{max(bits, 16)} %out{k}, t; }}",
            ]
    body = "\n".join([*lines, statement.format(**names) + ";", *tail])
    expected: list[list[int]] = [[] for _ in writes]
    for row in zip(*columns, strict=True):
        found = reference(*row)
        for column, bits in zip(expected, found if isinstance(found, tuple) else (found,), strict=True):
            column.append(bits)
    return Case(name or form, form, body, columns, expected, len(columns[0]))
