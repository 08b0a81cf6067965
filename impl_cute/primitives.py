"""Inline PTX of the kernel: the operations whose bits, order or form the contract fixes.

A float operation is one explicit PTX instruction (A1-A4), so that no compiler contracts or reorders it.
Operations on memory keep their program order, which is what puts them before or after `dependency_wait`.
Global addresses are integers, so that they can be computed ahead of that wait.
"""

from typing import Any

from cutlass import Float32, Int32, Int64, Numeric, Pointer, Uint32, dsl_user_op
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

_LETTERS = {Float32: "f", Int32: "r", Uint32: "r", Int64: "l"}


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
def ex2_approx(x: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """A3: 2^x of the special function unit, subnormal results kept."""
    return _ptx("ex2.approx.f32 $0, $1;", (x,), (Float32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def div_full(a: Float32, b: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """A4: the scaled reciprocal product; a constant ``b`` would fold to a product of another rounding."""
    return _ptx("div.full.f32 $0, $1, $2;", (a, b), (Float32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def bits(x: Float32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return the 32 bits of a float32."""
    return Uint32(llvm.bitcast(T.i32(), x.ir_value(), loc=loc, ip=ip))


@dsl_user_op
def from_bits(x: Uint32, *, loc: Any = None, ip: Any = None) -> Float32:
    """Return the float32 of 32 bits."""
    return Float32(llvm.bitcast(T.f32(), x.ir_value(), loc=loc, ip=ip))


@dsl_user_op
def warp_max(x: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Return the largest ``x`` of the warp's 32 lanes, in every lane."""
    return _ptx("redux.sync.max.u32 $0, $1, 0xffffffff;", (x,), (Uint32,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def warp_sum(x: Int32, *, loc: Any = None, ip: Any = None) -> Int32:
    """Return the sum of ``x`` over the warp's 32 lanes, in every lane."""
    return _ptx("redux.sync.add.s32 $0, $1, 0xffffffff;", (x,), (Int32,), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def highest_set(x: Uint32, *, loc: Any = None, ip: Any = None) -> Int32:
    """Return the place of the highest set bit, -1 where none is."""
    return _ptx("bfind.u32 $0, $1;", (x,), (Int32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def lowest_set(x: Uint32, *, loc: Any = None, ip: Any = None) -> Int32:
    """Return the place of the lowest set bit, 32 where none is; the DSL's own way there has a branch."""
    reversed_bits = _ptx("brev.b32 $0, $1;", (x,), (Uint32,), ordered=False, loc=loc, ip=ip)
    return _ptx("clz.b32 $0, $1;", (reversed_bits,), (Int32,), ordered=False, loc=loc, ip=ip)


@dsl_user_op
def load_4(address: Int64, *, loc: Any = None, ip: Any = None) -> tuple[Float32, ...]:
    """Load four float32 from global memory at once; ``address`` lies on 16 bytes."""
    text = "ld.global.v4.f32 {$0, $1, $2, $3}, [$4];"
    return _ptx(text, (address,), (Float32,) * 4, ordered=True, loc=loc, ip=ip)


@dsl_user_op
def store(address: Int64, value: Numeric, *, loc: Any = None, ip: Any = None) -> None:
    """Store one 32-bit word to global memory."""
    _ptx("st.global.b32 [$0], $1;", (address, value), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def store_2(address: Int64, first: Int32, second: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """Store two 32-bit words to global memory at once; ``address`` lies on 8 bytes."""
    _ptx("st.global.v2.b32 [$0], {$1, $2};", (address, first, second), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def store_same_4(address: Int64, value: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """Store one 32-bit word four times to global memory at once; ``address`` lies on 16 bytes."""
    _ptx("st.global.v4.b32 [$0], {$1, $1, $1, $1};", (address, value), ordered=True, loc=loc, ip=ip)


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
def shared_store_4(pointer: Pointer, values: tuple[Numeric, ...], *, loc: Any = None, ip: Any = None) -> None:
    """Store four words to shared memory at once; ``pointer`` lies on 16 bytes."""
    text = "st.shared.v4.b32 [$0], {$1, $2, $3, $4};"
    _ptx(text, (pointer, *values), ordered=True, loc=loc, ip=ip)


@dsl_user_op
def shared_or(pointer: Pointer, value: Uint32, *, loc: Any = None, ip: Any = None) -> None:
    """OR one word into shared memory atomically."""
    _ptx("red.shared.or.b32 [$0], $1;", (pointer, value), ordered=True, loc=loc, ip=ip)


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
