"""Cases of the integer, logic and bit forms, with expected values from plain Python integers."""

from collections.abc import Callable, Iterator
from functools import partial

from ptxsim_tests_isa_case import Case, mask, samples, signed, typed, value_case

ALL = ("u16", "s16", "u32", "s32", "u64", "s64")
BITS = ("b16", "b32", "b64")


def bits_of(kind: str) -> int:
    """Return the width of a type."""
    return int(kind[1:])


def reduced(reference: Callable[..., int], kind: str, *values: int) -> int:
    """Apply an operation on integers to registers, modulo 2^n."""
    return mask(reference(*(typed(value, kind) for value in values)), bits_of(kind))


def truncated(a: int, b: int) -> int:
    """Divide toward zero."""
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def arithmetic() -> Iterator[Case]:
    """Sums, products, quotients and the like."""
    for kind in ALL:
        n = bits_of(kind)
        two, three = samples([kind] * 2), samples([kind] * 3)

        def make(form, operands, count, reference, kind=kind, n=n, two=two, three=three):
            return value_case(
                form,
                f"{form} {{x}}, {operands}",
                [kind] * count,
                [kind],
                two if count == 2 else three,
                partial(reduced, reference, kind),
            )

        yield make(f"add.{kind}", "{a}, {b}", 2, lambda a, b: a + b)
        yield make(f"sub.{kind}", "{a}, {b}", 2, lambda a, b: a - b)
        yield make(f"mul.lo.{kind}", "{a}, {b}", 2, lambda a, b: a * b)
        yield make(f"mul.hi.{kind}", "{a}, {b}", 2, lambda a, b, n=n: (a * b) >> n)
        yield make(f"mad.lo.{kind}", "{a}, {b}, {c}", 3, lambda a, b, c: a * b + c)
        yield make(f"mad.hi.{kind}", "{a}, {b}, {c}", 3, lambda a, b, c, n=n: ((a * b) >> n) + c)
        yield make(f"min.{kind}", "{a}, {b}", 2, min)
        yield make(f"max.{kind}", "{a}, {b}", 2, max)
        yield make(f"sad.{kind}", "{a}, {b}, {c}", 3, lambda a, b, c: c + abs(a - b))
        nonzero = [two[0], [v or 5 for v in two[1]]]
        for name, work in (("div", truncated), ("rem", lambda a, b: a - truncated(a, b) * b)):
            yield value_case(
                f"{name}.{kind}",
                f"{name}.{kind} {{x}}, {{a}}, {{b}}",
                [kind] * 2,
                [kind],
                nonzero,
                lambda a, b, kind=kind, n=n, work=work: mask(work(typed(a, kind), typed(b, kind)), n),
            )
        if kind.startswith("s"):
            yield value_case(
                f"abs.{kind}",
                f"abs.{kind} {{x}}, {{a}}",
                [kind],
                [kind],
                two[:1],
                lambda a, n=n: mask(abs(signed(a, n)), n),
            )
            yield value_case(
                f"neg.{kind}", f"neg.{kind} {{x}}, {{a}}", [kind], [kind], two[:1], lambda a, n=n: mask(-a, n)
            )
    for kind in ("u16", "s16", "u32", "s32"):
        n = bits_of(kind)
        wide = kind[0] + str(2 * n)
        columns = [*samples([kind] * 2), samples([wide])[0]]
        yield value_case(
            f"mul.wide.{kind}",
            f"mul.wide.{kind} {{x}}, {{a}}, {{b}}",
            [kind] * 2,
            [wide],
            columns[:2],
            lambda a, b, kind=kind, n=n: mask(typed(a, kind) * typed(b, kind), 2 * n),
        )
        yield value_case(
            f"mad.wide.{kind}",
            f"mad.wide.{kind} {{x}}, {{a}}, {{b}}, {{c}}",
            [kind, kind, wide],
            [wide],
            columns,
            lambda a, b, c, kind=kind, n=n: mask(typed(a, kind) * typed(b, kind) + c, 2 * n),
        )
        factor = mask(-3, n)
        yield value_case(
            f"mul.wide.{kind}",
            f"mul.wide.{kind} {{x}}, {{a}}, {factor}",
            [kind],
            [wide],
            columns[:1],
            lambda a, kind=kind, n=n, f=factor: mask(typed(a, kind) * typed(f, kind), 2 * n),
            f"mul.wide.{kind}-by-a-constant",
        )


def logic() -> Iterator[Case]:
    """Bitwise operations and shifts."""
    operations = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
    for kind in ("pred", *BITS):
        n = 1 if kind == "pred" else bits_of(kind)
        two = samples([kind] * 2)
        for name, work in operations.items():
            yield value_case(
                f"{name}.{kind}", f"{name}.{kind} {{x}}, {{a}}, {{b}}", [kind] * 2, [kind], two, work
            )
        yield value_case(
            f"not.{kind}", f"not.{kind} {{x}}, {{a}}", [kind], [kind], two[:1], lambda a, n=n: mask(~a, n)
        )
    for kind in BITS:
        n = bits_of(kind)
        yield value_case(
            f"cnot.{kind}",
            f"cnot.{kind} {{x}}, {{a}}",
            [kind],
            [kind],
            samples([kind]),
            lambda a: int(a == 0),
        )
        columns = samples([kind, "u32"], small=[1])
        columns[1][:4] = [0xFFFFFFFF, 0x80000000, 1 << 16, (1 << 20) + 1]
        yield value_case(
            f"shl.{kind}",
            f"shl.{kind} {{x}}, {{a}}, {{b}}",
            [kind, "u32"],
            [kind],
            columns,
            lambda a, c, n=n: mask(a << min(c, n), n),
        )
        for letter in "bus":
            form = f"shr.{letter}{n}"
            yield value_case(
                form,
                f"{form} {{x}}, {{a}}, {{b}}",
                [kind, "u32"],
                [kind],
                columns,
                lambda a, c, n=n, t=f"{letter}{n}": mask(typed(a, t) >> min(c, n), n),
            )
            for amount in (0, 5, n - 1, n, 300):
                yield value_case(
                    form,
                    f"{form} {{x}}, {{a}}, {amount}",
                    [kind],
                    [kind],
                    columns[:1],
                    lambda a, n=n, t=f"{letter}{n}", c=amount: mask(typed(a, t) >> min(c, n), n),
                    f"{form}-by-the-constant-{amount}",
                )
    for side in "lr":
        for mode in ("wrap", "clamp"):
            form = f"shf.{side}.{mode}.b32"

            def funnel(a, b, c, side=side, mode=mode):
                count = c & 31 if mode == "wrap" else min(c, 32)
                both = b << 32 | a
                return mask(both << count >> 32, 32) if side == "l" else mask(both >> count, 32)

            yield value_case(
                form,
                f"{form} {{x}}, {{a}}, {{b}}, {{c}}",
                ["b32"] * 3,
                ["b32"],
                samples(["b32"] * 3, small=[2]),
                funnel,
            )


def field(number: int, bits: int) -> int:
    """Position or length of a bit field; an H200 reads all bits of it for 64-bit fields, unlike the ISA."""
    return number & 255 if bits == 32 else number


def wide_fields(columns: list[list[int]], first: int) -> list[list[int]]:
    """Give the first problems positions and lengths beyond 8 bits."""
    for row, (position, length) in enumerate([(1 << 27, 29), (43, 0x2D5C0E08), (1 << 14, 67), (5, 1 << 22)]):
        columns[first][row], columns[first + 1][row] = position, length
    return columns


def fields() -> Iterator[Case]:
    """Counting, reversing, finding and moving bits."""
    for kind in ("b32", "b64"):
        n = bits_of(kind)
        one = samples([kind])
        yield value_case(
            f"popc.{kind}", f"popc.{kind} {{x}}, {{a}}", [kind], ["u32"], one, lambda a: a.bit_count()
        )
        yield value_case(
            f"clz.{kind}", f"clz.{kind} {{x}}, {{a}}", [kind], ["u32"], one, lambda a, n=n: n - a.bit_length()
        )
        yield value_case(
            f"brev.{kind}",
            f"brev.{kind} {{x}}, {{a}}",
            [kind],
            [kind],
            one,
            lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2),
        )

        def insert(a, b, c, d, n=n):
            position, length = field(c, n), field(d, n)
            result = b
            for i in range(min(length, n)):
                if i < n and position + i < n:
                    result = result & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
            return result

        yield value_case(
            f"bfi.{kind}",
            f"bfi.{kind} {{x}}, {{a}}, {{b}}, {{c}}, {{d}}",
            [kind, kind, "u32", "u32"],
            [kind],
            wide_fields(samples([kind, kind, "u32", "u32"], small=[2, 3]), 2),
            insert,
        )
        for letter in "us":
            t = f"{letter}{n}"

            def find(a, n=n, t=t):
                value = typed(a, t)
                value = ~value if value < 0 else value
                return value.bit_length() - 1 if value else 0xFFFFFFFF

            yield value_case(f"bfind.{t}", f"bfind.{t} {{x}}, {{a}}", [t], ["u32"], one, find)
            yield value_case(
                f"bfind.shiftamt.{t}",
                f"bfind.shiftamt.{t} {{x}}, {{a}}",
                [t],
                ["u32"],
                one,
                lambda a, n=n, find=find: n - 1 - find(a) if find(a) != 0xFFFFFFFF else 0xFFFFFFFF,
            )

            def extract(a, b, c, n=n, t=t):
                position, length = field(b, n), field(c, n)
                sign = 0
                if t[0] == "s" and length:
                    sign = a >> min(position + length - 1, n - 1) & 1
                return sum(
                    (a >> (position + i) & 1 if i < length and position + i < n else sign) << i
                    for i in range(n)
                )

            yield value_case(
                f"bfe.{t}",
                f"bfe.{t} {{x}}, {{a}}, {{b}}, {{c}}",
                [t, "u32", "u32"],
                [t],
                wide_fields(samples([t, "u32", "u32"], small=[1, 2]), 1),
                extract,
            )
    yield from permutations()
    for table in (0x00, 0x96, 0xE8, 0xCA, 0xFF, 0x01):
        yield value_case(
            "lop3.b32",
            f"lop3.b32 {{x}}, {{a}}, {{b}}, {{c}}, {table}",
            ["b32"] * 3,
            ["b32"],
            samples(["b32"] * 3),
            lambda a, b, c, t=table: sum(
                (t >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32)
            ),
            f"lop3.b32-{table:#04x}",
        )


def permutations() -> Iterator[Case]:
    """``prmt``: the ISA's table of each mode, bytes from the most significant down."""
    tables = {
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }
    for mode in ("", *tables):
        form = "prmt.b32" + (f".{mode}" if mode else "")

        def permute(a, b, c, mode=mode):
            octets = (b << 32 | a).to_bytes(8, "little")
            if mode:
                picked = [octets[int(digit)] for digit in reversed(tables[mode][c & 3])]
            else:
                picked = []
                for k in range(4):
                    nibble = c >> 4 * k & 15
                    octet = octets[nibble & 7]
                    picked.append((255 if octet & 128 else 0) if nibble & 8 else octet)
            return int.from_bytes(bytes(picked), "little")

        yield value_case(
            form, f"{form} {{x}}, {{a}}, {{b}}, {{c}}", ["b32"] * 3, ["b32"], samples(["b32"] * 3), permute
        )


def cases() -> list[Case]:
    """Return every case of this file."""
    return [*arithmetic(), *logic(), *fields()]
