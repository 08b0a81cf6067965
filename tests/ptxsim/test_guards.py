"""A guard that its own instruction overwrites: both results go where it held before."""

import numpy as np
import pytest

LANES = np.arange(32)
HEAD = """
.reg .pred %p, %q;
.reg .b32 %a, %b, %v, %w;
cvt.u32.u64 %a, %in0;
cvt.u32.u64 %b, %in1;
and.b32 %v, %a, 1;
setp.ne.u32 %p, %v, 0;
setp.ne.u32 %q, %b, %b;
mov.u32 %v, 77;
"""
TAIL = """
selp.u32 %a, 1, 0, %p;
selp.u32 %b, 1, 0, %q;
cvt.u64.u32 %out0, %a;
cvt.u64.u32 %out1, %b;
cvt.u64.u32 %out2, %v;
"""
ODD = LANES % 2 == 1
MORE = LANES > 16


@pytest.mark.parametrize(
    ("name", "instruction", "p", "q"),
    [
        ("first-result-is-the-guard", "@%p setp.gt.u32 %p|%q, %a, %b;", ODD & MORE, ODD & ~MORE),
        ("second-result-is-the-guard", "@%p setp.gt.u32 %q|%p, %a, %b;", ODD & ~MORE, ODD & MORE),
        ("negated", "@!%p setp.gt.u32 %p|%q, %a, %b;", np.where(ODD, True, MORE), ~ODD & ~MORE),
        ("combined", "@%p setp.gt.xor.u32 %p|%q, %a, %b, %p;", ODD & ~MORE, ODD & MORE),
    ],
)
def test_a_comparison_under_its_own_result(run, name, instruction, p, q):
    got = run(HEAD + instruction + TAIL, [LANES, np.full(32, 16)], 3)
    assert (got[0][0] == p).all()
    assert (got[1][0] == q).all()


def test_a_shuffle_under_its_own_result(run):
    body = HEAD + "@%p shfl.sync.down.b32 %v|%p, %a, 2, 31, 0xaaaaaaaa;" + TAIL
    got = run(body, [LANES, np.full(32, 16)], 3)
    assert (got[0][0] == (ODD & (LANES < 30))).all()
    assert (got[2][0] == np.where(ODD, np.where(LANES < 30, LANES + 2, LANES), 77)).all()
