"""Launches are independent, whatever the tile; schedules agree on correct kernels, not on others."""

import numpy as np
import pytest
from ptxsim_tests_planted import HEADER, SHARED

from oracle import ptxsim


def program(body, params):
    return ptxsim.parse(
        f"{HEADER}.visible .entry kernel({', '.join(f'.param {p}' for p in params)})\n{{\n"
        ".reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<9>; mov.u32 %r0, %tid.x;\n" + body + "\nret;\n}"
    )


# Reverses each row of 64 words through shared memory, and adds a number counted up in a loop.
REVERSE = (
    SHARED
    + """
    ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; ld.param.u32 %r9, [number]; mul.wide.u32 %rd2, %r0, 4;
    add.s64 %rd3, %rd0, %rd2; ld.global.b32 %r1, [%rd3]; mov.b32 %r2, room; mad.lo.u32 %r3, %r0, 4, %r2;
    st.shared.b32 [%r3], %r1; bar.sync 0; sub.s32 %r4, 63, %r0; mad.lo.u32 %r5, %r4, 4, %r2;
    ld.shared.b32 %r6, [%r5];
    mov.b32 %r7, 0;
LOOP: add.s32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, %r9; @%p1 bra LOOP;
    setp.lt.u32 %p2, %r0, %r9; @!%p2 bra SKIP; add.s32 %r6, %r6, %r7;
SKIP: shfl.sync.bfly.b32 %r8, %r6, 1, 31, -1; add.s64 %rd4, %rd1, %rd2; st.global.b32 [%rd4], %r8;"""
)


def reverse(launches=13, **keywords):
    rng = np.random.default_rng(0)
    table, out = rng.integers(0, 1000, (launches, 64), dtype=np.uint32), np.zeros((launches, 64), np.uint32)
    number = rng.integers(1, 70, launches).astype(np.uint32)
    memory = ptxsim.Memory(launches)
    params = [memory.add("in", table).address, memory.add("out", out, writable=True).address, number]
    statistics = ptxsim.launch(
        program(REVERSE, [".u64 in", ".u64 out", ".u32 number"]), memory, params, 64, **keywords
    )
    expected = table[:, ::-1] + np.where(np.arange(64) < number[:, None], number[:, None], 0)
    swapped = expected.reshape(launches, 32, 2)[:, :, ::-1].reshape(launches, 64)
    assert (out == swapped).all()
    return statistics


@pytest.mark.parametrize("lanes", [1, 64, 200, 640, 100000])
def test_tiles_of_any_size_give_the_same(lanes):
    assert reverse(lanes_at_once=lanes).launches == 13


@pytest.mark.parametrize("schedule", range(7))
def test_schedules_agree_on_a_correct_kernel(schedule):
    reverse(schedule=schedule)


def test_work_is_counted_by_lane():
    one, two = reverse(1), reverse(2)
    assert one.lane_instructions < two.lane_instructions
    assert one.instructions <= one.lane_instructions


def test_schedules_part_on_a_kernel_that_trusts_lockstep():
    """All read what lane 0 wrote, with no barrier: never accepted, whether or not lane 0 was first."""
    body = (
        SHARED + "mov.b32 %r2, room; mad.lo.u32 %r3, %r0, 4, %r2; st.shared.b32 [%r3], %r0;"
        "ld.shared.b32 %r4, [%r2];"
    )
    for schedule in range(6):
        with pytest.raises(ptxsim.SimulationError, match=r"race|uninitialised"):
            ptxsim.launch(program(body, []), ptxsim.Memory(1), [], 32, schedule=schedule)


def test_activemask_depends_on_the_schedule():
    body = (
        "ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd0, %rd0, %rd1; activemask.b32 %r1;"
        "st.global.b32 [%rd0], %r1;"
    )
    seen = set()
    for schedule in range(6):
        memory, out = ptxsim.Memory(1), np.zeros((1, 32), np.uint32)
        address = memory.add("out", out, writable=True).address
        ptxsim.launch(program(body, [".u64 out"]), memory, [address], 32, schedule=schedule)
        seen.add(int(out[0, 0]))
    assert 0xFFFFFFFF in seen
    assert len(seen) > 1


def test_struct_parameters_are_bytes():
    body = (
        "ld.param.u64 %rd0, [s+8]; ld.param.u32 %r1, [s+4]; mul.wide.u32 %rd1, %r0, 4;"
        "add.s64 %rd0, %rd0, %rd1;"
        "st.global.b32 [%rd0], %r1;"
    )
    memory, out = ptxsim.Memory(3), np.zeros((3, 32), np.uint32)
    packed = np.zeros((3, 16), np.uint8)
    packed[:, 8:] = memory.add("out", out, writable=True).address[:, None].view(np.uint8)
    packed[:, 4] = [7, 8, 9]
    ptxsim.launch(program(body, [".align 8 .b8 s[16]"]), memory, [packed], 32)
    assert (out == [[7], [8], [9]]).all()


# Copies word t of row r of a strided buffer: row ctaid.x, word tid.x.
ROWS = """mov.u32 %r1, %ctaid.x; ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [stride];
    ld.param.u64 %rd2, [out];
    cvt.u64.u32 %rd3, %r1; mad.lo.s64 %rd4, %rd3, %rd1, %rd0; ld.param.u32 %r5, [shift];
    add.s32 %r6, %r0, %r5;
    mul.wide.s32 %rd5, %r6, 4; add.s64 %rd4, %rd4, %rd5; ld.global.b32 %r3, [%rd4];
    mad.lo.u32 %r4, %r1, 32, %r0; mul.wide.u32 %rd6, %r4, 4; add.s64 %rd6, %rd6, %rd2;
    st.global.b32 [%rd6], %r3;"""


def rows(strides, shift=0):
    launches = len(strides)
    table = np.arange(launches * 8 * 32, dtype=np.uint32).reshape(launches, 8, 32)
    stride = np.array(strides, np.int64)
    table[stride == 0] = table[stride == 0][:, :1]
    out = np.zeros((launches, 8, 32), np.uint32)
    memory = ptxsim.Memory(launches)
    a, b = memory.add_rows("logits", table, stride), memory.add("out", out, writable=True)
    params = [a.address, stride.astype(np.uint64), b.address, np.full(launches, shift, np.int32)]
    ptxsim.launch(
        program(ROWS, [".u64 in", ".u64 stride", ".u64 out", ".u32 shift"]), memory, params, 32, grid=8
    )
    return out, table


def test_rows_at_any_stride():
    out, table = rows([128, 0, 132, 1024, 1 << 33, (1 << 36) - 4, 1 << 36, 12345676])
    assert (out == table).all()


@pytest.mark.parametrize(
    ("stride", "shift", "place"),
    [
        (1024, 1, r"logits\+0x80"),
        (1024, -1, r"logits-0x4"),
        (1 << 36, 1, r"logits\+0x80"),
        (0, 1, r"logits\+0x80"),
    ],
)
def test_gaps_between_rows_are_out_of_bounds(stride, shift, place):
    with pytest.raises(ptxsim.SimulationError, match=rf"out of bounds.*{place}"):
        rows([stride], shift)


@pytest.mark.parametrize("stride", [4, 124, -128, (1 << 36) + 4])
def test_rows_that_overlap_or_lie_too_far_apart_are_refused(stride):
    with pytest.raises(ValueError, match="strides of logits"):
        rows([stride])


def test_arguments_that_do_not_fit_are_refused():
    memory = ptxsim.Memory(2)
    array = np.zeros((2, 8), np.uint32)
    with pytest.raises(ValueError, match="must have 2 launches"):
        memory.add("x", array[:1])
    with pytest.raises(ValueError, match="C-contiguous"):
        memory.add("x", array[:, ::2])
    frozen = array.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        memory.add("x", frozen, writable=True)
    with pytest.raises(ValueError, match="address_offset"):
        memory.add("x", array, address_offset=4096)
    with pytest.raises(ValueError, match="at least 1"):
        ptxsim.Memory(0)
    two = program("", [".u64 a", ".u32 b"])
    with pytest.raises(ValueError, match="takes 2 parameters, not 1"):
        ptxsim.launch(two, memory, [np.zeros(2, np.uint64)], 32)
    with pytest.raises(ValueError, match="parameter b must be"):
        ptxsim.launch(two, memory, [np.zeros(2, np.uint64), np.zeros(2, np.uint64)], 32)
    with pytest.raises(ValueError, match="more than 1024"):
        ptxsim.launch(two, memory, [np.zeros(2, np.uint64), np.zeros(2, np.uint32)], (64, 32))
    exact = ptxsim.parse(f"{HEADER}.visible .entry kernel() .reqntid 64, 1, 1 {{ ret; }}")
    ptxsim.launch(exact, memory, [], 64)
    with pytest.raises(ValueError, match="is for blocks of"):
        ptxsim.launch(exact, memory, [], 32)
    with pytest.raises(ValueError, match="block must be"):
        ptxsim.launch(two, memory, [np.zeros(2, np.uint64), np.zeros(2, np.uint32)], 0)


def test_errors_survive_pickling():
    import pickle

    error = ptxsim.SimulationError(
        "race", "a write", launch=1, thread=2, line=3, text="st", address=4, buffer="b+0"
    )
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.thread == 2
