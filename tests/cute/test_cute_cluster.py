"""A kernel of the DSL whose CTAs send each other words over `st.async` and wait on an mbarrier, simulated."""

import re
from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import Int32, Int64, dsl_user_op
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.cutlass_dsl import T

from impl_cute.compiler import DEFAULT_ARCH
from oracle import ptxsim

THREADS, WORDS = 64, 2


@dsl_user_op
def send_2(
    words: Any, first: Any, second: Any, bar: Any, cta: Any, *, loc: Any = None, ip: Any = None
) -> None:
    """Send two words to where a pointer points in another CTA, whose mbarrier is told."""
    text = (
        "{ .reg .b32 words, bar;"
        "mapa.shared::cluster.u32 words, $0, $4; mapa.shared::cluster.u32 bar, $3, $4;"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [words], {$1, $2}, [bar]; }"
    )
    at = {"loc": loc, "ip": ip}
    words, bar = (llvm.ptrtoint(T.i32(), p.to_llvm_ptr(**at), **at) for p in (words, bar))
    values = [words, first.ir_value(), second.ir_value(), bar, cta.ir_value()]
    llvm.inline_asm(None, values, text, "r,r,r,r,r,~{memory}", has_side_effects=True, **at)


@cute.kernel
def exchange(table: cute.Pointer, out: cute.Pointer, rows: Int32) -> None:
    """Row r's CTA sends two words of the row to every CTA; each writes the sum over all rows."""
    thread, row = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    bar = cute.arch.alloc_smem(Int64, 1, 8)
    box = cute.arch.alloc_smem(Int32, 8 * WORDS, 16)
    if thread == 0:
        cute.arch.mbarrier_init(bar, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(bar, rows * 4 * WORDS)
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    if thread < rows:
        first, second = (table + WORDS * row).load(), (table + WORDS * row + 1).load()
        send_2(box + WORDS * row, first, second, bar, thread)
    cute.arch.mbarrier_wait(bar, 0)
    total = Int32(0)
    for other in cutlass.range(rows, unroll=1):
        total += (box + WORDS * other).load() * (box + WORDS * other + 1).load()
    (out + THREADS * row + thread).store(total)


@cute.jit
def launch(table: cute.Tensor, out: cute.Tensor, stream: Any) -> None:
    """Launch one cluster of as many CTAs as there are rows."""
    rows = Int32(table.shape[0])
    exchange(table.iterator, out.iterator, rows).launch(
        grid=(rows, 1, 1), cluster=(rows, 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return the compiled kernel's program."""
    rows = cute.sym_int32()
    table = make_fake_tensor(Int32, (rows, WORDS), (WORDS, 1), assumed_align=16)
    out = make_fake_tensor(Int32, (rows, THREADS), (THREADS, 1), assumed_align=16)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    folder = tmp_path_factory.mktemp("dump")
    options = f"--keep-ptx --dump-dir {folder} --gpu-arch {DEFAULT_ARCH}"
    ptx = cute.compile(launch, table, out, stream, options=options).__ptx__
    (entry,) = re.findall(r"^\.visible \.entry (\w+)\(", ptx, re.MULTILINE)
    return ptxsim.parse(ptx, entry)


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize("schedule", range(5))
def test_ctas_of_a_cluster_exchange_words(program, rows, schedule):
    launches = 3
    table = np.random.default_rng(rows).integers(0, 1000, (launches, rows, WORDS), np.int32)
    out = np.zeros((launches, rows, THREADS), np.int32)
    memory = ptxsim.Memory(launches)
    params = [memory.add("table", table).address, memory.add("out", out, writable=True).address]
    params.append(np.full(launches, rows, np.int32))
    ptxsim.launch(program, memory, params, THREADS, grid=rows, cluster=rows, schedule=schedule)
    assert (out == (table[..., 0] * table[..., 1]).sum(1)[:, None, None]).all()
