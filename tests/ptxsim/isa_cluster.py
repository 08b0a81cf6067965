"""Cases of addresses in other CTAs, of the cluster's barrier, and of plain accesses of other CTAs' memory."""

from collections.abc import Iterator

from ptxsim_tests_isa_case import Case, mask, samples

CTAS, THREADS = 4, 32
TOTAL = CTAS * THREADS
ROOM = ".shared .align 16 .b8 room[512];"
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
CLUSTER = {"grid": CTAS, "cluster": CTAS}
# %rank is the own CTA, %far another one: thread t of CTA c looks at CTA (c + t) mod 4, place 31 - t.
HEAD = f"""
.reg .b32 %rank, %far, %own, %place, %x; .reg .b64 %wide;
mov.u32 %rank, %cluster_ctarank; add.u32 %far, %rank, %thread; and.b32 %far, %far, {CTAS - 1};
mov.b32 %own, room; mad.lo.u32 %own, %thread, 8, %own;
mov.b32 %place, room; sub.u32 %x, {THREADS - 1}, %thread; mad.lo.u32 %place, %x, 8, %place;
"""


def seen(column: list[int]) -> list[int]:
    """Return the word that each thread finds at the place it looks at."""
    return [column[(c + t) % CTAS * THREADS + THREADS - 1 - t] for c in range(CTAS) for t in range(THREADS)]


def case(form: str, body: str, columns: list[list[int]], expected: list[list[int]], name: str = "") -> Case:
    """Make a case of four CTAs."""
    text = ROOM + HEAD + body
    return Case(name or form, form, text, columns, expected, THREADS, keywords=dict(CLUSTER))


def addresses() -> Iterator[Case]:
    """A word of another CTA, through its address, and the rank in that address."""
    column = samples(["b64"], TOTAL)[0]
    far = [(c + t) % CTAS for c in range(CTAS) for t in range(THREADS)]
    store = f"st.shared.b64 [%own], %in0; {SYNC}"
    near = "cvt.u64.u32 %wide, %place;"
    generic = f"{near} cvta.shared.u64 %wide, %wide;"
    ways = {
        "mapa.shared::cluster.u32": "mapa.shared::cluster.u32 %place, %place, %far;",
        "mapa.shared::cluster.u64": f"{near} mapa.shared::cluster.u64 %wide, %wide, %far;"
        "cvt.u32.u64 %place, %wide;",
        "mapa.u64": f"{generic} mapa.u64 %wide, %wide, %far;",
    }
    for form, way in ways.items():
        load = "ld.b64 %out0, [%wide];" if form == "mapa.u64" else "ld.shared::cluster.b64 %out0, [%place];"
        yield case(form, f"{store} {way} {load} {SYNC}", [column], [seen(column)])
    lead = [column[(c + t) % CTAS * THREADS + 3] for c in range(CTAS) for t in range(THREADS)]
    variable = "mapa.shared::cluster.u32 %place, room+24, %far; ld.shared::cluster.b64 %out0, [%place];"
    body = f"{store} {variable} {SYNC}"
    yield case("mapa.shared::cluster.u32", body, [column], [lead], "mapa.shared::cluster.u32-of-a-variable")
    guarded = (
        f".reg .pred %p; {store} setp.lt.u32 %p, %thread, 9; mov.b32 %x, 77;"
        "@%p mapa.shared::cluster.u32 %x, %place, %far; @%p ld.shared::cluster.b64 %out0, [%x];"
        f"@!%p cvt.u64.u32 %out0, %x; {SYNC}"
    )
    some = [word if k % THREADS < 9 else 77 for k, word in enumerate(seen(column))]
    yield case("mapa.shared::cluster.u32", guarded, [column], [some], "mapa.shared::cluster.u32-guarded")
    ranks = {
        "getctarank.shared::cluster.u32": f"{ways['mapa.shared::cluster.u32']}"
        "getctarank.shared::cluster.u32 %x, %place;",
        "getctarank.shared::cluster.u64": f"{ways['mapa.shared::cluster.u64']}"
        "getctarank.shared::cluster.u64 %x, %wide;",
        "getctarank.u64": f"{ways['mapa.u64']} getctarank.u64 %x, %wide;",
    }
    for form, way in ranks.items():
        yield case(form, f"{way} cvt.u64.u32 %out0, %x;", [column], [far])
    own = [c for c in range(CTAS) for _ in range(THREADS)]
    for operand in ("%own", "room+8"):
        body = f"getctarank.shared::cluster.u32 %x, {operand}; cvt.u64.u32 %out0, %x;"
        name = f"getctarank-of-the-own-{operand.strip('%')}"
        yield case("getctarank.shared::cluster.u32", body, [column], [own], name)


def barriers() -> Iterator[Case]:
    """A word is handed to another CTA across the cluster's barrier."""
    column = samples(["b64"], TOTAL)[0]
    store = "st.shared.b64 [%own], %in0; mapa.shared::cluster.u32 %place, %place, %far;"
    load = f"ld.shared::cluster.b64 %out0, [%place]; {SYNC}"
    for aligned in ("", ".aligned"):
        for order in ("", ".release", ".relaxed"):
            form = f"barrier.cluster.arrive{order}{aligned}"
            fence = "fence.acq_rel.cluster;" if order == ".relaxed" else ""
            body = f"{store} {fence} {form}; barrier.cluster.wait{aligned}; {load}"
            yield case(form, body, [column], [seen(column)])
        for order in ("", ".acquire"):
            form = f"barrier.cluster.wait{order}{aligned}"
            body = f"{store} barrier.cluster.arrive{aligned}; {form}; {load}"
            yield case(form, body, [column], [seen(column)])
    # Lanes of a warp arrive one by one, and some have ended.
    body = (
        ".reg .pred %p; setp.gt.u32 %p, %thread, 20; mov.b64 %out0, 0; @%p bra END;"
        f"{store} setp.lt.u32 %p, %thread, 5; @%p bra FIRST; barrier.cluster.arrive; bra BOTH;"
        "FIRST: barrier.cluster.arrive; BOTH: barrier.cluster.wait; setp.lt.u32 %p, %thread, 11;"
        "@%p bra LEAVE; ld.shared::cluster.b64 %out0, [%place];"
        "LEAVE: barrier.cluster.arrive; barrier.cluster.wait; END:"
    )
    found = [word if 11 <= k % THREADS < 21 else 0 for k, word in enumerate(seen(column))]
    yield case("barrier.cluster.arrive", body, [column], [found], "barrier.cluster-lane-by-lane")


def accesses() -> Iterator[Case]:
    """Stores and atomics in other CTAs."""
    column = samples(["b64"], TOTAL)[0]
    place = "mapa.shared::cluster.u32 %place, %place, %far;"
    # Thread t of CTA c writes place 31 - t of CTA (c + t) mod 4; place p of CTA d comes from thread 31 - p.
    writers = [
        (d - (THREADS - 1 - p)) % CTAS * THREADS + THREADS - 1 - p
        for d in range(CTAS)
        for p in range(THREADS)
    ]
    body = f"{SYNC} {place} st.shared::cluster.b64 [%place], %in0; {SYNC} ld.shared.b64 %out0, [%own];"
    yield case("st.shared::cluster.b64", body, [column], [[column[w] for w in writers]], "st-in-other-CTAs")
    body = (
        f"st.shared.b64 [%own], 7; {SYNC} {place} red.shared::cluster.add.u64 [%place], %in0;"
        f"{SYNC} ld.shared.b64 %out0, [%own];"
    )
    added = [[mask(column[w] + 7, 64) for w in writers]]
    yield case("red.shared::cluster.add.u64", body, [column], added, "red-in-other-CTAs")
    body = (
        f"st.shared.b64 [%own], %in0; {SYNC} {place} atom.shared::cluster.exch.b64 %out0, [%place], 5; {SYNC}"
        "ld.shared.b64 %out1, [%own];"
    )
    yield case(
        "atom.shared::cluster.exch.b64", body, [column], [seen(column), [5] * TOTAL], "atom-in-other-CTAs"
    )
    body = (
        f"st.shared.b64 [%own], %in0; {SYNC} cvt.u64.u32 %wide, %place;"
        f"cvta.shared::cluster.u64 %wide, %wide; mapa.u64 %wide, %wide, %far;"
        f"atom.add.u64 %out0, [%wide], 9; {SYNC} ld.shared.b64 %out1, [%own];"
    )
    more = [mask(word + 9, 64) for word in column]
    yield case("atom.add.u64", body, [column], [seen(column), more], "generic-atom-in-other-CTAs")


def cases() -> list[Case]:
    """Return every case of this file."""
    return [*addresses(), *barriers(), *accesses()]
