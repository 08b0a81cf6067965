"""What the simulator keeps for groups of lanes, between instructions and between tiles, changes no result."""

import numpy as np
import pytest
from ptxsim_tests_planted import AT, HEADER, SHARED, fault, start

from oracle import ptxsim
from oracle.ptxsim import alu, collective
from oracle.ptxsim.geometry import Geometry
from oracle.ptxsim.lanes import everyone, lanes_of, union
from oracle.ptxsim.registers import Registers

ROOM = SHARED + "mov.b32 %r2, room; mad.lo.u32 %r3, %r0, 4, %r2;"
FLAG = "ld.param.u64 %rd3, [flag]; ld.global.b32 %r4, [%rd3]; setp.ne.b32 %p1, %r4, 0;"


def flags(*values):
    return [("flag", np.array(values, np.uint32).reshape(-1, 1), {})]


def geometry(launches=2, threads=96):
    return Geometry(launches, (1, 1, 1), (threads, 1, 1))


# Groups.


def test_whole_warps_are_one_group_however_they_came_about():
    shape = geometry()
    first, rest = everyone(shape).split(shape.lane % 96 < 64)
    assert lanes_of(shape, np.flatnonzero(shape.lane % 96 < 64)) is first
    assert union(shape, [rest, first]) is everyone(shape)
    assert (first.n, rest.n) == (128, 64)
    assert first.per_cta().tolist() == [64, 64]


def test_a_named_split_is_made_once_and_another_every_time():
    everybody = everyone(geometry())
    odd = everybody.geometry.lane % 2 == 1
    assert everybody.split(odd, 7)[0] is everybody.split(odd, 7)[0]
    assert everybody.split(odd)[0] is not everybody.split(odd)[0]
    assert everybody.split(odd & False) == (None, everybody)
    assert everybody.split(odd | True) == (everybody, None)


def test_only_so_many_groups_are_kept():
    everybody = everyone(geometry())
    halves = [everybody.split(everybody.geometry.lane < k, k)[0] for k in range(1, 150)]
    assert 0 < sum(half.kept is not None for half in halves) < 100
    assert [half.n for half in halves] == list(range(1, 150))


# Registers.


def test_a_register_is_what_was_written_last_whoever_asks():
    shape = geometry()
    everybody = everyone(shape)
    low, high = everybody.split(shape.lane < 100)
    even, odd = low.split(low.index % 2 == 0)
    registers, model = Registers([np.zeros(shape.size, np.uint32)], {}), np.zeros(shape.size, np.uint32)
    draw = np.random.default_rng(0)
    for step in range(1, 400):
        lanes = (everybody, low, high, even, odd)[draw.integers(5)]
        if draw.integers(2):
            assert registers.take(0, lanes).tolist() == model[lanes.index].tolist()
            continue
        model[lanes.index] = step
        if lanes is everybody:
            registers.replace(0, np.full(shape.size, step, np.uint32))
        else:
            registers.put(0, lanes, np.full(lanes.n, step, np.uint32))
    assert registers.whole(0).tolist() == model.tolist()


def test_a_register_of_a_cta_is_spread_over_whichever_lanes_ask():
    shape = geometry(launches=4)
    registers = Registers([np.zeros(0)], {0: np.arange(10, 14)})
    some, _ = everyone(shape).split(shape.lane % 7 == 3)
    for lanes in (everyone(shape), some, lanes_of(shape, np.flatnonzero(shape.lane % 96 < 32))):
        for _ in range(2):
            assert registers.take(0, lanes).tolist() == (10 + lanes.index // 96).tolist()


# Places of shared memory that are looked up once.


@pytest.mark.parametrize("at_once", [64, 128, 4096])
def test_a_later_launch_reads_what_it_has_not_written_where_the_others_have(at_once):
    body = ROOM + FLAG + "@%p1 st.shared.b32 [%r3], %r0; bar.sync 0; ld.shared.b32 %r5, [%r2];"
    error = fault(body, launches=5, buffers=flags(1, 1, 1, 0, 1), lanes_at_once=at_once)
    assert (error.kind, error.launch, error.thread) == ("uninitialised", 3, 0)


@pytest.mark.parametrize("at_once", [64, 4096])
def test_a_later_launch_races_where_the_others_have_a_barrier(at_once):
    body = ROOM + FLAG + "st.shared.b32 [%r3], %r0; @!%p1 bra L; bar.sync 0; L: ld.shared.b32 %r5, [%r2+128];"
    error = fault(body, launches=3, buffers=flags(1, 1, 0), lanes_at_once=at_once)
    assert (error.kind, error.launch, error.thread) == ("race", 2, 0)
    assert "written by thread 32" in error.detail


def test_the_warp_that_reads_one_place_nobody_has_written_is_named():
    body = ROOM + "setp.lt.u32 %p1, %r0, 32; shr.u32 %r4, %r0, 5; mad.lo.u32 %r4, %r4, 64, %r2;"
    error = fault(body + "@%p1 st.shared.b32 [%r3], %r0; bar.sync 0; ld.shared.v2.b32 {%r6, %r7}, [%r4+64];")
    assert (error.kind, error.thread) == ("uninitialised", 32)


def test_a_write_races_with_reads_of_one_place_by_every_warp():
    body = ROOM + "st.shared.b32 [%r3], %r0; bar.sync 0; ld.shared.b32 %r5, [%r2+8];"
    body += "setp.eq.u32 %p1, %r0, 40; @%p1 st.shared.b32 [%r2+8], %r5;"
    error = fault(body)
    assert (error.kind, error.thread) == ("race", 40)
    assert "read by" in error.detail
    start(body.replace("ld.shared.b32 %r5, [%r2+8]", "ld.shared.b32 %r5, [%r2+4]"))


def test_programs_of_one_shape_have_their_own_places():
    for offset, sees in ((0, 0), (4, 1), (252, 63), (128, 32)):
        out = np.zeros((2, 64), np.uint32)
        body = ROOM + AT.format("result") + "st.shared.b32 [%r3], %r0; bar.sync 0;"
        body += f"ld.shared.b32 %r5, [%r2+{offset}]; st.global.b32 [%rd0], %r5;"
        start(body, launches=2, buffers=[("result", out, {"writable": True})])
        assert (out == sees).all()


# Barriers that whole warps come to.


def test_warps_meet_at_one_barrier_from_several_places_and_in_their_own_time():
    out = np.zeros((3, 128), np.uint32)
    body = ROOM + AT.format("result") + "shr.u32 %r4, %r0, 5; mov.b32 %r6, 0; setp.lt.u32 %p1, %r4, 2;"
    body += "LOOP: add.s32 %r6, %r6, 1; setp.le.u32 %p2, %r6, %r4; @%p2 bra LOOP;"
    body += (
        "mad.lo.u32 %r7, %r4, 4, %r2; st.shared.b32 [%r7], %r6; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0;"
    )
    body += "B: xor.b32 %r8, %r4, 3; mad.lo.u32 %r8, %r8, 4, %r2; ld.shared.b32 %r9, [%r8];"
    body += "bar.sync 1; st.global.b32 [%rd0], %r9;"
    body = body.replace(
        "st.shared.b32 [%r7]", "and.b32 %r10, %r0, 31; setp.eq.u32 %p3, %r10, 0; @%p3 st.shared.b32 [%r7]"
    )
    start(body, threads=128, buffers=[("result", out, {"writable": True})])
    assert out[1].tolist() == np.repeat([4, 3, 2, 1], 32).tolist()


def test_a_barrier_of_all_beside_one_of_some():
    body = "shr.u32 %r4, %r0, 5; setp.eq.u32 %p1, %r4, 0; setp.lt.u32 %p2, %r4, 3;"
    start(body + "@%p1 bra L; @%p2 bar.sync 2, 64; L: bar.sync 0; bar.sync 0;", threads=128)
    error = fault(body + "@%p1 bra L; @%p2 bar.sync 2, 96; L: bar.sync 0;", threads=128)
    assert error.kind == "deadlock"


# Other short ways.


@pytest.mark.parametrize("mask", range(32))
def test_a_butterfly_of_whole_warps_exchanges_lanes_at_the_mask(mask):
    values = np.arange(96, dtype=np.uint32).reshape(-1, 32)
    found, inside = collective.shuffle_bfly(values, np.uint32(mask), np.uint32(31), None)
    assert found.reshape(-1).tolist() == (np.arange(96) ^ mask).tolist()
    assert inside.all()


def test_bytes_of_two_constants_are_permuted_as_those_of_registers():
    selectors = np.random.default_rng(1).integers(0, 1 << 32, 5000, dtype=np.uint32)
    a, b = np.uint32(0x80C1F203), np.uint32(0x047F96E7)
    registers = alu.permute_bytes(np.full(5000, a), np.full(5000, b), selectors, "")
    assert alu.permute_bytes(a, b, selectors, "").tolist() == registers.tolist()


def test_a_warp_reads_across_rows_of_global_memory():
    table = np.arange(2 * 3 * 40, dtype=np.uint32).reshape(2, 3, 40)
    out = np.zeros((2, 64), np.uint32)
    memory = ptxsim.Memory(2)
    rows = memory.add_rows("table", table, [160, 4096])
    result = memory.add("out", out, writable=True)
    text = f"""{HEADER}.visible .entry kernel(.param .u64 table, .param .u64 out, .param .u64 stride) {{
    .reg .b32 %r<9>; .reg .b64 %rd<9>; mov.u32 %r0, %tid.x;
    ld.param.u64 %rd0, [table]; ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [stride];
    div.u32 %r1, %r0, 24; cvt.u64.u32 %rd3, %r1; mul.lo.s64 %rd3, %rd3, %rd2; add.s64 %rd0, %rd0, %rd3;
    mul.wide.u32 %rd4, %r0, 4; rem.u32 %r2, %r0, 24; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd0, %rd0, %rd5;
    ld.global.b32 %r3, [%rd0]; add.s64 %rd1, %rd1, %rd4; st.global.b32 [%rd1], %r3; ret; }}"""
    stride = np.array([160, 4096], np.uint64)
    ptxsim.launch(ptxsim.parse(text), memory, [rows.address, result.address, stride], 64)
    thread = np.arange(64)
    assert (out == table[:, thread // 24, thread % 24]).all()
