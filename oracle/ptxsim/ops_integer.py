"""Integer, logic and bit instructions: each emits one NumPy expression, or a call into `alu`.

Shift amounts clamp in NumPy as they do in PTX: an amount of at least the width gives 0, or the sign for
``shr.s``.
"""

from oracle.ptxsim.emitter import DTYPES, Emitter, code_of
from oracle.ptxsim.forms import form
from oracle.ptxsim.syntax import Immediate, Instruction, Operand

_INTEGERS = "u16,s16,u32,s32,u64,s64"
_WIDE = {"u2": "u4", "i2": "i4", "u4": "u8", "i4": "i8"}


def _unsigned(kind: str) -> str:
    return code_of("u" + kind[1:])


def _narrow_product(e: Emitter, a: Operand, b: Operand, code: str) -> tuple[str, str]:
    """Return both factors; a power of two stays a product, NumPy multiplies as fast as it shifts."""
    left, right = e.arrays([a, b], [code, code])
    return left, right


@form("add.{kind:" + _INTEGERS + "}", "d s s")
def add(e: Emitter, i: Instruction, kind: str) -> None:
    """Sum modulo 2^n."""
    code = _unsigned(kind)
    a, b = e.arrays([*i.operands[1:]], [code, code])
    e.target(i.operands[0], code, f"{a} + {b}")


@form("sub.{kind:" + _INTEGERS + "}", "d s s")
def sub(e: Emitter, i: Instruction, kind: str) -> None:
    """Difference modulo 2^n."""
    code = _unsigned(kind)
    a, b = e.arrays([*i.operands[1:]], [code, code])
    e.target(i.operands[0], code, f"{a} - {b}")


@form("mul.lo.{kind:" + _INTEGERS + "}", "d s s")
def mul_lo(e: Emitter, i: Instruction, kind: str) -> None:
    """Low half of the product."""
    code = _unsigned(kind)
    a, b = _narrow_product(e, i.operands[1], i.operands[2], code)
    e.target(i.operands[0], code, f"{a} * {b}")


@form("mul.hi.{kind:u16,s16,u32,s32,u64,s64}", "d s s")
def mul_hi(e: Emitter, i: Instruction, kind: str) -> None:
    """High half of the product."""
    code = code_of(kind)
    a, b = e.arrays([*i.operands[1:]], [code, code])
    e.target(i.operands[0], code, f"alu.multiply_high({a}, {b})")


def _widened(e: Emitter, operand: Operand, code: str) -> str:
    """Return an operand converted to twice its width."""
    if (known := e.immediate(operand)) is not None:
        masked = known.bits & ((1 << 8 * DTYPES[code].itemsize) - 1)
        if code[0] == "i" and masked >> (8 * DTYPES[code].itemsize - 1):
            masked -= 1 << 8 * DTYPES[code].itemsize
        return e.constant(Immediate(masked), _WIDE[code])
    return f"{e.source(operand, code)}.astype({_WIDE[code]!r})"


def _wide_product(e: Emitter, i: Instruction, code: str) -> str:
    a, b = (_widened(e, operand, code) for operand in i.operands[1:3])
    if all(e.immediate(operand) is not None for operand in i.operands[1:3]):
        a = e.filled(a)
    return f"{a} * {b}"


@form("mul.wide.{kind:u16,s16,u32,s32}", "d s s")
def mul_wide(e: Emitter, i: Instruction, kind: str) -> None:
    """Product of twice the width."""
    code = code_of(kind)
    e.target(i.operands[0], _WIDE[code], _wide_product(e, i, code))


@form("mad.lo.{kind:" + _INTEGERS + "}", "d s s s")
def mad_lo(e: Emitter, i: Instruction, kind: str) -> None:
    """Low half of the product, plus c."""
    code = _unsigned(kind)
    a, b = _narrow_product(e, i.operands[1], i.operands[2], code)
    e.target(i.operands[0], code, f"{a} * {b} + {e.source(i.operands[3], code)}")


@form("mad.hi.{kind:u16,s16,u32,s32,u64,s64}", "d s s s")
def mad_hi(e: Emitter, i: Instruction, kind: str) -> None:
    """High half of the product, plus c modulo 2^n."""
    code = code_of(kind)
    a, b = e.arrays([*i.operands[1:3]], [code, code])
    c = e.source(i.operands[3], _unsigned(kind))
    e.target(i.operands[0], _unsigned(kind), f"alu.multiply_high({a}, {b}).view({_unsigned(kind)!r}) + {c}")


@form("mad.wide.{kind:u16,s16,u32,s32}", "d s s s")
def mad_wide(e: Emitter, i: Instruction, kind: str) -> None:
    """Product of twice the width, plus c."""
    code = code_of(kind)
    c = e.source(i.operands[3], _WIDE[code])
    e.target(i.operands[0], _WIDE[code], f"{_wide_product(e, i, code)} + {c}")


@form("{name:div,rem}.{kind:" + _INTEGERS + "}", "d s s", pure=False)
def divide(e: Emitter, i: Instruction, name: str, kind: str) -> None:
    """Divide toward zero, or take the remainder; a zero divisor is an error (PTX leaves it open)."""
    code = code_of(kind)
    a, b = e.arrays([*i.operands[1:]], [code, code])
    if e.immediate(i.operands[2]) is None or e.immediate(i.operands[2]) == Immediate(0):
        guard = e.guard() or "None"
        b = e.temporary(f"M.divisor({e.index}, G, {b}, {guard})")
    e.target(i.operands[0], code, f"alu.{name}({a}, {b})")


@form("{name:min,max}.{kind:" + _INTEGERS + "}", "d s s")
def min_max(e: Emitter, i: Instruction, name: str, kind: str) -> None:
    """Minimum or maximum."""
    code = code_of(kind)
    a, b = e.arrays([*i.operands[1:]], [code, code])
    e.target(i.operands[0], code, f"{name}imum({a}, {b})")


@form("abs.{kind:s16,s32,s64}", "d s")
def absolute(e: Emitter, i: Instruction, kind: str) -> None:
    """Absolute value; the most negative number stays as it is."""
    code = code_of(kind)
    (a,) = e.arrays([i.operands[1]], [code])
    e.target(i.operands[0], code, f"absolute({a})")


@form("neg.{kind:s16,s32,s64}", "d s")
def negate(e: Emitter, i: Instruction, kind: str) -> None:
    """Two's complement negation."""
    code = code_of(kind)
    (a,) = e.arrays([i.operands[1]], [code])
    e.target(i.operands[0], code, f"-{a}")


@form("sad.{kind:u16,s16,u32,s32,u64,s64}", "d s s s")
def sad(e: Emitter, i: Instruction, kind: str) -> None:
    """C plus the absolute difference of a and b."""
    code = code_of(kind)
    a, b = e.arrays([*i.operands[1:3]], [code, code])
    c = e.source(i.operands[3], _unsigned(kind))
    e.target(i.operands[0], _unsigned(kind), f"alu.absolute_difference({a}, {b}) + {c}")


@form("{name:and,or,xor}.{kind:pred,b16,b32,b64}", "d s s")
def logic(e: Emitter, i: Instruction, name: str, kind: str) -> None:
    """Bitwise and, or, exclusive or."""
    code = code_of(kind)
    a, b = e.arrays([*i.operands[1:]], [code, code])
    e.target(i.operands[0], code, f"{a} {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[name]} {b}")


@form("not.{kind:pred,b16,b32,b64}", "d s")
def invert(e: Emitter, i: Instruction, kind: str) -> None:
    """Bitwise complement."""
    code = code_of(kind)
    (a,) = e.arrays([i.operands[1]], [code])
    e.target(i.operands[0], code, f"~{a}")


@form("cnot.{kind:b16,b32,b64}", "d s")
def logical_not(e: Emitter, i: Instruction, kind: str) -> None:
    """1 where the operand is 0, else 0."""
    code = code_of(kind)
    (a,) = e.arrays([i.operands[1]], [code])
    e.target(i.operands[0], code, f"({a} == 0).astype({code!r})")


@form("shl.{kind:b16,b32,b64}", "d s s")
def shift_left(e: Emitter, i: Instruction, kind: str) -> None:
    """Shift left; the amount is a u32 and clamps."""
    code = code_of(kind)
    a, n = e.arrays([*i.operands[1:]], [code, "u4"])
    e.target(i.operands[0], code, f"{a} << {_amount(e, i.operands[2], n, code)}")


@form("shr.{kind:b16,u16,s16,b32,u32,s32,b64,u64,s64}", "d s s")
def shift_right(e: Emitter, i: Instruction, kind: str) -> None:
    """Shift right, with the sign for s types; the amount is a u32 and clamps."""
    code = code_of(kind)
    a, n = e.arrays([*i.operands[1:]], [code, "u4"])
    e.target(i.operands[0], code, f"{a} >> {_amount(e, i.operands[2], n, code)}")


def _amount(e: Emitter, operand: Operand, expression: str, code: str) -> str:
    """Return a shift amount in the type of the shifted value, at most its width."""
    width = 8 * DTYPES[code].itemsize
    if (known := e.immediate(operand)) is not None:
        return e.constant(Immediate(min(known.bits & 0xFFFFFFFF, width)), code)
    if code == "u4":
        return expression
    if code == "i4":
        return f"minimum({expression}, {e.constant(Immediate(width), 'u4')}).view('i4')"
    return f"minimum({expression}, {e.constant(Immediate(width), 'u4')}).astype({code!r})"


@form("shf.{side:l,r}.{mode:wrap,clamp}.b32", "d s s s")
def funnel_shift(e: Emitter, i: Instruction, side: str, mode: str) -> None:
    """Shift the 64-bit value b:a and return its high (l) or low (r) half."""
    a, b, c = e.arrays([*i.operands[1:]], ["u4", "u4", "u4"])
    e.target(i.operands[0], "u4", f"alu.funnel_shift({a}, {b}, {c}, {side!r}, {mode!r})")


@form("{name:popc,clz}.{kind:b32,b64}", "d s")
def count_bits(e: Emitter, i: Instruction, name: str, kind: str) -> None:
    """Count ones, or leading zeros, as u32."""
    (a,) = e.arrays([i.operands[1]], [code_of(kind)])
    e.target(i.operands[0], "u4", f"alu.{name}({a})")


@form("brev.{kind:b32,b64}", "d s")
def reverse_bits(e: Emitter, i: Instruction, kind: str) -> None:
    """Bits in reverse order."""
    (a,) = e.arrays([i.operands[1]], [code_of(kind)])
    e.target(i.operands[0], code_of(kind), f"alu.reverse_bits({a})")


@form("bfind.{shift:shiftamt.,}{kind:u32,s32,u64,s64}", "d s")
def find_bit(e: Emitter, i: Instruction, shift: str, kind: str) -> None:
    """Find the highest bit that is no sign, or the shift that brings it to the top; 0xffffffff if none."""
    (a,) = e.arrays([i.operands[1]], [code_of(kind)])
    e.target(i.operands[0], "u4", f"alu.find_bit({a}, {bool(shift)})")


@form("bfe.{kind:u32,s32,u64,s64}", "d s s s")
def extract_field(e: Emitter, i: Instruction, kind: str) -> None:
    """Bit field from position b of length c (low 8 bits of each), sign- or zero-extended."""
    code = code_of(kind)
    a, b, c = e.arrays([*i.operands[1:]], [code, "u4", "u4"])
    e.target(i.operands[0], code, f"alu.extract_field({a}, {b}, {c})")


@form("bmsk.{mode:clamp,wrap}.b32", "d s s")
def make_mask(e: Emitter, i: Instruction, mode: str) -> None:
    """Ones from position a, b of them; numbers past 31 count as 32, or modulo 32."""
    a, b = e.arrays([*i.operands[1:]], ["u4", "u4"])
    e.target(i.operands[0], "u4", f"alu.make_mask({a}, {b}, {mode!r})")


@form("bfi.{kind:b32,b64}", "d s s s s")
def insert_field(e: Emitter, i: Instruction, kind: str) -> None:
    """B with a inserted at position c, length d (low 8 bits of each)."""
    code = code_of(kind)
    a, b, c, d = e.arrays([*i.operands[1:]], [code, code, "u4", "u4"])
    e.target(i.operands[0], code, f"alu.insert_field({a}, {b}, {c}, {d})")


@form("prmt.b32{mode:,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", "d s s s")
def permute_bytes(e: Emitter, i: Instruction, mode: str) -> None:
    """Pick four bytes of b:a, each optionally replaced by its sign."""
    a, b, c = e.arrays([*i.operands[1:]], ["u4", "u4", "u4"])
    e.target(i.operands[0], "u4", f"alu.permute_bytes({a}, {b}, {c}, {mode[1:]!r})")


@form("lop3.b32", "d s s s s")
def lop3(e: Emitter, i: Instruction) -> None:
    """Any function of three bits, by its truth table."""
    table = e.immediate(i.operands[4])
    if table is None or not 0 <= table.bits <= 255:
        raise e.fail("lop3 needs a constant table 0..255")
    a, b, c = e.arrays([*i.operands[1:4]], ["u4", "u4", "u4"])
    e.target(i.operands[0], "u4", f"alu.lop3({a}, {b}, {c}, {table.bits})")
