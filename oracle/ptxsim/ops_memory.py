"""Loads, stores, atomics and matrix moves: each becomes a call of the `Machine`, which checks addresses."""

from oracle.ptxsim.emitter import DTYPES, Emitter, code_of, default_home, width_of
from oracle.ptxsim.forms import form
from oracle.ptxsim.operands import WIDTHS
from oracle.ptxsim.syntax import Address, Instruction, Operand, Register, Sink, Vector

_ADDRESS = {"global": "u8", "shared": "u4", "cluster": "u4", "local": "u8", "generic": "u8", "param": "u8"}
_TYPES = "b8,u8,s8,b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64"
_QUAD_TYPES = "b8,u8,s8,b16,u16,s16,b32,u32,s32,f32"
_VECTOR_TYPES = "b8,u8,s8,b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64"


_SPACES = {"": "generic", ".shared::cta": "shared", ".shared::cluster": "cluster", ".global.nc": "global"}


def _items(operand: Operand) -> list[Operand]:
    return list(operand.items) if isinstance(operand, Vector) else [operand]


def _space(name: str) -> str:
    return _SPACES.get(name, name[1:])


def _steady(e: Emitter, address: Operand, space: str) -> str:
    """Return the argument that says of shared addresses that they are the same in every tile of a shape."""
    assert isinstance(address, Address)
    base = address.base
    known = e.immediate(base) is not None or (isinstance(base, Register) and base.index in e.steady)
    return ", True" if known and space == "shared" else ""


def _load(e: Emitter, i: Instruction, space: str, kind: str) -> None:
    targets = _items(i.operands[0])
    code = code_of(kind)
    first = next((t for t in targets if isinstance(t, Register)), None)
    if first is not None and width_of(first) == DTYPES[code].itemsize:
        code = e.homes.get(first.index, default_home(first))
    space = _space(space)
    lanes = e.lanes()
    base, offset = e.address(i.operands[1], _ADDRESS[space])
    arguments = f"{e.index}, {lanes}, {base}, {offset}, {code!r}, {len(targets)}"
    got = e.temporary(f"M.load_{space}({arguments}{_steady(e, i.operands[1], space)})")
    for k, target in enumerate(targets):
        if not isinstance(target, Sink):
            e.extended(target, code, f"{got}[{k}]", lanes)


@form("ld.param.{kind:" + _TYPES + "}", "d m")
@form("ld.param.v2.{kind:" + _VECTOR_TYPES + "}", "D2 m")
@form("ld.param.v4.{kind:b8,u8,s8,b16,u16,s16,b32,u32,s32,f32}", "D4 m")
def load_param(e: Emitter, i: Instruction, kind: str) -> None:
    """Load from the parameters; the address of a parameter is known when the kernel is compiled."""
    address = i.operands[1]
    assert isinstance(address, Address)
    known = e.immediate(address.base)
    if known is None:
        _load(e, i, ".param", kind)
        return
    offset = known.bits + address.offset - e.symbols["window:param"]
    code = code_of(kind)
    for k, target in enumerate(_items(i.operands[0])):
        e.extended(target, code, f"M.parameter({e.index}, G, {offset + k * WIDTHS[kind]}, {code!r})")


_LOADED = "ld{space:.global,.global.nc,.shared,.shared::cta,.shared::cluster,.local,}"
_STORED = "st{space:.global,.shared,.shared::cta,.shared::cluster,.local,}"


@form(_LOADED + ".{kind:" + _TYPES + "}", "d m", "memory")
@form(_LOADED + ".v2.{kind:" + _VECTOR_TYPES + "}", "D2 m", "memory")
@form(_LOADED + ".v4.{kind:" + _QUAD_TYPES + "}", "D4 m", "memory")
@form("ld{space:.global,.global.nc}.v4.{kind:b64,u64,s64,f64}", "D4 m", "memory")
@form("ld{space:.global,.global.nc}.v8.{kind:b32,u32,s32,f32}", "D8 m", "memory")
def load(e: Emitter, i: Instruction, space: str, kind: str) -> None:
    """Load one element or a vector; narrow elements are extended to the register."""
    _load(e, i, space, kind)


@form(_STORED + ".{kind:" + _TYPES + "}", "m s", "memory")
@form(_STORED + ".v2.{kind:" + _VECTOR_TYPES + "}", "m S2", "memory")
@form(_STORED + ".v4.{kind:" + _QUAD_TYPES + "}", "m S4", "memory")
@form("st{space:.global}.v4.{kind:b64,u64,s64,f64}", "m S4", "memory")
@form("st{space:.global}.v8.{kind:b32,u32,s32,f32}", "m S8", "memory")
def store(e: Emitter, i: Instruction, space: str, kind: str) -> None:
    """Store one element or a vector; of a wider register the low part."""
    size = WIDTHS[kind]
    space = _space(space)
    lanes = e.lanes()
    base, offset = e.address(i.operands[0], _ADDRESS[space])
    values = ", ".join(e.wide(item, f"u{size}") for item in _items(i.operands[1]))
    arguments = f"{e.index}, {lanes}, {base}, {offset}, 'u{size}', ({values},)"
    e.lines.append(f"M.store_{space}({arguments}{_steady(e, i.operands[0], space)})")


_ATOMICS = "{space:.global,.shared,.shared::cta,.shared::cluster,}"


@form("atom" + _ATOMICS + ".{name:add}.{kind:u32,s32,u64}", "d m s", "memory")
@form("atom" + _ATOMICS + ".{name:min,max}.{kind:u32,s32,u64,s64}", "d m s", "memory")
@form("atom" + _ATOMICS + ".{name:inc,dec}.{kind:u32}", "d m s", "memory")
@form("atom" + _ATOMICS + ".{name:and,or,xor,exch}.{kind:b32,b64}", "d m s", "memory")
@form("atom" + _ATOMICS + ".{name:cas}.{kind:b32,b64}", "d m s s", "memory")
def atom(e: Emitter, i: Instruction, space: str, name: str, kind: str) -> None:
    """Read, change and write back in one step, lane after lane; the result is what was there before."""
    code = code_of(kind)
    _atomic(e, i, space, name, code, i.operands[1], i.operands[2:], i.operands[0])


@form("red" + _ATOMICS + ".{name:add}.{kind:u32,s32,u64}", "m s", "memory")
@form("red" + _ATOMICS + ".{name:min,max}.{kind:u32,s32,u64,s64}", "m s", "memory")
@form("red" + _ATOMICS + ".{name:inc,dec}.{kind:u32}", "m s", "memory")
@form("red" + _ATOMICS + ".{name:and,or,xor}.{kind:b32,b64}", "m s", "memory")
def reduce(e: Emitter, i: Instruction, space: str, name: str, kind: str) -> None:
    """Change memory in one step, without a result."""
    _atomic(e, i, space, name, code_of(kind), i.operands[0], i.operands[1:], Sink())


def _atomic(
    e: Emitter,
    i: Instruction,
    space: str,
    name: str,
    code: str,
    address: Operand,
    values: tuple[Operand, ...],
    target: Operand,
) -> None:
    space = _space(space)
    lanes = e.lanes()
    base, offset = e.address(address, _ADDRESS[space])
    arguments = ", ".join(e.source(value, code) for value in values)
    call = f"({e.index}, {lanes}, {space!r}, {name!r}, {base}, {offset}, {code!r}, ({arguments},))"
    if isinstance(target, Sink):
        e.lines.append(f"M.reduction{call}")
    else:
        e.extended(target, code, e.temporary(f"M.atomic{call}"), lanes)


def _matrix_addresses(e: Emitter, i: Instruction, position: int) -> tuple[str, int]:
    if i.guard is not None:
        raise e.fail("a guard on an .aligned matrix instruction is not supported")
    return e.address(i.operands[position], "u4")


_MATRIX = ".sync.aligned.m8n8.x{count:1}{trans:,.trans}{space:.shared,.shared::cta}.b16"


@form("ldmatrix" + _MATRIX, "d m", "collective")
@form("ldmatrix" + _MATRIX.replace("count:1", "count:2"), "D2 m", "collective")
@form("ldmatrix" + _MATRIX.replace("count:1", "count:4"), "D4 m", "collective")
def load_matrix(e: Emitter, i: Instruction, count: str, trans: str, space: str) -> None:
    """Load 8x8 matrices of 16-bit elements: lane t gets the elements 2t and 2t+1 of each, row after row."""
    base, offset = _matrix_addresses(e, i, 1)
    got = e.temporary(f"M.load_matrix({e.index}, G, {base}, {offset}, {count}, {bool(trans)})")
    for k, target in enumerate(_items(i.operands[0])):
        e.target(target, "u4", f"{got}[{k}]")


@form("stmatrix" + _MATRIX, "m s", "collective")
@form("stmatrix" + _MATRIX.replace("count:1", "count:2"), "m S2", "collective")
@form("stmatrix" + _MATRIX.replace("count:1", "count:4"), "m S4", "collective")
def store_matrix(e: Emitter, i: Instruction, count: str, trans: str, space: str) -> None:
    """Store 8x8 matrices of 16-bit elements from the places where ldmatrix puts them."""
    base, offset = _matrix_addresses(e, i, 0)
    values = ", ".join(e.source(item, "u4") for item in _items(i.operands[1]))
    e.lines.append(f"M.store_matrix({e.index}, G, {base}, {offset}, ({values},), {bool(trans)})")


def narrowest(opcode: str) -> dict[str, int]:
    """Return the bytes of the narrowest access that an opcode makes to each space it may touch."""
    if opcode.startswith("mbarrier."):
        return {"shared": 8}
    if not opcode.startswith(("ld", "st", "atom", "red.")):
        return {}
    if "matrix" in opcode:
        return {"shared": 2 if ".trans" in opcode else 4}
    size = WIDTHS[opcode.rsplit(".", 1)[1]]
    if ".shared" in opcode:
        return {"shared": size}
    if ".global" in opcode:
        return {"global": size}
    return {} if ".param" in opcode or ".local" in opcode else {"shared": size, "global": size}
