"""Faults planted in kernels of two CTAs of a cluster, with the whole message that one reads."""

CLUSTER = {"grid": 2, "cluster": 2}
# %r10 the own rank, %r11 the other CTA's; %r12 the box and %r13 the mbarrier there; thread 0 is %p5.
NAMES = (
    ".shared .align 8 .b64 bar; mov.u32 %r10, %cluster_ctarank; xor.b32 %r11, %r10, 1;"
    "mapa.shared::cluster.u32 %r12, room, %r11; mapa.shared::cluster.u32 %r13, bar, %r11;"
    "setp.eq.u32 %p5, %thread, 0;"
)
INIT = "@%p5 mbarrier.init.shared.b64 [bar], 1; @%p5 fence.mbarrier_init.release.cluster;"
EXPECT = "@%p5 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4;"
MEET = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;"
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
SEND = "@%p5 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], %r10, [%r13];"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p6, [bar], 0; @!%p6 bra W;"
LOAD = "ld.shared.b32 %r1, [room];"

RACES = {
    "what an asynchronous store brings, without a wait": (
        (NAMES + INIT + EXPECT + MEET, SEND, LOAD, WAIT),
        "race: a read of what was written by an asynchronous store, whose phase the thread has not seen "
        "complete; thread 0, address 0x400 (room+0x0); PTX line 25: ld.shared.b32 %r1, [room] "
        "(planted/kernel.py:102); thread 64 was at PTX line 23: @%p5 st.async.shared::cluster."
        "mbarrier::complete_tx::bytes.b32 [%r12], %r10, [%r13] (planted/kernel.py:101)",
    ),
    "what an asynchronous store brings, one thread's wait without a barrier": (
        (NAMES + INIT + EXPECT + MEET, SEND, "@!%p5 bra SKIP;", WAIT, "SKIP:", LOAD),
        "race: a read of what was written by an asynchronous store, whose phase the thread has not seen "
        "complete; thread 1, address 0x400 (room+0x0); PTX line 31: ld.shared.b32 %r1, [room] "
        "(planted/kernel.py:105); thread 64 was at PTX line 23: @%p5 st.async.shared::cluster."
        "mbarrier::complete_tx::bytes.b32 [%r12], %r10, [%r13] (planted/kernel.py:101)",
    ),
    "an asynchronous store over what its CTA still reads": (
        (NAMES + INIT + EXPECT + "@%p5 st.shared.b32 [room], 7;" + SYNC, LOAD, "bar.sync 0;", SEND, WAIT),
        "race: a write of what was read by several threads, with no barrier between; thread 0, address "
        "0x2000400 (room+0x0 of CTA 1); PTX line 27: @%p5 st.async.shared::cluster.mbarrier::complete_tx::"
        "bytes.b32 [%r12], %r10, [%r13] (planted/kernel.py:103); thread 127 was at PTX line 23: "
        "ld.shared.b32 %r1, [room] (planted/kernel.py:101)",
    ),
    "another CTA's memory, across a relaxed barrier": (
        (NAMES + "@%p5 st.shared.b32 [room], 7;", MEET, "ld.shared::cluster.b32 %r1, [%r12];", SYNC),
        "race: a read of what was written by thread 64, with no barrier between; thread 0, address 0x2000400 "
        "(room+0x0 of CTA 1); PTX line 25: ld.shared::cluster.b32 %r1, [%r12] (planted/kernel.py:102); "
        "thread 64 was at PTX line 21: @%p5 st.shared.b32 [room], 7 (planted/kernel.py:100)",
    ),
    "another CTA's memory, across barriers of the CTAs": (
        (NAMES + SYNC, "@%p5 st.shared::cluster.b32 [%r12], 7;", "bar.sync 0;", LOAD, SYNC),
        "race: a read of what was written by thread 64, with no barrier between; thread 0, address 0x400 "
        "(room+0x0); PTX line 27: ld.shared.b32 %r1, [room] (planted/kernel.py:103); "
        "thread 64 was at PTX line 23: @%p5 st.shared::cluster.b32 [%r12], 7 (planted/kernel.py:101)",
    ),
    "global memory, across a relaxed barrier of the cluster": (
        (
            "griddepcontrol.wait;" + NAMES + "ld.param.u64 %rd0, [metadata];",
            "@%p5 st.global.b32 [%rd0], 7;",
            MEET,
            "ld.global.b32 %r1, [%rd0];",
        ),
        "race: a write of what was written by thread 64 in the same instruction; thread 0, address "
        "0x50000001010 (metadata+0x0 = padded_tokens[0]); PTX line 23: @%p5 st.global.b32 [%rd0], 7 "
        "(planted/kernel.py:101); thread 64 was at PTX line 23: @%p5 st.global.b32 [%rd0], 7 "
        "(planted/kernel.py:101)",
    ),
}

ABSENT = {
    "a CTA that may not have started": (
        (NAMES + INIT + EXPECT, "bar.sync 0;", SEND, WAIT),
        "absent CTA: nothing before says that CTA 1 of the cluster has started; thread 0, address 0x2000400; "
        "PTX line 25: @%p5 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], %r10, [%r13] "
        "(planted/kernel.py:102)",
    ),
    "a CTA that may have exited": (
        (NAMES + "@%p5 st.shared.b32 [room], 7;" + SYNC, "ld.shared::cluster.b32 %r1, [%r12];"),
        "absent CTA: a CTA exits, and nothing orders that after what thread 64 does in its shared memory; "
        "thread 63; PTX line 24: ret (planted/kernel.py:101)",
    ),
    "a CTA that has exited": (
        (
            NAMES + SYNC,
            "setp.eq.u32 %p1, %r10, 1; @%p1 ret;",
            "@%p5 st.shared::cluster.b32 [%r12], 7;",
        ),
        "absent CTA: CTA 1 of the cluster, whose shared memory is accessed, has exited; thread 0, address "
        "0x2000400; PTX line 25: @%p5 st.shared::cluster.b32 [%r12], 7 (planted/kernel.py:102)",
    ),
    "an exit before what is under way has arrived": (
        (NAMES + INIT + EXPECT + MEET, SEND),
        "absent CTA: a CTA exits that has not seen all asynchronous stores into its shared memory arrive; "
        "thread 63; PTX line 24: ret (planted/kernel.py:101)",
    ),
    "a rank beyond the cluster": (
        ("mapa.shared::cluster.u32 %r1, room, 2;",),
        "absent CTA: CTA 2 of a cluster of 2; thread 0; PTX line 21: mapa.shared::cluster.u32 %r1, room, 2 "
        "(planted/kernel.py:100)",
    ),
}

MBARRIERS = {
    "an mbarrier that is not made": (
        (NAMES + EXPECT,),
        "mbarrier: no mbarrier is initialised there; thread 0, address 0x508 (bar+0x0); PTX line 21: @%p5 "
        "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4 (planted/kernel.py:100)",
    ),
    "an mbarrier made with nothing after it": (
        (NAMES + "@%p5 mbarrier.init.shared.b64 [bar], 1;", MEET, SEND),
        "mbarrier: nothing orders this after the initialisation of the mbarrier by thread 64; thread 0, "
        "address 0x2000508 (bar+0x0); PTX line 25: @%p5 st.async.shared::cluster.mbarrier::complete_tx::"
        "bytes.b32 [%r12], %r10, [%r13] (planted/kernel.py:102)",
    ),
    "an mbarrier made by another thread, without a barrier": (
        (NAMES + INIT, WAIT),
        "mbarrier: nothing orders this after the initialisation of the mbarrier by thread 0; thread 1, "
        "address 0x508 (bar+0x0); PTX line 23: mbarrier.try_wait.parity.shared.b64 %p6, [bar], 0 "
        "(planted/kernel.py:101)",
    ),
    "an mbarrier made twice": (
        (NAMES + INIT, INIT),
        "mbarrier: an mbarrier is initialised that is one already; thread 0, address 0x508 (bar+0x0); "
        "PTX line 23: @%p5 mbarrier.init.shared.b64 [bar], 1 (planted/kernel.py:101)",
    ),
    "an mbarrier read as memory": (
        (NAMES + INIT + "bar.sync 0;", "ld.shared.b32 %r1, [bar+4];"),
        "mbarrier: a read of part of an mbarrier; thread 0, address 0x50c (bar+0x4); PTX line 23: "
        "ld.shared.b32 %r1, [bar+4] (planted/kernel.py:101)",
    ),
    "more bytes than expected": (
        (
            NAMES + INIT + EXPECT + MEET,
            "setp.lt.u32 %p5, %thread, 2; mad.lo.u32 %r12, %thread, 4, %r12;",
            SEND,
        ),
        "mbarrier: 4 bytes more than the phase expects; thread 0, address 0x508 (bar+0x0); PTX line 25: @%p5 "
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], %r10, [%r13] "
        "(planted/kernel.py:102)",
    ),
    "bytes that never come": (
        (NAMES + INIT + "bar.sync 0;", "@%p5 mbarrier.expect_tx.shared.b64 [bar], 16;"),
        "mbarrier: a CTA exits with an mbarrier whose phase 0 lacks 1 of 1 arrivals and lacks 16 bytes; "
        "thread 63, address 0x508 (bar+0x0); PTX line 24: ret (planted/kernel.py:101)",
    ),
    "more arrivals than expected": (
        (NAMES + INIT + "bar.sync 0;", "mbarrier.arrive.shared.b64 _, [bar];"),
        "mbarrier: 64 arrivals where 1 are pending; thread 0, address 0x508 (bar+0x0); PTX line 23: "
        "mbarrier.arrive.shared.b64 _, [bar] (planted/kernel.py:101)",
    ),
    "an arrival before anybody has seen the last phase end": (
        (
            NAMES + INIT + "@%p5 mbarrier.arrive.shared.b64 _, [bar];",
            "@%p5 mbarrier.arrive.shared.b64 _, [bar];",
        ),
        "mbarrier: an arrival in phase 1, and nobody has seen the last one end; thread 0, address 0x508 "
        "(bar+0x0); PTX line 23: @%p5 mbarrier.arrive.shared.b64 _, [bar] (planted/kernel.py:101)",
    ),
    "the state of a phase long ago": (
        (
            NAMES
            + "@%p5 mbarrier.init.shared.b64 [bar], 64; bar.sync 0; mbarrier.arrive.shared.b64 %rd1, [bar];",
            WAIT,
            "mbarrier.arrive.shared.b64 %rd2, [bar]; V: mbarrier.test_wait.shared.b64 %p6, [bar], %rd2;"
            "@!%p6 bra V;",
            "mbarrier.test_wait.shared.b64 %p6, [bar], %rd1;",
        ),
        "mbarrier: the state of neither the present phase nor the last; thread 0, address 0x508 (bar+0x0); "
        "PTX line 27: mbarrier.test_wait.shared.b64 %p6, [bar], %rd1 (planted/kernel.py:103)",
    ),
    "a count of nothing": (
        (NAMES + "mov.u32 %r1, 0;", "@%p5 mbarrier.init.shared.b64 [bar], %r1;"),
        "mbarrier: a count of 0, not 1..1048575; thread 0, address 0x508 (bar+0x0); PTX line 23: @%p5 "
        "mbarrier.init.shared.b64 [bar], %r1 (planted/kernel.py:101)",
    ),
    "more bytes than it can count": (
        (NAMES + INIT, "@%p5 mbarrier.expect_tx.shared.b64 [bar], 1048576;"),
        "mbarrier: 1048576 bytes to come, more than 1048575; thread 0, address 0x508 (bar+0x0); PTX line 23: "
        "@%p5 mbarrier.expect_tx.shared.b64 [bar], 1048576 (planted/kernel.py:101)",
    ),
    "the mbarrier of another CTA than the store's": (
        (
            NAMES + INIT + EXPECT + MEET,
            "@%p5 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], %r10, [bar];",
        ),
        "mbarrier: the mbarrier is in another CTA than the destination; thread 0, address 0x508 (bar+0x0); "
        "PTX line 23: @%p5 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], %r10, [bar] "
        "(planted/kernel.py:101)",
    ),
}

WAITS = {
    "a phase that lacks bytes": (
        (NAMES + INIT + EXPECT + "bar.sync 0;", WAIT),
        "deadlock: waits for an mbarrier whose phase 0 lacks 0 of 1 arrivals and lacks 4 bytes; "
        "thread 0, address 0x508 (bar+0x0); PTX line 23: mbarrier.try_wait.parity.shared.b64 %p6, [bar], 0 "
        "(planted/kernel.py:101)",
    ),
    "a phase that lacks arrivals, asked for again and again": (
        (NAMES + INIT + "bar.sync 0;", WAIT.replace("try", "test")),
        "deadlock: waits for an mbarrier whose phase 0 lacks 1 of 1 arrivals and lacks 0 bytes; "
        "thread 0, address 0x508 (bar+0x0); PTX line 23: mbarrier.test_wait.parity.shared.b64 %p6, [bar], 0 "
        "(planted/kernel.py:101)",
    ),
    "a CTA that does not come to the cluster's barrier": (
        (
            NAMES + "setp.eq.u32 %p1, %r10, 1; @%p1 bra OTHER;",
            SYNC,
            "OTHER:",
            "@%p5 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; @!%p1 bra END;",
            WAIT,
            "END:",
        ),
        "deadlock: waits for thread 64, which waits at PTX line 29; thread 0; PTX line 23: "
        "barrier.cluster.wait.aligned (planted/kernel.py:101)",
    ),
    "a warp of which part comes to the cluster's barrier": (
        ("setp.eq.u32 %p1, %thread, 5; @%p1 bra OTHER;", SYNC, "OTHER: bar.sync 0;"),
        "deadlock: waits for thread 5, which waits at PTX line 25; thread 0; PTX line 23: "
        "barrier.cluster.arrive.aligned (planted/kernel.py:101)",
    ),
    "a wait for the cluster without an arrival": (
        ("barrier.cluster.wait;",),
        "barrier: a wait without an arrival at the cluster's barrier; thread 0; PTX line 21: "
        "barrier.cluster.wait (planted/kernel.py:100)",
    ),
    "two arrivals at the cluster's barrier": (
        ("barrier.cluster.arrive;", "barrier.cluster.arrive;"),
        "barrier: a second arrival without a wait between at the cluster's barrier; thread 0; PTX line 23: "
        "barrier.cluster.arrive (planted/kernel.py:101)",
    ),
}

# %rd1: a generic address of the other CTA's box; %rd2, of its mbarrier.
GENERIC = (
    NAMES + "mov.u64 %rd1, room; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd1, %rd1, %r11;"
    "mov.u64 %rd2, bar; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd2, %rd2, %r11;" + INIT + SYNC
)
SEND_GENERIC = "@%p5 st.async.mbarrier::complete_tx::bytes.b32 [%rd1{}], %r10, [%rd2];"
ADDRESSES = {
    "an asynchronous store to no shared memory": (
        (GENERIC + "mov.u64 %rd1, 4096;", SEND_GENERIC.format("")),
        "out of bounds: an address not in shared memory; thread 0, address 0x1000; PTX line 23: @%p5 "
        "st.async.mbarrier::complete_tx::bytes.b32 [%rd1], %r10, [%rd2] (planted/kernel.py:101)",
    ),
    "an asynchronous store past shared memory": (
        (GENERIC, SEND_GENERIC.format("+4096")),
        "out of bounds: 4 bytes outside the 272 bytes of shared memory; thread 0, address 0x2001400 "
        "(bar+0xef8); PTX line 23: @%p5 st.async.mbarrier::complete_tx::bytes.b32 [%rd1+4096], %r10, "
        "[%rd2] (planted/kernel.py:101)",
    ),
    "an asynchronous store that is misaligned": (
        (GENERIC, SEND_GENERIC.format("+2")),
        "misaligned: an access of 4 bytes; thread 0, address 0x2000402 (room+0x2); PTX line 23: @%p5 "
        "st.async.mbarrier::complete_tx::bytes.b32 [%rd1+2], %r10, [%rd2] (planted/kernel.py:101)",
    ),
    "a generic address of a CTA beyond the cluster": (
        (GENERIC, SEND_GENERIC.format("+0x3000000")),
        "absent CTA: CTA 4 of a cluster of 2; thread 0; PTX line 23: @%p5 "
        "st.async.mbarrier::complete_tx::bytes.b32 [%rd1+0x3000000], %r10, [%rd2] (planted/kernel.py:101)",
    ),
    "a wait for an mbarrier of another CTA": (
        (GENERIC, "mbarrier.try_wait.parity.b64 %p6, [%rd2], 0;"),
        "mbarrier: an mbarrier of another CTA only takes arrivals; thread 0, address 0x2000508 (bar+0x0); "
        "PTX line 23: mbarrier.try_wait.parity.b64 %p6, [%rd2], 0 (planted/kernel.py:101)",
    ),
    "an mbarrier made for another CTA": (
        (GENERIC, "@%p5 mbarrier.init.b64 [%rd2], 1;"),
        "mbarrier: an mbarrier of another CTA only takes arrivals; thread 0, address 0x2000508 (bar+0x0); "
        "PTX line 23: @%p5 mbarrier.init.b64 [%rd2], 1 (planted/kernel.py:101)",
    ),
    "an mbarrier of another CTA given back": (
        (GENERIC, "@%p5 mbarrier.inval.b64 [%rd2];"),
        "mbarrier: an mbarrier of another CTA only takes arrivals; thread 0, address 0x2000508 (bar+0x0); "
        "PTX line 23: @%p5 mbarrier.inval.b64 [%rd2] (planted/kernel.py:101)",
    ),
    "an address of another CTA as one of the own": (
        (NAMES + SYNC, "ld.shared.b32 %r1, [%r12];"),
        "out of bounds: 4 bytes outside the 272 bytes of shared memory; thread 0, address 0x2000400 "
        "(bar+0x1fffef8); PTX line 23: ld.shared.b32 %r1, [%r12] (planted/kernel.py:101)",
    ),
}

FAULTS = RACES | ABSENT | MBARRIERS | WAITS | ADDRESSES
