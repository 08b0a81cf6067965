"""Float32 instructions: the functions of `spec.arithmetic`, which alone say what they compute.

``.rn`` is PTX's default rounding of add, sub, mul and fma, so the forms without it are the same function
here; that ptxas may fuse those is the kernels' concern, and a test there sees that none is used.
"""

from oracle.ptxsim.emitter import Emitter
from oracle.ptxsim.forms import form
from oracle.ptxsim.syntax import Instruction


@form("{name:add,sub}{rounding:,.rn}.f32", "d s s")
def add(e: Emitter, i: Instruction, name: str, rounding: str) -> None:
    """Sum (A2), or difference: the sum with b's sign turned."""
    a, b = e.arrays([*i.operands[1:]], ["f4", "f4"])
    if name == "sub":
        b = f"alu.negative({b})"
    e.target(i.operands[0], "f4", f"add_rn({a}, {b})")


@form("mul{rounding:,.rn}.f32", "d s s")
def mul(e: Emitter, i: Instruction, rounding: str) -> None:
    """Product (A1)."""
    a, b = e.arrays([*i.operands[1:]], ["f4", "f4"])
    e.target(i.operands[0], "f4", f"mul_rn({a}, {b})")


@form("{name:add,mul}{rounding:,.rn}.f32x2", "d s s")
def packed(e: Emitter, i: Instruction, name: str, rounding: str) -> None:
    """Two sums (A2) or products (A1), one in each half of 64 bits."""
    a, b = e.arrays([*i.operands[1:]], ["u8", "u8"])
    e.target(i.operands[0], "u8", f"alu.joined({name}_rn(alu.halves({a}), alu.halves({b})))")


@form("fma.rn.f32", "d s s s")
def fma(e: Emitter, i: Instruction) -> None:
    """Product plus c, rounded once."""
    a, b, c = e.arrays([*i.operands[1:]], ["f4", "f4", "f4"])
    e.target(i.operands[0], "f4", f"fma_rn({a}, {b}, {c})")


@form("ex2.approx{flush:,.ftz}.f32", "d s")
def ex2(e: Emitter, i: Instruction, flush: str) -> None:
    """Two to the power of a (A3), or the unit's own (A5)."""
    (a,) = e.arrays([i.operands[1]], ["f4"])
    e.target(i.operands[0], "f4", f"ex2_approx{flush.replace('.', '_')}({a})")


@form("rcp.approx.ftz.f32", "d s")
def rcp(e: Emitter, i: Instruction) -> None:
    """Take the unit's reciprocal (A6)."""
    (a,) = e.arrays([i.operands[1]], ["f4"])
    e.target(i.operands[0], "f4", f"rcp_approx({a})")


@form("div.full.f32", "d s s")
def div(e: Emitter, i: Instruction) -> None:
    """Quotient by the unit's reciprocal (A4)."""
    a, b = e.arrays([*i.operands[1:]], ["f4", "f4"])
    e.target(i.operands[0], "f4", f"div_full({a}, {b})")


@form("div.rn.f32", "d s s")
def div_rn(e: Emitter, i: Instruction) -> None:
    """Quotient as IEEE 754 has it."""
    a, b = e.arrays([*i.operands[1:]], ["f4", "f4"])
    e.target(i.operands[0], "f4", f"alu.quotient({a}, {b})")


@form("{name:neg,abs}.f32", "d s")
def sign(e: Emitter, i: Instruction, name: str) -> None:
    """Turn or clear the sign; a NaN becomes 0x7fffffff."""
    (a,) = e.arrays([i.operands[1]], ["f4"])
    e.target(i.operands[0], "f4", f"alu.{'negative' if name == 'neg' else 'magnitude'}({a})")


@form("copysign.f32", "d s s")
def copysign(e: Emitter, i: Instruction) -> None:
    """B with the sign of a."""
    a, b = e.arrays([*i.operands[1:]], ["f4", "f4"])
    e.target(i.operands[0], "f4", f"copysign({b}, {a})")


@form("{name:min,max}{nan:,.NaN}.f32", "d s s")
def min_max(e: Emitter, i: Instruction, name: str, nan: str) -> None:
    """Minimum or maximum; one NaN operand is dropped, or with ``.NaN`` wins; a NaN result is 0x7fffffff."""
    a, b = e.arrays([*i.operands[1:]], ["f4", "f4"])
    e.target(i.operands[0], "f4", f"alu.{name}imum_float({a}, {b}, {bool(nan)})")
