"""Sums and differences that write or read the carry: for differences it is the borrow."""

from oracle.ptxsim.emitter import Emitter, code_of
from oracle.ptxsim.forms import form
from oracle.ptxsim.syntax import Instruction

_KINDS = "u32,s32,u64,s64"


@form("{name:add,sub}.cc.{kind:" + _KINDS + "}", "d s s K")
@form("{name:addc,subc}.{kind:" + _KINDS + "}", "d s s k")
@form("{name:addc,subc}.cc.{kind:" + _KINDS + "}", "d s s k K")
def with_carry(e: Emitter, i: Instruction, name: str, kind: str) -> None:
    """Sum or difference modulo 2^n, with the carry of the one before: that of unsigned numbers."""
    code = code_of("u" + kind[1:])
    a, b = e.arrays([*i.operands[1:3]], [code, code])
    sign, beyond = ("+", "<") if name.startswith("add") else ("-", ">")
    first = e.temporary(f"{a} {sign} {b}")
    result, carry = first, f"{first} {beyond} {a}"
    if name.endswith("c"):
        carried = e.source(i.operands[3], "?")
        result = e.temporary(f"{first} {sign} {carried}")
        carry = f"({carry}) | ({result} {beyond} {first})"
    if "cc" in i.opcode.split("."):
        carry = e.temporary(carry)
    e.target(i.operands[0], code, result)
    if "cc" in i.opcode.split("."):
        e.target(i.operands[-1], "?", carry)
