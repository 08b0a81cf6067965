"""Kernels of clusters that are right: they give what they should in any order of threads.

For each way of ordering threads there is a twin without it, in which something is found.
"""

import numpy as np
import pytest
from ptxsim_tests_planted import HEADER

from oracle import ptxsim

SCHEDULES = range(5)
ANY = pytest.mark.parametrize("schedule", SCHEDULES)
HEAD = """
.shared .align 16 .b8 room[4096]; .shared .align 8 .b8 bars[64];
.reg .b32 %r<30>, %thread, %rank, %ranks, %own, %word; .reg .b64 %rd<9>, %at; .reg .pred %p<9>, %first;
mov.u32 %thread, %tid.x; mov.u32 %rank, %cluster_ctarank; mov.u32 %ranks, %cluster_nctarank;
mov.u32 %own, room; mad.lo.u32 %own, %thread, 4, %own; setp.eq.u32 %first, %thread, 0; mov.u32 %word, 0;
"""
TAIL = """
ld.param.u64 %at, [out]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mad.lo.u32 %r0, %r0, %r1, %thread;
mul.wide.u32 %rd0, %r0, 4; add.s64 %at, %at, %rd0; st.global.b32 [%at], %word; ret; }
"""
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
MEET = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;"
SEND = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"


def init(number, count):
    """Let thread 0 make an mbarrier."""
    return f"@%first mbarrier.init.shared.b64 [bars+{8 * number}], {count};"


def wait(number, parity=0, name="try_wait"):
    """Wait for a phase of an mbarrier, with labels of its own."""
    return f"{{ W: mbarrier.{name}.parity.shared.b64 %p8, [bars+{8 * number}], {parity}; @!%p8 bra W; }}"


def run(body, *, threads=64, ctas=2, launches=3, **keywords):
    """Run a kernel of one cluster; return its threads' ``%word``, uint32 ``[launches, ctas, threads]``."""
    text = f"{HEADER}.visible .entry kernel(.param .u64 out, .param .u64 more) {{{HEAD}{body}{TAIL}"
    memory, out = ptxsim.Memory(launches), np.zeros((launches, ctas, threads), np.uint32)
    buffers = {"out": out, "more": np.zeros((launches, 1), np.uint32)}
    params = [memory.add(name, array, writable=True).address for name, array in buffers.items()]
    ptxsim.launch(ptxsim.parse(text), memory, params, threads, grid=ctas, cluster=ctas, **keywords)
    return out


def kind(body, **keywords):
    """Return the kind of error that a kernel ends with; empty if it ends well."""
    try:
        run(body, **keywords)
    except ptxsim.SimulationError as error:
        return error.kind
    return ""


EXCHANGE = (
    init(0, 1)
    + """@%first fence.mbarrier_init.release.cluster; shl.b32 %r1, %ranks, 3;
    @%first mbarrier.arrive.expect_tx.shared.b64 _, [bars], %r1; barrier.cluster.arrive.relaxed.aligned;
    mad.lo.u32 %r2, %rank, 100, %thread; add.u32 %r3, %r2, 1000; barrier.cluster.wait.acquire.aligned;
    setp.lt.u32 %p1, %thread, %ranks; @!%p1 bra SENT;
    mapa.shared::cluster.u32 %r4, room, %thread; mapa.shared::cluster.u32 %r5, bars, %thread;
    mad.lo.u32 %r4, %rank, 8, %r4;"""
    + f"{SEND}.v2.b32 [%r4], {{%r2, %r3}}, [%r5]; SENT:"
    + wait(0)
    + """rem.u32 %r6, %thread, %ranks; mov.u32 %r7, room; mad.lo.u32 %r7, %r6, 8, %r7;
    ld.shared.v2.b32 {%r8, %r9}, [%r7]; add.u32 %word, %r8, %r9;"""
)


@pytest.mark.parametrize("ctas", range(1, 9))
@ANY
def test_each_cta_sends_two_words_to_every_other(ctas, schedule):
    found = run(EXCHANGE, ctas=ctas, threads=32, schedule=schedule)
    for cta in range(ctas):
        senders = np.arange(32) % ctas
        assert (found[:, cta] == 2 * (100 * senders + cta) + 1000).all()


@pytest.mark.parametrize("threads", [8, 40, 256, 288, 320])
@pytest.mark.parametrize("lanes", [1, 700, 100000])
def test_blocks_and_tiles_of_any_size(threads, lanes):
    found = run(EXCHANGE, ctas=4, threads=threads, launches=5, lanes_at_once=lanes)
    for cta in range(4):
        assert (found[:, cta] == 2 * (100 * (np.arange(threads) % 4) + cta) + 1000).all()


# One CTA after the other: each adds its threads' number to what comes round, in a box that is used again in
# every round. `bars` holds "full"; `bars+8`, of the sender's, "empty", at which the reader arrives.
RING = (
    init(0, 1)
    + init(1, 1)
    + f"""@%first fence.mbarrier_init.release.cluster; {MEET}
    add.u32 %r1, %rank, 1; rem.u32 %r1, %r1, %ranks; add.u32 %r2, %rank, %ranks; sub.u32 %r2, %r2, 1;
    rem.u32 %r2, %r2, %ranks;
    mapa.shared::cluster.u32 %r3, room, %r1; mapa.shared::cluster.u32 %r4, bars, %r1;
    mapa.shared::cluster.u32 %r5, bars+8, %r2; mov.u32 %r10, 0; mov.u32 %word, %rank;
    ROUND: and.b32 %r11, %r10, 1;
    @%first mbarrier.arrive.expect_tx.shared.b64 _, [bars], 4;
    @%first {SEND}.b32 [%r3], %word, [%r4];
    F: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p1, [bars], %r11; @!%p1 bra F;
    ld.shared.b32 %r12, [room]; mad.lo.u32 %word, %r12, 3, 1; bar.sync 0;
    @%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
    EMPTY bar.sync 0; add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 5; @%p2 bra ROUND; {SYNC}"""
)
EMPTY = "E: mbarrier.try_wait.parity.shared.b64 %p1, [bars+8], %r11; @!%p1 bra E;"


@pytest.mark.parametrize("ctas", [1, 2, 3, 8])
@ANY
def test_a_ring_passes_words_on_in_one_box(ctas, schedule):
    found = run(RING.replace("EMPTY", EMPTY), ctas=ctas, schedule=schedule)
    words = np.arange(ctas)
    for _ in range(5):
        words = 3 * np.roll(words, 1) + 1
    assert (found == words[:, None]).all()


@ANY
def test_a_box_that_is_used_again_too_early_is_a_race(schedule):
    assert kind(RING.replace("EMPTY", ""), ctas=3, schedule=schedule) in ("race", "mbarrier")


# Ways to hand a word over: what thread t of CTA r wrote is read by the other CTA, or by another thread.
FAR = "xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r2, %own, %r1;"
LEAVE = f"st.shared.b32 [%own], %thread; {FAR}"
TAKE = f"ld.shared::cluster.b32 %word, [%r2]; {SYNC}"
WAYS = {
    "a barrier of the cluster": (LEAVE, SYNC, TAKE),
    "a fence and a relaxed barrier": (LEAVE, "fence.acq_rel.cluster;" + MEET, TAKE),
    "a wider fence and a relaxed barrier": (LEAVE, "membar.gl;" + MEET, TAKE),
    "a barrier of two instructions": (
        "",
        f"{LEAVE} barrier.cluster.arrive; add.u32 %r9, %r9, 1; barrier.cluster.wait;",
        TAKE,
    ),
    "an mbarrier of the other CTA": (
        init(0, 64) + SYNC + LEAVE,
        "mapa.shared::cluster.u32 %r3, bars, %r1; mbarrier.arrive.shared::cluster.b64 _, [%r3];" + wait(0),
        TAKE,
    ),
    "one thread's arrival at it, after a barrier": (
        init(0, 1) + SYNC + LEAVE,
        "bar.sync 0; mapa.shared::cluster.u32 %r3, bars, %r1;"
        "@%first mbarrier.arrive.shared::cluster.b64 _, [%r3];" + wait(0),
        TAKE,
    ),
    "one thread's wait for it, before a barrier": (
        init(0, 64) + SYNC + LEAVE,
        "mapa.shared::cluster.u32 %r3, bars, %r1; mbarrier.arrive.shared::cluster.b64 _, [%r3];"
        "@!%first bra SKIP;" + wait(0) + "SKIP: bar.sync 0;",
        TAKE,
    ),
}
BROKEN = {
    "nothing": (LEAVE + SYNC + "st.shared.b32 [%own], 5;", "", TAKE),
    "barriers of the CTAs": (LEAVE + SYNC + "st.shared.b32 [%own], 5;", "bar.sync 0;", TAKE),
    "a relaxed barrier": (LEAVE, MEET, TAKE),
    "a fence of the CTA and a relaxed barrier": (LEAVE, "fence.acq_rel.cta;" + MEET, TAKE),
    "a fence too early and a relaxed barrier": ("fence.acq_rel.cluster;" + LEAVE, MEET, TAKE),
    "a write between arrival and wait": (
        "",
        f"barrier.cluster.arrive; {LEAVE} barrier.cluster.wait;",
        TAKE,
    ),
    "a relaxed arrival at an mbarrier": (
        init(0, 64) + SYNC + LEAVE,
        "mapa.shared::cluster.u32 %r3, bars, %r1;"
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r3];" + wait(0),
        TAKE,
    ),
    "a relaxed wait for an mbarrier": (
        init(0, 64) + SYNC + LEAVE,
        "mapa.shared::cluster.u32 %r3, bars, %r1; mbarrier.arrive.shared::cluster.b64 _, [%r3];"
        + wait(0).replace("parity", "parity.relaxed.cluster"),
        TAKE,
    ),
    "one thread's arrival, with no barrier before": (
        init(0, 1) + SYNC + LEAVE,
        "mapa.shared::cluster.u32 %r3, bars, %r1; @%first mbarrier.arrive.shared::cluster.b64 _, [%r3];"
        + wait(0),
        TAKE,
    ),
    "one thread's wait, with no barrier after": (
        init(0, 64) + SYNC + LEAVE,
        "mapa.shared::cluster.u32 %r3, bars, %r1; mbarrier.arrive.shared::cluster.b64 _, [%r3];"
        "@!%first bra SKIP;" + wait(0) + "SKIP:",
        TAKE,
    ),
}


@pytest.mark.parametrize("way", WAYS)
@ANY
def test_it_orders_the_memory_of_another_cta(way, schedule):
    assert (run("".join(WAYS[way]), schedule=schedule) == np.arange(64)).all()


@pytest.mark.parametrize("way", BROKEN)
@ANY
def test_it_does_not_order_the_memory_of_another_cta(way, schedule):
    assert kind("".join(BROKEN[way]), schedule=schedule) in ("race", "uninitialised")


@pytest.mark.parametrize(
    ("between", "found"),
    [(SYNC, ""), (MEET, "race"), ("fence.acq_rel.gpu;" + MEET, ""), ("bar.sync 0;", "race")],
)
@ANY
def test_global_memory_is_ordered_by_the_cluster_too(between, found, schedule):
    body = "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; setp.eq.and.u32 %p2, %thread, 3, %p1;"
    body += "ld.param.u64 %rd1, [more]; @%p2 st.global.b32 [%rd1], 77;"
    body += between + "@!%p1 ld.global.b32 %word, [%rd1];"
    if found:
        assert kind(body, schedule=schedule) in (found, "uninitialised")
    else:
        assert (run(body, schedule=schedule)[:, 1] == 77).all()


# Within a CTA: threads 0-31 write and arrive, threads 32-63 wait and read.
PRODUCE = init(0, 32) + "bar.sync 0; setp.lt.u32 %p1, %thread, 32; @!%p1 bra READ; st.shared.b32 [%own], 9;"
CONSUME = "bra DONE; READ:" + wait(0) + "ld.shared.b32 %word, [%own+-128]; DONE:"


@ANY
def test_an_mbarrier_hands_words_from_one_warp_to_another(schedule):
    found = run(f"{PRODUCE} mbarrier.arrive.shared.b64 _, [bars]; {CONSUME}", ctas=1, schedule=schedule)
    assert (found == [0] * 32 + [9] * 32).all()
    late = f"{PRODUCE} mbarrier.arrive.shared.b64 _, [bars]; st.shared.b32 [%own], 8; {CONSUME}"
    assert kind(late, ctas=1, schedule=schedule) == "race"


CHAIN = (
    init(0, 1)
    + init(1, 1)
    + "bar.sync 0; and.b32 %r1, %thread, 31; setp.eq.u32 %p1, %r1, 0; shr.u32 %r2, %thread, 5;"
    + "setp.eq.u32 %p2, %r2, 1; setp.eq.u32 %p3, %r2, 2; @%p2 bra SECOND; @%p3 bra THIRD;"
    + "st.shared.b32 [%own], 5; bar.warp.sync -1; @%p1 mbarrier.arrive.shared.b64 _, [bars]; bra DONE;"
    + "SECOND:"
    + wait(0)
    + "ORDER @%p1 mbarrier.arrive.shared.b64 _, [bars+8]; bra DONE; THIRD:"
    + wait(1)
    + "ld.shared.b32 %word, [%own+-256]; DONE:"
)


@ANY
def test_what_one_mbarrier_orders_the_next_passes_on(schedule):
    found = run(CHAIN.replace("ORDER", ""), ctas=1, threads=96, schedule=schedule)
    assert (found[..., 64:] == 5).all()
    broken = CHAIN.replace("bar.warp.sync -1;", "")
    assert kind(broken.replace("ORDER", ""), ctas=1, threads=96, schedule=schedule) == "race"


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("bar.warp.sync -1;", ""),
        ("", "race"),
        ("@%first mbarrier.arrive.shared.b64 _, [bars];", "race"),
        ("fence.acq_rel.cluster;", "race"),
    ],
)
@ANY
def test_arrivals_and_fences_do_not_order_mates_of_a_warp(between, found, schedule):
    body = init(0, 1) + f"bar.sync 0; st.shared.b32 [%own], %thread; {between} xor.b32 %r1, %own, 4;"
    body += "ld.shared.b32 %word, [%r1];"
    assert kind(body, ctas=1, schedule=schedule) in ((found, "uninitialised") if found else ("",))


# Thread 0 sees the phase end, and a barrier passes that on to the warp, or to threads 0-31 and 64-95.
PASSED_ON = (
    init(0, 1)
    + f"@%first mbarrier.arrive.expect_tx.shared.b64 _, [bars], 4; @%first {SEND}.b32 [room], 6, [bars];"
    + "bar.sync 0; shr.u32 %r2, %thread, 5; setp.eq.u32 %p2, %r2, 1; @!%first bra SKIP;"
    + wait(0)
    + "SKIP: ORDER @!%p2 ld.shared.b32 %word, [room]; bar.sync 0;"
    + wait(0)
)
PARTIAL = "@!%p2 barrier.sync 1, 64;"
TOLD = "setp.eq.u32 %p3, %r2, 0; @%p3 barrier.arrive 1, 64; setp.eq.u32 %p4, %r2, 2; @%p4 barrier.sync 1, 64;"


@pytest.mark.parametrize(
    ("between", "found"),
    [("bar.sync 0;", ""), (PARTIAL, ""), ("bar.warp.sync -1;", "race"), (TOLD, "race"), ("", "race")],
)
@ANY
def test_a_barrier_passes_on_that_a_phase_was_seen_to_end(between, found, schedule):
    body = PASSED_ON.replace("ORDER", between)
    assert kind(body, ctas=1, threads=96, schedule=schedule) == found


@ANY
def test_an_arrival_at_a_barrier_passes_on_that_a_phase_was_seen_to_end(schedule):
    reading = "@!%p2 ld.shared.b32 %word, [room]; bar.sync 0;"
    body = PASSED_ON.replace("ORDER", TOLD).replace(reading, "@%p4 ld.shared.b32 %word, [room]; bar.sync 0;")
    found = run(body, ctas=1, threads=96, schedule=schedule)
    assert (found[..., 64:] == 6).all()


# CTA 0 does not wait for the cluster's barrier, but for what CTA 1 sends after it; then it looks at CTA 1.
STARTED = (
    init(0, 1)
    + """@%first fence.mbarrier_init.release.cluster; setp.eq.u32 %p1, %rank, 0; st.shared.b32 [%own], 4;
    setp.eq.and.u32 %p2, %rank, 0, %first; @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [bars], 4; bar.sync 0;
    barrier.cluster.arrive; xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r2, room, %r1; @%p1 bra WAITS;
    barrier.cluster.wait; mapa.shared::cluster.u32 %r3, bars, %r1;"""
    + f"""@%first {SEND}.b32 [%r2+1024], %thread, [%r3]; bra BOTH;
    WAITS: CARE @%first st.shared::cluster.b32 [%r2+2048], 1; barrier.cluster.wait; BOTH: {SYNC}"""
)


@ANY
def test_a_cta_that_has_sent_something_has_started(schedule):
    assert kind(STARTED.replace("CARE", wait(0)), schedule=schedule) == ""
    assert kind(STARTED.replace("CARE", ""), schedule=schedule) == "absent CTA"


@ANY
def test_threads_that_ask_again_and_again_see_the_phase_end(schedule):
    body = EXCHANGE.replace("try_wait", "test_wait")
    assert (run(body, ctas=2, threads=32, schedule=schedule) == run(EXCHANGE, ctas=2, threads=32)).all()


# Every CTA adds its threads' numbers to words of CTA 0, through generic addresses.
REDUCED = (
    init(0, 1)
    + f"""@%first fence.mbarrier_init.release.cluster; st.shared.b32 [%own], 1; {SYNC}
    mov.u64 %rd1, room; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd1, %rd1, 0; and.b32 %r1, %thread, 7;
    mad.wide.u32 %rd1, %r1, 4, %rd1; mov.u64 %rd2, bars; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd2, %rd2, 0;
    mul.lo.u32 %r2, %ranks, 256; setp.eq.and.u32 %p1, %rank, 0, %first;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bars], %r2;
    red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u32 [%rd1], %thread, [%rd2];
    setp.ne.u32 %p2, %rank, 0; @%p2 bra END;"""
    + wait(0)
    + "and.b32 %r1, %thread, 7; mov.u32 %r3, room; mad.lo.u32 %r3, %r1, 4, %r3;"
    + "ld.shared.b32 %word, [%r3]; END:"
)


@pytest.mark.parametrize("ctas", [1, 3, 8])
@ANY
def test_reductions_of_all_ctas_add_up(ctas, schedule):
    found = run(REDUCED, ctas=ctas, schedule=schedule)
    sums = [1 + ctas * sum(range(k, 64, 8)) for k in range(8)]
    assert (found[:, 0] == np.tile(sums, 8)).all()


def test_a_barrier_of_part_of_a_cta_orders_what_came_after_an_arrival_at_an_mbarrier():
    # Thread 5's clock is ahead of those of its warp.
    body = (
        init(0, 1)
        + "bar.sync 0; setp.eq.u32 %p1, %thread, 5; @%p1 mbarrier.arrive.shared.b64 _, [bars];"
        + "st.shared.b32 [%own], %thread; setp.ge.u32 %p2, %thread, 64; @%p2 bra END; barrier.sync 1, 64;"
        + "xor.b32 %r1, %thread, 32; mov.u32 %r2, room; mad.lo.u32 %r1, %r1, 4, %r2;"
        + "ld.shared.b32 %word, [%r1]; END:"
    )
    found = run(body, ctas=1, threads=96)
    assert (found[:, 0, :64] == np.arange(64) ^ 32).all()
