"""`device.launch` on the card: a launch has the CTAs and the clusters that it asks for."""

import numpy as np
import pytest

from oracle.card import device

pytestmark = pytest.mark.card

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry ctas(.param .u64 out)
{
 .reg .b32 %r<4>;
 .reg .b64 %rd<3>;
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, %ctaid.x;
 mul.wide.u32 %rd2, %r1, 8;
 add.s64 %rd1, %rd1, %rd2;
 mov.u32 %r2, %nctaid.x;
 mov.u32 %r3, %cluster_nctaid.x;
 st.global.v2.u32 [%rd1], {%r2, %r3};
 ret;
}
"""
"""Every CTA stores how many there are, and how many are in its cluster."""


@pytest.mark.parametrize("dependent", [False, True], ids=["plain", "dependent"])
@pytest.mark.parametrize(("grid", "cluster"), [(1, None), (5, None), (1, 1), (5, 5), (8, 8), (8, 2)])
def test_a_launch_has_the_ctas_and_the_clusters_that_it_asks_for(grid, cluster, dependent):
    function = device.load(PTX.encode(), "ctas")
    out = device.Memory(np.zeros((8, 2), np.uint32))
    params = [out.address.to_bytes(8, "little")]
    device.launch(function, params, threads=32, dependent=dependent, grid=grid, cluster=cluster)
    stored = out.read()
    out.free()
    assert (stored[:grid] == (grid, cluster or 1)).all()
    assert not stored[grid:].any()
