"""Instructions that lanes of a warp do together, barriers, branches, and what only the machine notices.

A collective is emitted as a call of a function of `collective` through ``M.together``, which brings the
lanes' operands into ``[warps, 32]``; whole warps with a full mask take the short way.
"""

from oracle.ptxsim.emitter import Emitter, code_of
from oracle.ptxsim.forms import form
from oracle.ptxsim.syntax import Instruction, Operand, Pair, Sink

FULL_MASK = 0xFFFFFFFF


def _call(e: Emitter, name: str, arguments: list[str], mask: Operand, wanted: int = 1) -> str:
    members = "None" if e.whole else e.source(mask, "u4")
    return e.temporary(
        f"M.together({e.index}, G, {members}, collective.{name}, {wanted}, {', '.join(arguments)})"
    )


def _pair(operand: Operand) -> tuple[Operand, Operand]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


@form("shfl.sync.{mode:up,down,bfly,idx}.b32", "q s s s s", "collective")
def shuffle(e: Emitter, i: Instruction, mode: str) -> None:
    """Read another lane's a; ``|p`` says whether the lane was in range."""
    value, valid = _pair(i.operands[0])
    a, b, c = e.arrays([*i.operands[1:4]], ["u4", "u4", "u4"])
    wanted = 1 if isinstance(valid, Sink) else 2
    got = _call(e, f"shuffle_{mode}", [a, b, c], i.operands[4], wanted)
    e.target(value, "u4", f"{got}[0]")
    e.target(valid, "?", f"{got}[1]")


@form("vote.sync.{mode:any,all,uni}.pred", "d p s", "collective")
def vote(e: Emitter, i: Instruction, mode: str) -> None:
    """Whether the predicate holds for any, for all, or the same for all lanes."""
    (a,) = e.arrays([i.operands[1]], ["?"])
    e.target(i.operands[0], "?", f"{_call(e, f'vote_{mode}', [a], i.operands[2])}[0]")


@form("vote.sync.ballot.b32", "d p s", "collective")
def ballot(e: Emitter, i: Instruction) -> None:
    """Gather the predicates of the member lanes as a mask."""
    (a,) = e.arrays([i.operands[1]], ["?"])
    e.target(i.operands[0], "u4", f"{_call(e, 'ballot', [a], i.operands[2])}[0]")


@form("redux.sync.{name:add,min,max}.{kind:u32,s32}", "d s s", "collective")
@form("redux.sync.{name:and,or,xor}.{kind:b32}", "d s s", "collective")
def reduce(e: Emitter, i: Instruction, name: str, kind: str) -> None:
    """Reduce the member lanes' values."""
    code = code_of(kind)
    (a,) = e.arrays([i.operands[1]], [code])
    e.target(i.operands[0], code, f"{_call(e, f'reduce_{name}', [a], i.operands[2])}[0]")


@form("match.any.sync.{kind:b32,b64}", "d s s", "collective")
def match_any(e: Emitter, i: Instruction, kind: str) -> None:
    """Find the member lanes with the same value, as a mask."""
    (a,) = e.arrays([i.operands[1]], [code_of(kind)])
    e.target(i.operands[0], "u4", f"{_call(e, 'match_any', [a], i.operands[2])}[0]")


@form("match.all.sync.{kind:b32,b64}", "q s s", "collective")
def match_all(e: Emitter, i: Instruction, kind: str) -> None:
    """Give the mask if all member lanes have the same value, else 0; ``|p`` says which."""
    value, same = _pair(i.operands[0])
    (a,) = e.arrays([i.operands[1]], [code_of(kind)])
    got = _call(e, "match_all", [a], i.operands[2], 2)
    e.target(value, "u4", f"{got}[0]")
    e.target(same, "?", f"{got}[1]")


@form("elect.sync", "q s", "collective")
def elect(e: Emitter, i: Instruction) -> None:
    """Find the lowest member lane, and whether this is it."""
    leader, mine = _pair(i.operands[0])
    got = _call(e, "elect", ["G.special('%laneid')"], i.operands[1], 2)
    e.target(leader, "u4", f"{got}[0]")
    e.target(mine, "?", f"{got}[1]")


@form("bar.warp.sync", "s", "collective")
def warp_barrier(e: Emitter, i: Instruction) -> None:
    """Wait for the member lanes; orders their memory accesses."""
    e.lines.append(f"M.warp_barrier(G, {'None' if e.whole else e.source(i.operands[0], 'u4')})")


@form("{name:bar,bar.cta}.sync", "s s?", "barrier")
@form("{name:barrier,barrier.cta}.sync.aligned", "s s?", "barrier")
@form("{name:barrier,barrier.cta}.sync", "s s?", "barrier")
@form("{name:bar,bar.cta}.arrive", "s s", "barrier")
@form("{name:barrier,barrier.cta}.arrive.aligned", "s s", "barrier")
@form("{name:barrier,barrier.cta}.arrive", "s s", "barrier")
def barrier(e: Emitter, i: Instruction, name: str) -> None:
    """Wait for, or only tell (arrive), the CTA's threads; emitted where all of them arrive at once."""
    number = e.immediate(i.operands[0])
    assert number is not None
    e.lines.append(f"M.barrier_of_all({e.index}, G, {number.bits})")


@form("bra{uni:,.uni}", "l", "branch")
def branch(e: Emitter, i: Instruction, uni: str) -> None:
    """Go on at the label, where the guard holds."""
    e.lines.append(f"return {e.guard()}")


@form("{name:ret,exit}{uni:,.uni}", "", "exit")
def leave(e: Emitter, i: Instruction, name: str, uni: str) -> None:
    """End the thread, where the guard holds."""
    e.lines.append(f"return {e.guard()}")


@form("trap", "", "effect")
def trap(e: Emitter, i: Instruction) -> None:
    """Give up."""
    e.lines.append(f"M.trap({e.index}, {e.lanes()})")


@form("activemask.b32", "d", "effect")
def active_mask(e: Emitter, i: Instruction) -> None:
    """Give the lanes of the warp that run this together, here: all that are at this place now."""
    e.target(i.operands[0], "u4", "M.active_mask(G)")


@form("griddepcontrol.wait", "", "effect")
def wait(e: Emitter, i: Instruction) -> None:
    """Allow reading what earlier kernels write from here on."""
    e.lines.append(f"M.wait({e.lanes()})")


@form("griddepcontrol.launch_dependents", "", "effect")
@form("membar.{level:cta}", "", "effect")
@form("fence{order:,.sc,.acq_rel,.acquire,.release}.{level:cta}", "", "effect")
@form("fence.proxy.{kind:alias,async}", "", "effect")
@form("fence.proxy.async.{kind:global,shared::cta,shared::cluster}", "", "effect")
@form("fence{proxy:,.proxy.async::generic}.acquire.sync_restrict::shared::cluster.cluster", "", "effect")
@form("fence{proxy:,.proxy.async::generic}.release.sync_restrict::shared::cta.cluster", "", "effect")
@form("fence{order:.acquire}.{level:cluster,gpu,sys}", "", "effect")
def nothing(e: Emitter, i: Instruction, **parts: str) -> None:
    """Nothing that one launch could observe: a fence without a barrier orders no other thread here."""


@form("membar.{level:gl,sys}", "", "effect")
@form("fence{order:,.sc,.acq_rel,.release}.{level:cluster,gpu,sys}", "", "effect")
def fence(e: Emitter, i: Instruction, **parts: str) -> None:
    """Let a relaxed arrival at the cluster's barrier order what came before; nothing else."""
    e.lines.append(f"M.fence_cluster({e.lanes()})")
