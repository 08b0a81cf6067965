"""Moves, conversions, comparisons, selections and predicates."""

from oracle.ptxsim.emitter import Emitter, code_of, encode, width_of
from oracle.ptxsim.forms import form
from oracle.ptxsim.operands import WIDTHS
from oracle.ptxsim.syntax import (
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

_ORDERED = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}


@form("mov.{kind:pred,b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}", "d x")
def move(e: Emitter, i: Instruction, kind: str) -> None:
    """Copy a register, constant, special register or address."""
    code = code_of(kind)
    source = i.operands[1]
    if e.immediate(source) is not None:
        e.target(i.operands[0], code, e.filled(e.source(source, code)))
    elif isinstance(source, Special):
        e.target(i.operands[0], code, e.source(source, code))
    elif isinstance(source, Register):
        home = "?" if source.type == "pred" else code_of("b" + str(8 * width_of(source)))
        if code[0] == "f" and home != "?":
            home = code
        e.target(i.operands[0], home, e.source(source, home))


@form("mov.{kind:b32,b64}.pack{count:2}", "d S2")
@form("mov.{kind:b64}.pack{count:4}", "d S4")
def pack(e: Emitter, i: Instruction, kind: str, count: str) -> None:
    """``mov.b64 d, {a, b}``: the first item is the low part."""
    total = WIDTHS[kind]
    vector = i.operands[1]
    assert isinstance(vector, Vector)
    part = total // int(count)
    code = f"u{total}"
    terms = []
    for k, item in enumerate(vector.items):
        if (known := e.immediate(item)) is not None:
            masked = known.bits & ((1 << 8 * part) - 1)
            terms.append(e.constant(Immediate(masked << (8 * part * k)), code))
            continue
        term = f"{e.source(item, f'u{part}')}.astype({code!r})"
        terms.append(f"({term} << {e.constant(Immediate(8 * part * k), code)})" if k else term)
    if all(e.immediate(item) is not None for item in vector.items):
        terms[0] = e.filled(terms[0])
    e.target(i.operands[0], code, " | ".join(terms))


@form("mov.{kind:b32,b64}.unpack{count:2}", "D2 s")
@form("mov.{kind:b64}.unpack{count:4}", "D4 s")
def unpack(e: Emitter, i: Instruction, kind: str, count: str) -> None:
    """``mov.b64 {a, b}, s``: the first item is the low part."""
    total = WIDTHS[kind]
    vector = i.operands[0]
    assert isinstance(vector, Vector)
    part = total // int(count)
    (source,) = e.arrays([i.operands[1]], [f"u{total}"])
    held = e.temporary(source)
    for k, item in enumerate(vector.items):
        if not isinstance(item, Sink):
            shifted = f"({held} >> {e.constant(Immediate(8 * part * k), f'u{total}')})" if k else held
            e.target(item, f"u{part}", f"{shifted}.astype('u{part}')")


@form("cvta.{way:,to.}{space:global,shared,shared::cta,shared::cluster,local,const,param}.u64", "d x")
def convert_address(e: Emitter, i: Instruction, way: str, space: str) -> None:
    """Address of a state space to a generic one (plain) or back (``to``)."""
    base = e.constant(Immediate(e.symbols[f"window:{space}"]), "u8")
    (a,) = (
        e.arrays([i.operands[1]], ["u8"])
        if not isinstance(i.operands[1], Symbol)
        else (e.filled(e.source(i.operands[1], "u8")),)
    )
    e.target(i.operands[0], "u8", f"{a} {'-' if way else '+'} {base}")


@form("selp.{kind:b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}", "d s s p")
def select(e: Emitter, i: Instruction, kind: str) -> None:
    """Select a where the predicate holds, else b; with constants a product with the predicate will do."""
    size = WIDTHS[kind]
    code = f"u{size}"
    a, b = e.immediate(i.operands[1]), e.immediate(i.operands[2])
    predicate = e.source(i.operands[3], "?")
    zero = Immediate(0)
    if e.immediate(i.operands[3]) is not None:
        predicate = e.filled(predicate)
    if a is not None and b is not None:
        left, right = (_bits(value, size) for value in (a, b))
        product = f"multiply({predicate}, {e.constant(Immediate(left ^ right), code)}, dtype={code!r})"
        expression = product if right == 0 else f"{product} ^ {e.constant(Immediate(right), code)}"
    elif b is not None and _bits(b, size) == _bits(zero, size):
        expression = f"{e.source(i.operands[1], code)} * {predicate}"
    elif a is not None and _bits(a, size) == _bits(zero, size):
        expression = f"{e.source(i.operands[2], code)} * ~{predicate}"
    else:
        x, y = (e.source(operand, code) for operand in i.operands[1:3])
        expression = f"(({x} ^ {y}) * {predicate}) ^ {y}"
    e.target(i.operands[0], code, expression)


def _bits(immediate: Immediate, size: int) -> int:
    return int(encode(immediate, f"u{size}"))


def _comparison(e: Emitter, a: Operand, b: Operand, comparison: str, code: str) -> str:
    left, right = e.arrays([a, b], [code, code])
    if comparison in ("num", "nan"):
        nan = f"(({left} != {left}) | ({right} != {right}))"
        return f"~{nan}" if comparison == "num" else nan
    if comparison in _UNORDERED:
        return f"(({left} {_UNORDERED[comparison]} {right}) | ({left} != {left}) | ({right} != {right}))"
    if comparison == "ne" and code[0] == "f":
        return f"(({left} < {right}) | ({left} > {right}))"
    return f"({left} {_ORDERED[comparison]} {right})"


def _set_predicate(e: Emitter, i: Instruction, comparison: str, kind: str, combine: str) -> None:
    code = code_of(kind)
    result = _comparison(e, i.operands[1], i.operands[2], comparison, code)
    destination = i.operands[0]
    firsts: list[Operand] = [destination]
    if isinstance(destination, Pair):
        firsts = [destination.first, destination.second]
    if len(firsts) == 1 and not combine:
        e.target(firsts[0], "?", result)
        return
    held = e.temporary(result)
    values = [held, f"~{held}"]
    if combine:
        other = e.temporary(e.source(i.operands[3], "?"))
        values = [
            f"{value} {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[combine]} {other}"
            for value in values
        ]
    values = [e.temporary(value) for value in values[: len(firsts)]]
    for target, value in zip(firsts, values, strict=True):
        e.target(target, "?", value)


@form("setp.{comparison:eq,ne}.{kind:b16,b32,b64}", "q s s")
@form("setp.{comparison:eq,ne,lt,le,gt,ge}.{kind:u16,s16,u32,s32,u64,s64}", "q s s")
@form("setp.{comparison:lo,ls,hi,hs}.{kind:u16,u32,u64}", "q s s")
@form("setp.{comparison:eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{kind:f32,f64}", "q s s")
def set_predicate(e: Emitter, i: Instruction, comparison: str, kind: str) -> None:
    """Compare; ``p|q`` sets q to the opposite. With a NaN, ordered comparisons are false, unordered true."""
    _set_predicate(e, i, comparison, kind, "")


@form("setp.{comparison:eq,ne}.{combine:and,or,xor}.{kind:b16,b32,b64}", "q s s p")
@form("setp.{comparison:eq,ne,lt,le,gt,ge}.{combine:and,or,xor}.{kind:u16,s16,u32,s32,u64,s64}", "q s s p")
@form("setp.{comparison:lo,ls,hi,hs}.{combine:and,or,xor}.{kind:u16,u32,u64}", "q s s p")
@form(
    "setp.{comparison:eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{combine:and,or,xor}.{kind:f32,f64}",
    "q s s p",
)
def set_predicate_combined(e: Emitter, i: Instruction, comparison: str, combine: str, kind: str) -> None:
    """Compare and combine with a predicate; ``p|q`` combines the opposite for q."""
    _set_predicate(e, i, comparison, kind, combine)


_INTEGER_TYPES = "u8,s8,u16,s16,u32,s32,u64,s64"


@form("cvt.{to:" + _INTEGER_TYPES + "}.{of:" + _INTEGER_TYPES + "}", "d s")
def convert_integer(e: Emitter, i: Instruction, to: str, of: str) -> None:
    """Truncate, or extend by the sign of the source type."""
    source, target = code_of(of), code_of(to)
    if e.immediate(i.operands[1]) is not None:
        value = e.filled(e.source(i.operands[1], source))
    else:
        value = e.wide(i.operands[1], source)
    # Assigning to the register extends by the sign of the destination type.
    e.extended(i.operands[0], target, f"{value}.astype({target!r})" if source != target else value)


@form("cvt.sat.{to:" + _INTEGER_TYPES + "}.{of:" + _INTEGER_TYPES + "}", "d s")
def convert_saturating(e: Emitter, i: Instruction, to: str, of: str) -> None:
    """Clamp to the range of the destination type."""
    source, target = code_of(of), code_of(to)
    value = e.wide(i.operands[1], source)
    if e.immediate(i.operands[1]) is not None:
        value = e.filled(value)
    e.extended(i.operands[0], target, f"alu.saturate({value}, {target!r})")


@form("cvt.rn.f32.{of:" + _INTEGER_TYPES + "}", "d s")
def convert_to_float(e: Emitter, i: Instruction, of: str) -> None:
    """Integer to float32, to nearest even."""
    value = e.wide(i.operands[1], code_of(of))
    if e.immediate(i.operands[1]) is not None:
        value = e.filled(value)
    e.target(i.operands[0], "f4", f"{value}.astype('f4')")


@form("cvt.{rounding:rni,rzi,rmi,rpi}.{to:s32,u32,s64,u64}.f32", "d s")
def convert_to_integer(e: Emitter, i: Instruction, rounding: str, to: str) -> None:
    """Float32 to integer, saturated; NaN gives 0."""
    (value,) = e.arrays([i.operands[1]], ["f4"])
    e.target(i.operands[0], code_of(to), f"alu.to_integer({value}, {code_of(to)!r}, {rounding!r})")


@form("cvt.f32.bf16", "d s")
def convert_bfloat(e: Emitter, i: Instruction) -> None:
    """Bfloat16 to float32: its bits are the upper half, a NaN's payload included."""
    (value,) = e.arrays([i.operands[1]], ["u2"])
    e.target(i.operands[0], "f4", f"({value}.astype('u4') << {e.constant(Immediate(16), 'u4')}).view('f4')")
