"""Inline PTX of the kernel: the operations whose bits, order or form the contract fixes.

A float operation is one explicit PTX instruction (A1-A4), so that no compiler contracts or reorders it.
Operations on memory keep their program order, which is what puts them before or after `dependency_wait`.
Global addresses are integers, so that they can be computed ahead of that wait.
"""

from typing import Any

import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Numeric, Pointer, Uint32, Uint64, dsl_user_op
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

_LETTERS = {Float32: "f", Int32: "r", Uint32: "r", Int64: "l", Uint64: "l", Boolean: "b"}


def _ptx(
    text: str, operands: tuple[Any, ...], results: tuple[type[Numeric], ...] = (), *, ordered: bool, **at: Any
) -> Any:
    """Emit one instruction; an ordered one keeps its place among the others that are."""
    constraints = [f"={_LETTERS[kind]}" for kind in results]
    values = []
    for operand in operands:
        if isinstance(operand, Numeric):
            values.append(operand.ir_value())
            constraints.append(_LETTERS[type(operand)])
        else:  # a pointer into shared memory, whose addresses have 32 bits
            values.append(llvm.ptrtoint(T.i32(), operand.to_llvm_ptr(**at), **at))
            constraints.append("r")
    if ordered:
        constraints.append("~{memory}")
    types = [kind.mlir_type for kind in results]
    whole = None if not types else types[0] if len(types) == 1 else llvm.StructType.get_literal(types)
    made = llvm.inline_asm(whole, values, text, ",".join(constraints), has_side_effects=ordered, **at)
    if len(types) < 2:
        return results[0](made) if types else None
    return tuple(kind(llvm.extractvalue(kind.mlir_type, made, [i], **at)) for i, kind in enumerate(results))


@dsl_user_op
def mul_rn(a: Float32, b: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """A1: IEEE 754 product, round to nearest even, never contracted."""
    return _ptx("mul.rn.f32 $0, $1, $2;", (a, b), (Float32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def add_rn(a: Float32, b: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """A2: IEEE 754 sum, round to nearest even, never contracted."""
    return _ptx("add.rn.f32 $0, $1, $2;", (a, b), (Float32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def ex2(x: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """A5: 2^x of the special function unit, +0 below 2^-126."""
    return _ptx("ex2.approx.ftz.f32 $0, $1;", (x,), (Float32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def rcp(x: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """A6: 1 / x of the special function unit, 0 where that is below 2^-126."""
    return _ptx("rcp.approx.ftz.f32 $0, $1;", (x,), (Float32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def bits(x: Float32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return the 32 bits of a float32."""
    return Uint32(llvm.bitcast(T.i32(), x.ir_value(), loc=loc, ip=ip))


@dsl_user_op
def from_bits(x: Uint32, *, loc: Any = None, ip: Any = None) -> Float32:
    """Return the float32 of 32 bits."""
    return Float32(llvm.bitcast(T.f32(), x.ir_value(), loc=loc, ip=ip))


@dsl_user_op
def warp_sum(x: Int32, *, loc: Any = None, ip: Any = None) -> Int32:
    """Return the sum of ``x`` over the warp's 32 lanes, in every lane."""
    return _ptx("redux.sync.add.s32 $0, $1, 0xffffffff;", (x,), (Int32,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def from_partner(x: Uint32, mask: int, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return the ``x`` of the lane whose number differs from this one's in the bits of ``mask``."""
    text = f"shfl.sync.bfly.b32 $0, $1, {mask}, 31, 0xffffffff;"
    return _ptx(text, (x,), (Uint32,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def ballot(condition: Boolean, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return a word with a bit for every lane of the warp: whether its ``condition`` holds."""
    return Uint32(cute.arch.vote_ballot_sync(condition, loc=loc, ip=ip))


@dsl_user_op
def popc(word: Uint32, *, loc: Any = None, ip: Any = None) -> Int32:
    """Return how many bits are set."""
    return Int32(cute.arch.popc(word, loc=loc, ip=ip))


@dsl_user_op
def count_above(number: Uint32, a: Uint32, b: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return ``number``, plus one if a > b: if so, a plus the complement of b carries."""
    text = "{ .reg .b32 sum; add.cc.u32 sum, $2, $3; addc.u32 $0, $1, 0; }"
    return _ptx(text, (number, a, ~b), (Uint32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def low_bits(number: Int32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return a word whose lowest ``number`` bits are set, all of them from 32 on."""
    return _ptx("bmsk.clamp.b32 $0, 0, $1;", (number,), (Uint32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def byte_of(low: Uint32, high: Uint32, place: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return byte ``place``, 0..7, of eight; byte 0 must be 0, since it fills the result's other bytes."""
    return _ptx("prmt.b32 $0, $1, $2, $3;", (low, high, place), (Uint32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def load(address: Int64, *, loc: Any = None, ip: Any = None) -> Float32:
    """Load a float32 from global memory."""
    return _ptx("ld.global.f32 $0, [$1];", (address,), (Float32,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def store(address: Int64, value: Numeric, where: Boolean = True, *, loc: Any = None, ip: Any = None) -> None:
    """Store one 32-bit word to global memory where a condition holds, without a branch."""
    _ptx("@$0 st.global.b32 [$1], $2;", (Boolean(where), address, value), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def store_2(address: Int64, first: Int32, second: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """Store two 32-bit words to global memory at once; ``address`` lies on 8 bytes."""
    _ptx("st.global.v2.b32 [$0], {$1, $2};", (address, first, second), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def shared_load(pointer: Pointer, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Load one word from shared memory."""
    return _ptx("ld.shared.b32 $0, [$1];", (pointer,), (Uint32,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def shared_load_wide(pointer: Pointer, *, loc: Any = None, ip: Any = None) -> Uint64:
    """Load one word of 64 bits from shared memory; ``pointer`` lies on 8 bytes."""
    return _ptx("ld.shared.b64 $0, [$1];", (pointer,), (Uint64,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def shared_store_2(pointer: Pointer, low: Numeric, high: Numeric, *, loc: Any = None, ip: Any = None) -> None:
    """Store two words to shared memory at once; ``pointer`` lies on 8 bytes."""
    _ptx("st.shared.v2.b32 [$0], {$1, $2};", (pointer, low, high), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def shared_load_2(pointer: Pointer, *, loc: Any = None, ip: Any = None) -> tuple[Uint32, ...]:
    """Load two words from shared memory at once; ``pointer`` lies on 8 bytes."""
    text = "ld.shared.v2.b32 {$0, $1}, [$2];"
    return _ptx(text, (pointer,), (Uint32,) * 2, ordered=True, loc=loc, ip=ip)


@dsl_user_op
def shared_load_4(pointer: Pointer, *, loc: Any = None, ip: Any = None) -> tuple[Uint32, ...]:
    """Load four words from shared memory at once; ``pointer`` lies on 16 bytes."""
    text = "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];"
    return _ptx(text, (pointer,), (Uint32,) * 4, ordered=True, loc=loc, ip=ip)


@dsl_user_op
def shared_store(
    pointer: Pointer, value: Numeric, where: Boolean, *, loc: Any = None, ip: Any = None
) -> None:
    """Store a word of 32 or 64 bits to shared memory where a condition holds, without a branch."""
    text = f"@$0 st.shared.b{type(value).width} [$1], $2;"
    _ptx(text, (where, pointer, value), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def start_barrier(pointer: Pointer, *, loc: Any = None, ip: Any = None) -> None:
    """Start an mbarrier of one arrival in shared memory, for the whole cluster once it has met."""
    _ptx("mbarrier.init.shared::cta.b64 [$0], 1;", (pointer,), ordered=True, loc=loc, ip=ip)
    _ptx("fence.mbarrier_init.release.cluster;", (), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def expect_bytes(pointer: Pointer, number: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """Arrive at an mbarrier, whose phase then ends when ``number`` bytes have been sent to it."""
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    _ptx(text, (pointer, number), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def wait_bytes(pointer: Pointer, *, loc: Any = None, ip: Any = None) -> None:
    """Wait until the first phase of an mbarrier ends: what was sent to it is then visible."""
    text = """{
        .reg .pred ended;
        waiting${:uid}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [$0], 0;
        @!ended bra waiting${:uid};
        }"""
    _ptx(text, (pointer,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def in_cta(pointer: Pointer, rank: Int32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return the address that a place of this CTA's shared memory has in CTA ``rank`` of the cluster."""
    text = "mapa.shared::cluster.u32 $0, $1, $2;"
    return _ptx(text, (pointer, rank), (Uint32,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def send(
    address: Uint32, value: Uint32, barrier: Uint32, where: Boolean, *, loc: Any = None, ip: Any = None
) -> None:
    """Store one word to a CTA of the cluster where a condition holds, counted at a barrier of that CTA."""
    text = "@$0 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$1], $2, [$3];"
    _ptx(text, (where, address, value, barrier), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def cluster_arrive(*, loc: Any = None, ip: Any = None) -> None:
    """Say to the cluster that this thread is there; it orders nothing but barriers that were started."""
    _ptx("barrier.cluster.arrive.relaxed.aligned;", (), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def cluster_wait(*, loc: Any = None, ip: Any = None) -> None:
    """Wait until all threads of the cluster are there."""
    _ptx("barrier.cluster.wait.acquire.aligned;", (), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def launch_dependents(*, loc: Any = None, ip: Any = None) -> None:
    """Let the grid behind this one in the stream start, up to its own wait, as soon as every CTA is here."""
    _ptx("griddepcontrol.launch_dependents;", (), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def dependency_wait(*, loc: Any = None, ip: Any = None) -> None:
    """Wait until the grids ahead of this one in the stream have ended and their writes are visible."""
    _ptx("griddepcontrol.wait;", (), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def settled(x: Numeric, *, loc: Any = None, ip: Any = None) -> Any:
    """Return ``x``, computed by now: the compiler neither moves its computation down nor repeats it there."""
    kind = type(x)
    return _ptx(f"mov.b{kind.width} $0, $1;", (x,), (kind,), ordered=True, loc=loc, ip=ip)
