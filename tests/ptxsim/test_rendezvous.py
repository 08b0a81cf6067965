"""Lanes that can never meet are an error, not a hang, and the message says who is missing."""

import numpy as np
import pytest
from ptxsim_tests_planted import SHARED, fault, start


def test_shuffle_with_a_lane_that_has_exited():
    error = fault("setp.eq.u32 %p1, %r0, 35; @%p1 ret; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;")
    assert (error.kind, error.thread) == ("deadlock", 32)
    assert "thread 35, which has exited" in error.detail


def test_shuffle_with_a_lane_that_waits_at_a_barrier():
    error = fault(
        "setp.eq.u32 %p1, %r0, 5; @%p1 bra L; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; L: bar.sync 0;"
    )
    assert error.kind == "deadlock"
    assert "thread 5, which waits at PTX line" in error.detail


def test_barrier_that_some_threads_never_reach():
    error = fault("setp.lt.u32 %p1, %r0, 32; @%p1 bra L; bar.sync 1; L: bar.sync 0;")
    assert error.kind == "deadlock"


def test_barrier_does_not_wait_for_threads_that_have_exited():
    start("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0;")


def test_barrier_with_a_count_waits_for_that_many():
    start("setp.lt.u32 %p1, %r0, 32; @%p1 bra L; bar.sync 1, 32; bra D; L: bar.sync 2, 32; D: bar.sync 0;")
    assert fault("setp.lt.u32 %p1, %r0, 32; @%p1 bra L; bar.sync 1, 64; L:").kind == "deadlock"


def test_barrier_count_that_is_no_multiple_of_a_warp():
    assert fault("bar.sync 1, 33;").kind == "barrier"


def test_barrier_number_beyond_sixteen():
    assert fault("add.s32 %r1, %r0, 0; bar.sync %r1;").kind == "barrier"


def test_aligned_barrier_in_divergent_code():
    error = fault("setp.eq.u32 %p1, %r0, 7; @%p1 bra L; bar.sync 0; bra D; L: bar.sync 0; D:")
    assert error.kind == "divergent barrier"
    assert "thread 7" in error.detail


def test_unaligned_barrier_in_divergent_code_is_fine():
    start("setp.eq.u32 %p1, %r0, 7; @%p1 bra L; barrier.sync 0; bra D; L: barrier.sync 0; D:")


def test_lanes_of_one_warp_with_different_masks_never_meet():
    error = fault("setp.eq.u32 %p1, %r0, 3; selp.b32 %r1, 0xFF, 0xFFFF, %p1; bar.warp.sync %r1;")
    assert error.kind in ("deadlock", "member mask")


def test_mask_that_leaves_out_the_lane_itself():
    error = fault("bar.warp.sync 1;")
    assert (error.kind, error.thread) == ("member mask", 1)


def test_shuffle_from_a_lane_outside_the_mask():
    body = "setp.lt.u32 %p1, %r0, 8; @!%p1 ret; shfl.sync.idx.b32 %r1, %r0, 9, 31, 255;"
    error = fault(body)
    assert (error.kind, error.thread) == ("member mask", 0)


def test_lanes_that_arrive_one_after_the_other_meet():
    # Each lane takes its own number of turns before the vote.
    start(
        "mov.b32 %r1, 0; LOOP: add.s32 %r1, %r1, 1; setp.le.u32 %p1, %r1, %r0; @%p1 bra LOOP;"
        "vote.sync.ballot.b32 %r2, %p1, -1; setp.ne.b32 %p2, %r2, 0; @%p2 trap;"
    )


@pytest.mark.parametrize("mask", ["-1", "%r9"])
def test_collective_under_a_guard_lets_the_others_pass(mask):
    body = (
        f"setp.lt.u32 %p1, %r0, 32; mov.b32 %r9, -1; @%p1 vote.sync.any.pred %p2, %p1, {mask}; @!%p1 bra D;"
        "@!%p2 trap; D:"
    )
    start(body)


def test_guards_known_when_the_kernel_is_compiled():
    body = "mov.pred %p1, 1; mov.pred %p2, 0; @%p2 trap; @!%p1 trap; "
    body += "@%p2 bra BAD; @%p1 bra GOOD; BAD: trap; GOOD:"
    start(SHARED + body + "@%p2 ret; mov.b32 %r1, room; @%p2 st.shared.b32 [%r1+1], 3; bar.sync 0;")


def test_half_a_warp_shuffles_among_itself():
    start(
        "setp.lt.u32 %p1, %r0, 16; @!%p1 ret; shfl.sync.idx.b32 %r1, %r0, 3, 31, 0xFFFF;"
        "setp.ne.u32 %p2, %r1, 3; @%p2 trap;"
    )


def test_block_that_is_no_multiple_of_a_warp_has_no_lanes_beyond_it():
    start("bar.sync 0; activemask.b32 %r1;", threads=40)
    assert fault("vote.sync.any.pred %p1, %p2, -1;", threads=40).kind == "deadlock"


RACE = (
    SHARED
    + "mov.b32 %r1, room; mad.lo.u32 %r2, %r0, 4, %r1; xor.b32 %r3, %r0, {0}; mad.lo.u32 %r3, %r3, 4, %r1;"
)


@pytest.mark.parametrize(
    ("far", "between", "races"),
    [
        (33, "", True),
        (33, "bar.sync 0;", False),
        (33, "bar.warp.sync -1;", True),
        (33, "membar.cta;", True),
        (1, "", True),
        (1, "bar.warp.sync -1;", False),
        (1, "shfl.sync.idx.b32 %r4, %r0, 0, 31, -1;", True),
        (0, "", False),
        (33, "barrier.sync 5, 64;", False),
        (33, "bar.sync 0, 64; bar.sync 1, 64;", False),
        (32, "setp.lt.u32 %p1, %r0, 32; @%p1 bra L; bar.sync 1, 32; L:", True),
    ],
)
def test_reading_what_another_thread_wrote_needs_a_barrier(far, between, races):
    body = RACE.format(far) + "st.shared.b32 [%r2], %r0;" + between + "ld.shared.b32 %r5, [%r3];"
    if races:
        error = fault(body)
        assert error.kind == "race"
        assert "with no barrier between" in error.detail
        assert "written" in error.detail
    else:
        start(body)


@pytest.mark.parametrize(
    ("far", "between", "races"),
    [
        (33, "", True),
        (33, "bar.sync 0;", False),
        (1, "", True),
        (1, "bar.warp.sync -1;", False),
        (0, "", False),
    ],
)
def test_writing_what_another_thread_has_read_needs_a_barrier(far, between, races):
    body = (
        RACE.format(far)
        + "st.shared.b32 [%r2], %r0; bar.sync 0; ld.shared.b32 %r5, [%r3];"
        + between
        + "st.shared.b32 [%r2], 7;"
    )
    if races:
        error = fault(body)
        assert error.kind == "race"
        assert "read" in error.detail
    else:
        start(body)


def test_writing_a_word_that_a_whole_warp_has_read():
    read = SHARED + "mov.b32 %r1, room; st.shared.b32 [%r1], 1;"
    body = (
        SHARED + "mov.b32 %r1, room; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.b32 [%r1], 1; bar.sync 0;"
        "ld.shared.b32 %r2, [%r1]; {0} @%p1 st.shared.b32 [%r1], 2;"
    )
    assert fault(read).kind == "race"
    assert "several threads" in fault(body.format("")).detail
    assert fault(body.format("bar.warp.sync -1;")).kind == "race"
    start(body.format("bar.warp.sync -1;"), threads=32)
    start(body.format("bar.sync 0;"))


def test_two_threads_writing_one_word():
    body = (
        SHARED
        + "mov.b32 %r1, room; shr.u32 %r2, %r0, 1; mad.lo.u32 %r1, %r2, 4, %r1; st.shared.b32 [%r1], %r0;"
    )
    error = fault(body)
    assert (error.kind, error.thread) == ("race", 0)
    assert "thread 1 in the same instruction" in error.detail


def test_neighbouring_bytes_are_no_race():
    start(
        SHARED + ".reg .b16 %s; cvt.u16.u32 %s, %r0; mov.b32 %r1, room; add.s32 %r1, %r1, %r0;"
        "st.shared.b8 [%r1], %s;"
    )


def test_atomics_do_not_race_with_each_other_but_with_plain_accesses():
    first = (
        SHARED + "mov.b32 %r1, room; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.b32 [%r1], 0; bar.sync 0;"
        "red.shared.add.u32 [%r1], 1; atom.shared.add.u32 %r2, [%r1], 1;"
    )
    start(first + "bar.sync 0; ld.shared.b32 %r3, [%r1]; setp.ne.u32 %p2, %r3, 128; @%p2 trap;")
    assert fault(first + "ld.shared.b32 %r3, [%r1];").kind == "race"


ZERO = SHARED + "mov.b32 %r1, room; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.b32 [%r1], 0; bar.sync 0;"
ONE, OTHER = "setp.ne.u32 %p2, %r0, {0}; @%p2 bra {1};", "setp.ne.u32 %p2, %r0, 40; @%p2 bra E;"


@pytest.mark.parametrize(
    ("first", "then", "races"),
    [
        ("red.shared.add.u32 [%r1], 1; ld.shared.b32 %r2, [%r1];", "", None),
        ("red.shared.add.u32 [%r1], 1; st.shared.b32 [%r1], 1;", "", None),
        ("red.shared.add.u32 [%r1], 1;", "red.shared.add.u32 [%r1], 1;", None),
        (
            "red.shared.add.u32 [%r1], 1;",
            "ld.shared.b32 %r2, [%r1];",
            "read of what was written by an atomic",
        ),
        ("red.shared.add.u32 [%r1], 1;", "st.shared.b32 [%r1], 1;", "write of what was written by an atomic"),
        ("ld.shared.b32 %r2, [%r1];", "red.shared.add.u32 [%r1], 1;", "write of what was read by thread 3"),
        (
            "st.shared.b32 [%r1], 0; red.shared.add.u32 [%r1], 1;",
            "red.shared.add.u32 [%r1], 1;",
            "write of what was written by thread 3",
        ),
        (
            "red.shared.add.u32 [%r1], 1;",
            "red.shared.add.u32 [%r1], 1; ld.shared.b32 %r2, [%r1];",
            "read of what was written by atomics of several threads",
        ),
    ],
)
def test_an_atomic_is_its_thread_s_own_access(first, then, races):
    """Thread 3 does the first, later thread 40, of another warp, the other; no barrier is between."""
    body = f"{ZERO}{ONE.format(3, 'L')}{first} L: {OTHER}{then} E:"
    if races is None:
        start(body)
    else:
        assert races in fault(body).detail


def test_atomics_in_one_instruction_are_of_several_threads():
    several = ZERO + "red.shared.add.u32 [%r1], 1; ld.shared.b32 %r2, [%r1];"
    assert "atomics of several threads" in fault(several).detail
    start(ZERO + "red.shared.add.u32 [%r1], 1; bar.sync 0; ld.shared.b32 %r2, [%r1];")
    own = SHARED + "mov.b32 %r1, room; mad.lo.u32 %r1, %r0, 4, %r1; st.shared.b32 [%r1], 5;"
    start(own + "atom.shared.add.u32 %r2, [%r1], 1; ld.shared.b32 %r3, [%r1];")


def test_a_warp_barrier_orders_the_atomics_of_a_warp():
    body = ZERO + "red.shared.add.u32 [%r1], 1; {0} setp.eq.u32 %p2, %r0, 9; @%p2 ld.shared.b32 %r2, [%r1];"
    assert fault(body.format(""), threads=32).kind == "race"
    first = ZERO + "setp.eq.u32 %p2, %r0, 5; @%p2 red.shared.add.u32 [%r1], 1; {0} ld.shared.b32 %r2, [%r1];"
    assert fault(first.format(""), threads=32).kind == "race"
    start(first.format("bar.warp.sync -1;"), threads=32)
    assert fault(first.format("bar.warp.sync -1;")).thread == 32


def test_ordering_passes_through_a_third_warp():
    # 0 -> 1 by barrier 1, 1 -> 2 by barrier 2: warp 2 may read what warp 0 wrote, warp 3 may not.
    body = (
        SHARED
        + "mov.b32 %r1, room; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.b32 [%r1], 9; shr.u32 %r2, %r0, 5;"
        "setp.eq.u32 %p2, %r2, 0; @%p2 bra ZERO; setp.eq.u32 %p2, %r2, 1; @%p2 bra ONE;"
        "setp.eq.u32 %p2, %r2, {0};"
        "@%p2 bra TWO; ret; ZERO: bar.sync 1, 64; ret; ONE: bar.sync 1, 64; bar.sync 2, 64; ret;"
        "TWO: {1} ld.shared.b32 %r3, [%r1];"
    )
    start(body.format(2, "bar.sync 2, 64;"), threads=128)
    assert (
        fault(
            SHARED + "mov.b32 %r1, room; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.b32 [%r1], 9;"
            "setp.lt.u32 %p2, %r0, 64; @%p2 bra L; setp.ge.u32 %p2, %r0, 96; @!%p2 ret;"
            "ld.shared.b32 %r3, [%r1];"
            "ret; L: bar.sync 1, 64;",
            threads=128,
        ).kind
        == "race"
    )


def test_global_memory_is_watched_as_well():
    out = [("result", np.zeros((3, 64), np.uint32), {"writable": True})]
    at = "ld.param.u64 %rd0, [result]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;"
    error = fault(at + "st.global.b32 [%rd0], %r0;", buffers=out)
    assert (error.kind, error.buffer) == ("race", "result+0x0")
    body = (
        at + "st.global.b32 [%rd1], %r0; {0} xor.b32 %r1, %r0, 32; mul.wide.u32 %rd2, %r1, 4;"
        "add.s64 %rd2, %rd0, %rd2; ld.global.b32 %r2, [%rd2];"
    )
    assert fault(body.format(""), buffers=out).kind == "race"
    start(body.format("bar.sync 0;"), buffers=out)


def test_ctas_of_one_launch_are_never_ordered_by_barriers():
    out = [("result", np.zeros((3, 64), np.uint32), {"writable": True})]
    body = (
        "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, {0}, %r0; mul.wide.u32 %rd1, %r1, 4;"
        "ld.param.u64 %rd0, [result];"
        "add.s64 %rd0, %rd0, %rd1; bar.sync 0; st.global.b32 [%rd0], %r0;"
    )
    start(body.format(32), buffers=out, threads=32, grid=2)
    error = fault(body.format(31), buffers=out, threads=32, grid=2)
    assert (error.kind, error.thread) in (("race", 31), ("race", 32))
