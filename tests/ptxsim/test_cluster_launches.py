"""How clusters are launched: their shapes, what the text says of them, and the registers that name them."""

import numpy as np
import pytest
from ptxsim_tests_planted import HEADER

from oracle import ptxsim

REGISTERS = (
    *(f"%{name}.{axis}" for name in ("ctaid", "cluster_ctaid", "clusterid") for axis in "xyz"),
    *(f"%{name}.{axis}" for name in ("nctaid", "cluster_nctaid", "nclusterid") for axis in "xyz"),
    "%cluster_ctarank",
    "%cluster_nctarank",
)
COUNT = len(REGISTERS) + 1


def kernel(directives=""):
    """Write every register that names a cluster, once a CTA; the last word is %is_explicit_cluster."""
    lines = [
        ".reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p; ld.param.u64 %rd0, [out];",
        "mov.u32 %r0, %nctaid.y; mov.u32 %r1, %ctaid.z;",
        "mov.u32 %r2, %ctaid.y; mad.lo.u32 %r1, %r1, %r0, %r2;",
        "mov.u32 %r0, %nctaid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r1, %r0, %r2;",
        f"mul.wide.u32 %rd1, %r1, {4 * COUNT}; add.s64 %rd0, %rd0, %rd1;",
    ]
    for number, register in enumerate(REGISTERS):
        lines.append(f"mov.u32 %r3, {register}; st.global.b32 [%rd0+{4 * number}], %r3;")
    lines.append("mov.pred %p, %is_explicit_cluster; selp.b32 %r3, 1, 0, %p;")
    lines.append(f"st.global.b32 [%rd0+{4 * COUNT - 4}], %r3; ret;")
    text = f"{HEADER}.visible .entry kernel(.param .u64 out) {directives} {{ {' '.join(lines)} }}"
    return ptxsim.parse(text)


def launch(program, grid, **keywords):
    """Return the words of each CTA, as they stand in the grid, of a launch."""
    ctas = int(np.prod(grid))
    memory, out = ptxsim.Memory(2), np.zeros((2, ctas, COUNT), np.uint32)
    address = memory.add("out", out, writable=True).address
    ptxsim.launch(program, memory, [address], 1, grid=grid, **keywords)
    assert (out[0] == out[1]).all()
    return out[0]


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((6, 1, 1), (3, 1, 1)), ((8,), (8,)), ((4, 4, 1), (2, 2, 1)), ((2, 6, 4), (1, 3, 2)), ((3,), (1,))],
)
def test_registers_name_the_cluster_and_the_place_in_it(grid, cluster):
    found = launch(kernel(), grid, cluster=cluster)
    grid, cluster = ((*axes, 1, 1)[:3] for axes in (grid, cluster))
    for number, words in enumerate(found):
        at = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
        inside = [a % c for a, c in zip(at, cluster, strict=True)]
        outside = [a // c for a, c in zip(at, cluster, strict=True)]
        count = [g // c for g, c in zip(grid, cluster, strict=True)]
        rank = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        ranks = cluster[0] * cluster[1] * cluster[2]
        assert [*words] == [*at, *inside, *outside, *grid, *cluster, *count, rank, ranks, 1]


def test_without_a_cluster_each_cta_is_one():
    found = launch(kernel(), (3,))
    assert (found[:, -3:] == [0, 1, 0]).all()


@pytest.mark.parametrize(
    ("directives", "keywords", "told"),
    [
        ("", {"cluster": 4}, r"clusters of \(4, 1, 1\) do not fill a grid of \(6, 1, 1\)"),
        ("", {"cluster": (1, 2)}, r"clusters of \(1, 2, 1\) do not fill a grid of \(6, 1, 1\)"),
        ("", {"cluster": (3, 4)}, "a cluster has 12 CTAs, more than 8"),
        ("", {"cluster": 0}, "cluster must be one to three positive numbers, not 0"),
        (".reqnctapercluster 2", {"cluster": 3}, r"is for clusters of \(2,\) CTAs, not 3"),
        (".maxclusterrank 2", {"cluster": 3}, "a cluster has 3 CTAs, more than 2"),
        (".explicitcluster", {}, r"is launched with a size of its clusters \(.explicitcluster\)"),
    ],
)
def test_clusters_that_do_not_fit_are_refused(directives, keywords, told):
    with pytest.raises(ValueError, match=told):
        launch(kernel(directives), (6,), **keywords)


@pytest.mark.parametrize(
    ("directives", "keywords", "ranks"),
    [
        (".reqnctapercluster 2", {}, 2),
        (".reqnctapercluster 2, 1, 1", {"cluster": (2, 1, 1)}, 2),
        (".explicitcluster .maxclusterrank 3", {"cluster": 3}, 3),
        (".explicitcluster", {"cluster": 1}, 1),
        (".reqntid 1 .maxclusterrank 1", {"cluster": 1}, 1),
    ],
)
def test_what_the_text_says_of_clusters_is_so(directives, keywords, ranks):
    found = launch(kernel(directives), (6,), **keywords)
    assert (found[:, -2] == ranks).all()
    assert (found[:, -1] == 1).all()


def test_a_directive_that_changes_the_grid_is_unknown():
    with pytest.raises(ptxsim.PtxError, match=r"unknown directives \['blocksareclusters'\]"):
        kernel(".blocksareclusters")


# Two clusters of 2 x 2 CTAs in a grid of 4 x 2: each CTA reads what the CTA diagonally opposite has written.
DIAGONAL = """
.shared .align 4 .b32 word; .reg .b32 %r<9>; .reg .b64 %rd<4>; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y;
mad.lo.u32 %r0, %r1, 4, %r0; st.shared.b32 [word], %r0; mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 3;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mapa.shared::cluster.u32 %r3, word, %r2;
ld.shared::cluster.b32 %r4, [%r3]; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd0, %rd0, %rd1; st.global.b32 [%rd0], %r4; ret;
"""


@pytest.mark.parametrize("schedule", range(3))
def test_a_cluster_of_two_axes_shares_memory(schedule):
    program = ptxsim.parse(f"{HEADER}.visible .entry kernel(.param .u64 out) {{ {DIAGONAL} }}")
    memory, out = ptxsim.Memory(3), np.zeros((3, 2, 4), np.uint32)
    address = memory.add("out", out, writable=True).address
    ptxsim.launch(program, memory, [address], 1, grid=(4, 2), cluster=(2, 2), schedule=schedule)
    assert (out == [[5, 4, 7, 6], [1, 0, 3, 2]]).all()
