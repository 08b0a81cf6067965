"""How the adapters launch a compiled kernel in the simulator: so many threads, CTAs and clusters."""

import numpy as np
import pytest

from oracle import backends, ptxsim
from oracle.artifacts import Compiled
from oracle.backends import cute, simulated, triton
from oracle.problem import Batch, Outputs

ROWS = """.version 8.0
.target sm_90
.address_size 64
.visible .entry rows(.param .u64 out)
{
 .reg .b32 %r<4>;
 .reg .b64 %rd<3>;
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %ntid.x;
 mov.u32 %r3, %tid.x;
 mad.lo.s32 %r1, %r1, %r2, %r3;
 mul.wide.u32 %rd2, %r1, 4;
 add.s64 %rd1, %rd1, %rd2;
 mov.u32 %r2, %nctaid.x;
 mov.u32 %r3, %cluster_nctaid.x;
 mad.lo.s32 %r2, %r3, 16, %r2;
 st.global.u32 [%rd1], %r2;
 ret;
}
"""
"""Every thread of the grid stores how many CTAs there are, and sixteen times those of its cluster."""


@pytest.mark.parametrize(
    ("row_ctas", "cluster", "ctas", "together"),
    [(False, False, 1, 1), (True, False, 3, 1), (True, True, 3, 3)],
    ids=["one-cta", "row-ctas", "cluster"],
)
def test_a_launch_has_the_ctas_and_the_cluster_that_the_kernel_asks_for(row_ctas, cluster, ctas, together):
    compiled = Compiled(ROWS, b"", "rows", 32, 0, row_ctas, cluster)
    out = np.zeros((2, 4 * 32), np.uint32)
    memory = ptxsim.Memory(launches=2)
    buffer = memory.add("out", out, writable=True)
    program = ptxsim.parse(compiled.ptx, compiled.entry)
    simulated.launch(compiled, program, memory, [buffer.address], tokens=3, schedule=0)
    assert (out[:, : ctas * 32] == ctas + 16 * together).all()
    assert not out[:, ctas * 32 :].any()


@pytest.mark.parametrize("adapter", [cute, triton])
@pytest.mark.parametrize(
    ("row_ctas", "cluster", "launched"),
    [(False, False, (1, None)), (True, False, (5, None)), (True, True, (5, 5))],
    ids=["one-cta", "row-ctas", "cluster"],
)
def test_an_adapter_launches_what_the_compiled_kernel_asks_for(
    monkeypatch, adapter, row_ctas, cluster, launched
):
    name = adapter.__name__.rpartition(".")[2]
    zeros = [np.zeros((2, *shape), np.float32) for shape in ((5, 256), (256,), ())]
    batch = Batch("by-hand", *zeros, True, np.full(2, 256), None)
    seen = {}
    compiled = Compiled(ROWS, b"", "rows", 96, 512, row_ctas, cluster)
    monkeypatch.setattr(adapter, "artifact", lambda backend, *variant, **more: seen.update(more) or compiled)
    monkeypatch.setattr(ptxsim, "launch", lambda *_, **options: seen.update(options))
    backends.get(name).simulate(batch, Outputs.poisoned(batch), schedule=2, early_dependents=row_ctas)
    assert seen["early_dependents"] is row_ctas
    assert (seen["grid"], seen["cluster"]) == launched
    assert (seen["block"], seen["dynamic_shared"], seen["schedule"]) == (96, 512, 2)
