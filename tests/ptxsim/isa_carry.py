"""Cases of the forms that write or read the carry, with expected values from plain Python integers."""

from collections.abc import Iterator

from ptxsim_tests_isa_case import Case, mask, samples, value_case

KINDS = ("u32", "s32", "u64", "s64")


def after(sign: int, a: int, b: int, carried: int, bits: int) -> tuple[int, int]:
    """Return a + b + carried, or with sign -1 a - b - carried, modulo 2^n, and whether it went beyond."""
    whole = a + sign * (b + carried)
    return mask(whole, bits), int(not 0 <= whole < 1 << bits)


def sums(head: str, sign: int, kind: str) -> Iterator[Case]:
    """Every form of a sum or difference: the carry comes from the operands c and d, and goes to output y."""
    bits = int(kind[1:])
    columns = samples([kind] * 4)
    for name, reads, writes in ((f"{head}.cc", 0, 1), (f"{head}c", 1, 0), (f"{head}c.cc", 1, 1)):
        form = f"{name}.{kind}"

        def work(a, b, c, d, reads=reads, writes=writes):
            before = after(sign, c, d, 0, bits)[1]
            result, carry = after(sign, a, b, before if reads else 0, bits)
            return result, after(sign, 0, 0, carry if writes else before, bits)[0]

        statement = (
            f"{head}.cc.{kind} {{y}}, {{c}}, {{d}}; {form} {{x}}, {{a}}, {{b}}; {head}c.{kind} {{y}}, 0, 0"
        )
        yield value_case(form, statement, [kind] * 4, [kind] * 2, columns, work)


def masks() -> Iterator[Case]:
    """``bmsk``: as the ISA's own lines compute it, for positions and widths on both sides of 32."""
    for mode in ("clamp", "wrap"):

        def work(a, b, mode=mode):
            position, width = a & 31, b & 31
            from_position = mask(-1 << position, 32)
            from_end = mask(-1 << (position + width), 32)
            beyond = position + width >= 32
            if mode == "clamp":
                from_position = from_position if a < 32 else 0
                beyond |= a >= 32 or b >= 32
            return from_position & ~(0 if beyond else from_end)

        form = f"bmsk.{mode}.b32"
        columns = samples(["b32"] * 2, small=[0, 1])
        yield value_case(form, f"{form} {{x}}, {{a}}, {{b}}", ["b32"] * 2, ["b32"], columns, work)


def cases() -> list[Case]:
    """Return every case of this file."""
    made = [
        case for kind in KINDS for head, sign in (("add", 1), ("sub", -1)) for case in sums(head, sign, kind)
    ]
    return [*made, *masks()]
