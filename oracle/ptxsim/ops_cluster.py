"""Clusters: addresses in other CTAs, the cluster's barrier, mbarriers, asynchronous stores."""

from oracle.ptxsim.emitter import Emitter, code_of
from oracle.ptxsim.forms import form
from oracle.ptxsim.operands import WIDTHS
from oracle.ptxsim.syntax import Instruction, Sink, Vector

_ORDER = "{order:,.SEM.cta,.SEM.cluster,.relaxed.cta,.relaxed.cluster}"
_RELEASE, _ACQUIRE = _ORDER.replace("SEM", "release"), _ORDER.replace("SEM", "acquire")
_RELAXED = "{order:,.relaxed.cta,.relaxed.cluster}"
_OWN = "{space:,.shared,.shared::cta}"
_ANY = "{space:,.shared,.shared::cta,.shared::cluster}"
_BYTES = ".mbarrier::complete_tx::bytes"


def concerns(opcode: str) -> bool:
    """Return whether an opcode needs what only clusters and mbarriers have."""
    heads = ("mapa", "getctarank", "barrier.cluster", "mbarrier", "fence.mbarrier_init")
    return opcode.startswith(heads) or "shared::cluster" in opcode or ".async." in opcode


def _place(e: Emitter, i: Instruction, position: int, space: str) -> str:
    """Return the arguments that say where an operand's address lies: base, offset."""
    base, offset = e.address(i.operands[position], "u4" if space else "u8")
    return f"{base}, {offset}"


def _space(space: str) -> str:
    return {"": "'generic'", ".shared::cluster": "'cluster'"}.get(space, "'shared'")


@form("mapa{space:}.{kind:u64}", "d s s", "effect")
@form("mapa{space:.shared::cluster}.{kind:u32,u64}", "d x s", "effect")
def map_address(e: Emitter, i: Instruction, space: str, kind: str) -> None:
    """Address of the same variable in the CTA of rank b."""
    lanes = e.lanes()
    code = code_of(kind)
    inner = "u4" if space else "u8"
    source = e.source(i.operands[1], code) if e.immediate(i.operands[1]) is None else ""
    source = f"{source}.astype({inner!r})" if source else e.filled(e.source(i.operands[1], inner))
    rank = e.source(i.operands[2], "u4")
    got = f"M.map_address({e.index}, {lanes}, {source}, {rank}, {not space})"
    e.target(i.operands[0], code, f"{e.temporary(got)}.astype({code!r})", lanes)


@form("getctarank{space:}.{kind:u64}", "d s", "effect")
@form("getctarank{space:.shared::cluster}.{kind:u32,u64}", "d x", "effect")
def address_rank(e: Emitter, i: Instruction, space: str, kind: str) -> None:
    """Rank of the CTA that an address belongs to."""
    lanes = e.lanes()
    inner = "u4" if space else "u8"
    if e.immediate(i.operands[1]) is not None:
        source = e.filled(e.source(i.operands[1], inner))
    else:
        source = f"{e.source(i.operands[1], code_of(kind))}.astype({inner!r})"
    got = f"M.address_rank({e.index}, {lanes}, {source}, {not space})"
    e.target(i.operands[0], "u4", e.temporary(got), lanes)


@form("barrier.cluster.arrive{order:,.release,.relaxed}{aligned:,.aligned}", "", "cluster")
@form("barrier.cluster.wait{order:,.acquire}{aligned:,.aligned}", "", "cluster")
def barrier(e: Emitter, i: Instruction, order: str, aligned: str) -> None:
    """Tell the cluster's threads, or wait for all of them; the scheduler does it."""


@form("mbarrier.init" + _OWN + ".b64", "m s", "effect")
def init(e: Emitter, i: Instruction, space: str) -> None:
    """Make an mbarrier of a number of arrivals a phase."""
    lanes = e.lanes()
    count = e.source(i.operands[1], "u4")
    e.lines.append(f"M.mbarrier_init({e.index}, {lanes}, {_place(e, i, 0, space)}, {_space(space)}, {count})")


@form("mbarrier.inval" + _OWN + ".b64", "m", "effect")
def invalidate(e: Emitter, i: Instruction, space: str) -> None:
    """Give the memory of an mbarrier back."""
    lanes = e.lanes()
    e.lines.append(f"M.mbarrier_inval({e.index}, {lanes}, {_place(e, i, 0, space)}, {_space(space)})")


@form("mbarrier.{name:expect_tx,complete_tx}" + _RELAXED + _ANY + ".b64", "m s", "effect")
def transactions(e: Emitter, i: Instruction, name: str, order: str, space: str) -> None:
    """Expect more bytes in this phase, or count some as come."""
    lanes = e.lanes()
    place = f"{_place(e, i, 0, space)}, {_space(space)}"
    size = e.source(i.operands[1], "u4")
    e.lines.append(f"M.mbarrier_tx({e.index}, {lanes}, {place}, {size}, {name == 'complete_tx'})")


@form("mbarrier.arrive{expect:}" + _RELEASE + _OWN + ".b64", "d m s?", "effect")
@form("mbarrier.arrive{expect:}" + _RELEASE + "{space:.shared::cluster}.b64", "n m s?", "effect")
@form("mbarrier.arrive{expect:.expect_tx}" + _RELEASE + _OWN + ".b64", "d m s", "effect")
@form("mbarrier.arrive{expect:.expect_tx}" + _RELEASE + "{space:.shared::cluster}.b64", "n m s", "effect")
def arrive(e: Emitter, i: Instruction, expect: str, order: str, space: str) -> None:
    """Arrive, some times or once; the result is a state of the phase for ``test_wait``."""
    lanes = e.lanes()
    place = f"{_place(e, i, 1, space)}, {_space(space)}"
    count = e.source(i.operands[2], "u4") if len(i.operands) > 2 else "one"
    call = f"M.mbarrier_arrive({e.index}, {lanes}, {place}, {count}, {bool(expect)}, {'relaxed' in order})"
    if isinstance(i.operands[0], Sink):
        e.lines.append(call)
    else:
        e.target(i.operands[0], "u8", e.temporary(call), lanes)


@form("mbarrier.test_wait{parity:,.parity}" + _ACQUIRE + _OWN + ".b64", "d m s", "phase")
@form("mbarrier.try_wait{parity:,.parity}" + _ACQUIRE + _OWN + ".b64", "d m s s?", "phase")
def test(e: Emitter, i: Instruction, parity: str, order: str, space: str) -> None:
    """Whether a phase is complete: named by its state, or by its parity."""
    lanes = e.lanes()
    place = f"{_place(e, i, 1, space)}, {_space(space)}"
    operand = e.source(i.operands[2], "u4" if parity else "u8")
    call = f"M.mbarrier_test({e.index}, {lanes}, {place}, {operand}, {bool(parity)}, {'relaxed' in order})"
    e.target(i.operands[0], "?", e.temporary(call), lanes)


_STORED = "b32,b64,u32,u64,s32,s64,f32,f64"


_STORE = "st.async{weak:,.weak}{space:,.shared::cluster}" + _BYTES


@form(_STORE + ".{kind:" + _STORED + "}", "m s m", "memory")
@form(_STORE + ".v2.{kind:" + _STORED + "}", "m S2 m", "memory")
@form(_STORE + ".v4.{kind:b32,u32,s32,f32}", "m S4 m", "memory")
def store_async(e: Emitter, i: Instruction, weak: str, space: str, kind: str) -> None:
    """Store to a CTA of the cluster, some time; its mbarrier is told the bytes."""
    lanes = e.lanes()
    value = i.operands[1]
    code = f"u{WIDTHS[kind]}"
    items = value.items if isinstance(value, Vector) else (value,)
    values = ", ".join(e.wide(item, code) for item in items)
    place = f"{_place(e, i, 0, space)}, {_place(e, i, 2, space)}, {_space(space)}"
    e.lines.append(f"M.store_async({e.index}, {lanes}, {place}, {code!r}, ({values},))")


_REDUCTION = "red.async.relaxed.cluster{space:,.shared::cluster}" + _BYTES


@form(_REDUCTION + ".{name:inc,dec}.{kind:u32}", "m s m", "memory")
@form(_REDUCTION + ".{name:min,max}.{kind:u32,s32}", "m s m", "memory")
@form(_REDUCTION + ".{name:add}.{kind:u32,s32,u64,s64}", "m s m", "memory")
@form(_REDUCTION + ".{name:and,or,xor}.{kind:b32}", "m s m", "memory")
def reduce_async(e: Emitter, i: Instruction, space: str, name: str, kind: str) -> None:
    """Change memory of a CTA of the cluster in one step, some time; its mbarrier is told the bytes."""
    lanes = e.lanes()
    code = code_of(kind)
    place = f"{_place(e, i, 0, space)}, {_place(e, i, 2, space)}, {_space(space)}"
    value = e.source(i.operands[1], code)
    e.lines.append(f"M.store_async({e.index}, {lanes}, {place}, {code!r}, ({value},), {name!r})")


@form("fence.mbarrier_init.release.cluster", "", "effect")
def fence_init(e: Emitter, i: Instruction) -> None:
    """Order the thread's ``mbarrier.init`` before a relaxed arrival at the cluster's barrier."""
    e.lines.append(f"M.fence_init({e.lanes()})")
