"""What a GPU's sanitizer finds: one planted kernel of each kind, with the whole message that one reads."""

import pytest
from ptxsim_tests_planted_cluster import FAULTS as CLUSTER_FAULTS
from ptxsim_tests_planted_routing import THIS_CELL, WAIT, problems, simulate

import spec
from oracle import ptxsim
from oracle.problem import Outputs


def message(*lines, schedule=0, **keywords):
    """Return what the simulator says of a kernel."""
    batch = problems()
    with pytest.raises(ptxsim.SimulationError) as caught:
        simulate(lines, batch, Outputs.poisoned(batch), schedule, **keywords)
    assert caught.value.kind in ptxsim.ERROR_KINDS
    return caught.value.told()


def word_of(name, offset=0):
    """%rd0: the thread's own word of a buffer, some bytes on."""
    return f"ld.param.u64 %rd0, [{name}]; mad.wide.u32 %rd0, %thread, 4, %rd0; add.s64 %rd0, %rd0, {offset};"


RACES = {
    "shared memory, between warps in step": (
        (THIS_CELL, "st.shared.b32 [%r1], %thread;", "xor.b32 %r2, %r1, 128;", "ld.shared.b32 %r3, [%r2];"),
        "race: a read of what was written by thread 32, with no barrier between; thread 0, address 0x480 "
        "(room+0x80); PTX line 27: ld.shared.b32 %r3, [%r2] (planted/kernel.py:103); "
        "thread 32 was at PTX line 23: st.shared.b32 [%r1], %thread (planted/kernel.py:101)",
    ),
    "shared memory, between lanes of a warp in step": (
        (THIS_CELL, "st.shared.b32 [%r1], %thread;", "xor.b32 %r2, %r1, 4;", "ld.shared.b32 %r3, [%r2];"),
        "race: a read of what was written by thread 1, with no barrier between; thread 0, address 0x404 "
        "(room+0x4); PTX line 27: ld.shared.b32 %r3, [%r2] (planted/kernel.py:103); "
        "thread 1 was at PTX line 23: st.shared.b32 [%r1], %thread (planted/kernel.py:101)",
    ),
    "shared memory, a write after a read": (
        (
            THIS_CELL,
            "st.shared.b32 [%r1], %thread; bar.sync 0;",
            "xor.b32 %r2, %r1, 128;",
            "ld.shared.b32 %r3, [%r2];",
            "st.shared.b32 [%r1], 0;",
        ),
        "race: a write of what was read by thread 32, with no barrier between; thread 0, address 0x400 "
        "(room+0x0); PTX line 29: st.shared.b32 [%r1], 0 (planted/kernel.py:104); "
        "thread 32 was at PTX line 27: ld.shared.b32 %r3, [%r2] (planted/kernel.py:103)",
    ),
    "shared memory, a plain access and atomics": (
        (
            THIS_CELL,
            "st.shared.b32 [%r1], 0; bar.sync 0;",
            "red.shared.add.u32 [room], 1;",
            "setp.eq.u32 %p1, %thread, 40;",
            "@%p1 ld.shared.b32 %r2, [room];",
        ),
        "race: a read of what was written by atomics of several threads, with no barrier between; thread 40, "
        "address 0x400 (room+0x0); PTX line 29: @%p1 ld.shared.b32 %r2, [room] (planted/kernel.py:104); "
        "thread 63 was at PTX line 25: red.shared.add.u32 [room], 1 (planted/kernel.py:102)",
    ),
    "global memory, a read after a write": (
        (
            WAIT + word_of("metadata", 272),
            "st.global.b32 [%rd0], %thread;",
            "xor.b32 %r1, %thread, 32; ld.param.u64 %rd1, [metadata]; mad.wide.u32 %rd1, %r1, 4, %rd1;",
            "ld.global.b32 %r2, [%rd1+272];",
        ),
        "race: a read of what was written by thread 32, with no barrier between; thread 0, address "
        "0x500000011a0 (metadata+0x190 = cta_limit[32]); PTX line 27: ld.global.b32 %r2, [%rd1+272] "
        "(planted/kernel.py:103); "
        "thread 32 was at PTX line 23: st.global.b32 [%rd0], %thread (planted/kernel.py:101)",
    ),
    "global memory, two writes at once": (
        (WAIT + "ld.param.u64 %rd0, [metadata];", "st.global.b32 [%rd0+4], %thread;"),
        "race: a write of what was written by thread 63 in the same instruction; thread 0, address "
        "0x50000001014 (metadata+0x4 = num_ctas[0]); PTX line 23: st.global.b32 [%rd0+4], %thread "
        "(planted/kernel.py:101); "
        "thread 63 was at PTX line 23: st.global.b32 [%rd0+4], %thread (planted/kernel.py:101)",
    ),
    "global memory, a word of a vector": (
        (
            WAIT + word_of("metadata", 784),
            "st.global.b32 [%rd0], -1;",
            "setp.eq.u32 %p1, %thread, 0; ld.param.u64 %rd1, [metadata];",
            "@%p1 st.global.v4.b32 [%rd1+784], {%r1, %r1, %r1, %r1};",
        ),
        "race: a write of what was written by thread 1, with no barrier between; thread 0, address "
        "0x50000001324 (metadata+0x314 = permuted_to_token[1]); PTX line 27: @%p1 st.global.v4.b32 "
        "[%rd1+784], {%r1, %r1, %r1, %r1} (planted/kernel.py:103); "
        "thread 1 was at PTX line 23: st.global.b32 [%rd0], -1 (planted/kernel.py:101)",
    ),
}

MEMORY = {
    "uninitialised shared memory": (
        (
            THIS_CELL,
            "setp.lt.u32 %p1, %thread, 60;",
            "@%p1 st.shared.b32 [%r1], 0;",
            "bar.sync 0;",
            "ld.shared.b32 %r2, [%r1];",
        ),
        "uninitialised: a read of what nobody has written; thread 60, address 0x4f0 (room+0xf0); "
        "PTX line 29: ld.shared.b32 %r2, [%r1] (planted/kernel.py:104)",
    ),
    "uninitialised global memory, an id before its store": (
        (
            WAIT + "setp.ge.u32 %p2, %thread, 32; @%p2 ret;" + word_of("ids"),
            "setp.ne.u32 %p1, %thread, 26; @%p1 st.global.b32 [%rd0], %thread;",
            "ld.global.b32 %r2, [%rd0];",
            "@!%p1 st.global.b32 [%rd0], %thread;",
        ),
        "uninitialised: a read of an output that the kernel has not written; thread 26, address "
        "0x3000000107c (ids+0x68 = ids[3,2]); PTX line 25: ld.global.b32 %r2, [%rd0] (planted/kernel.py:102)",
    ),
    "uninitialised local memory": (
        (".local .align 8 .b8 depot[16];", "mov.b64 %rd1, depot;", "ld.local.b32 %r2, [%rd1+8];"),
        "uninitialised: a read of local memory never written; thread 0, address 0x8 (local memory+0x8); "
        "PTX line 25: ld.local.b32 %r2, [%rd1+8] (planted/kernel.py:102)",
    ),
    "out of bounds, between rows of the logits": (
        (
            WAIT + "ld.param.u64 %rd0, [logits];",
            "mad.wide.u32 %rd0, %thread, 16, %rd0;",
            "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd0+16];",
        ),
        "out of bounds: 16 bytes outside the buffer; thread 63, address 0x10000001410 (logits+0x400); "
        "PTX line 25: ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd0+16] (planted/kernel.py:102)",
    ),
    "out of bounds, past the metadata": (
        (WAIT + word_of("metadata", 4 * (spec.metadata_size(5) - 60)), "st.global.b32 [%rd0], 0;"),
        "out of bounds: 4 bytes outside the buffer; thread 60, address 0x50000001824 (metadata+0x814); "
        "PTX line 23: st.global.b32 [%rd0], 0 (planted/kernel.py:101)",
    ),
    "out of bounds, shared memory": (
        ("mov.b32 %r1, room; mad.lo.u32 %r1, %thread, 8, %r1;", "st.shared.b32 [%r1], 0;"),
        "out of bounds: 4 bytes outside the 256 bytes of shared memory; thread 32, address 0x500 "
        "(room+0x100); PTX line 23: st.shared.b32 [%r1], 0 (planted/kernel.py:101)",
    ),
    "misaligned": (
        (
            WAIT + "setp.ge.u32 %p2, %thread, 8; @%p2 ret; ld.param.u64 %rd0, [weights];",
            "mad.wide.u32 %rd0, %thread, 16, %rd0;",
            "st.global.v4.f32 [%rd0], {%f1, %f1, %f1, %f1};",
        ),
        "misaligned: an access of 16 bytes; thread 0, address 0x40000001014 (weights+0x0 = weights[0,0]); "
        "PTX line 25: st.global.v4.f32 [%rd0], {%f1, %f1, %f1, %f1} (planted/kernel.py:102)",
    ),
    "a store to an input": (
        (WAIT + word_of("bias"), "setp.eq.u32 %p1, %thread, 10;", "@%p1 st.global.f32 [%rd0], 0f00000000;"),
        "read-only: a write to an input; thread 10, address 0x20000001038 (bias+0x28 = bias[10]); "
        "PTX line 25: @%p1 st.global.f32 [%rd0], 0f00000000 (planted/kernel.py:102)",
    ),
    "logits read before the wait": (
        (word_of("logits"), "ld.global.f32 %f1, [%rd0+1040];", WAIT),
        "before the wait: a read of what an earlier kernel writes; thread 0, address 0x10000001420 "
        "(logits+0x410 = logits[1,0]); PTX line 23: ld.global.f32 %f1, [%rd0+1040] (planted/kernel.py:101)",
    ),
    "a store before the wait": (
        ("ld.param.u64 %rd0, [metadata];", "st.global.b32 [%rd0], 0;", WAIT),
        "before the wait: a global store; thread 0, address 0x50000001010 (metadata+0x0 = "
        "padded_tokens[0]); PTX line 23: st.global.b32 [%rd0], 0 (planted/kernel.py:101)",
    ),
}

DIVERGENCE = {
    "a barrier that part of a warp takes elsewhere": (
        ("setp.eq.u32 %p1, %thread, 7;", "@%p1 bra L;", "bar.sync 0;", "bra D; L:", "bar.sync 0;", "D:"),
        "divergent barrier: thread 7 of the same warp is not at this barrier; thread 0; "
        "PTX line 25: bar.sync 0 (planted/kernel.py:102)",
    ),
    "barriers that wait for each other": (
        ("setp.lt.u32 %p1, %thread, 32;", "@%p1 bra L;", "bar.sync 1;", "L:", "bar.sync 0;"),
        "deadlock: waits for thread 32, which waits at PTX line 25; thread 0; "
        "PTX line 29: bar.sync 0 (planted/kernel.py:104)",
    ),
    "a barrier for part of a warp": (
        ("bar.sync 1, 33;",),
        "barrier: the thread count 33 is no multiple of 32, or differs from the 0 that others gave; "
        "thread 0; PTX line 21: bar.sync 1, 33 (planted/kernel.py:100)",
    ),
    "a shuffle without a lane of its mask": (
        (
            "setp.eq.u32 %p1, %thread, 5;",
            "@%p1 bra L;",
            "shfl.sync.idx.b32 %r1, %thread, 0, 31, -1;",
            "L:",
            "bar.sync 0;",
        ),
        "deadlock: waits for thread 5, which waits at PTX line 29; thread 0; "
        "PTX line 25: shfl.sync.idx.b32 %r1, %thread, 0, 31, -1 (planted/kernel.py:102)",
    ),
    "a reduction with a lane that has ended": (
        ("setp.eq.u32 %p1, %thread, 35;", "@%p1 ret;", "redux.sync.max.u32 %r1, %thread, -1;"),
        "deadlock: waits for thread 35, which has exited; thread 32; "
        "PTX line 25: redux.sync.max.u32 %r1, %thread, -1 (planted/kernel.py:102)",
    ),
    "a shuffle from outside of its mask": (
        ("setp.ge.u32 %p1, %thread, 8; @%p1 ret;", "shfl.sync.idx.b32 %r1, %thread, 9, 31, 255;"),
        "member mask: a lane reads a lane that is not in its member mask; thread 0; "
        "PTX line 23: shfl.sync.idx.b32 %r1, %thread, 9, 31, 255 (planted/kernel.py:101)",
    ),
}

REST = {
    "division by zero": (
        ("sub.s32 %r1, %thread, 12;", "div.s32 %r2, %thread, %r1;"),
        "division by zero: PTX leaves the result open; thread 12; "
        "PTX line 23: div.s32 %r2, %thread, %r1 (planted/kernel.py:101)",
    ),
    "a trap": (
        ("setp.eq.u32 %p1, %thread, 33;", "@%p1 trap;"),
        "trap: the kernel stopped itself; thread 33; PTX line 23: @%p1 trap (planted/kernel.py:101)",
    ),
    "an endless loop": (
        ("LOOP: add.s32 %r1, %r1, 1;", "bra LOOP;"),
        "instruction budget: more than 5000 instructions were issued; thread 0; "
        "PTX line 21: add.s32 %r1, %r1, 1 (planted/kernel.py:100)",
    ),
}

FAULTS = RACES | MEMORY | DIVERGENCE | REST


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_told_with_thread_address_element_and_line(fault):
    lines, told = FAULTS[fault]
    assert message(*lines, instruction_budget=5000) == told


@pytest.mark.parametrize("fault", RACES)
@pytest.mark.parametrize("schedule", [1, 2, 3, 4])
def test_a_race_is_one_in_any_order_of_threads(fault, schedule):
    assert message(*RACES[fault][0], schedule=schedule).split(":")[0] in ("race", "uninitialised")


def test_every_kind_of_error_has_a_planted_kernel():
    planted = [*FAULTS.values(), *CLUSTER_FAULTS.values()]
    assert {told.split(":")[0] for _, told in planted} == set(ptxsim.ERROR_KINDS)
