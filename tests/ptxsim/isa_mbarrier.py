"""Cases of mbarriers, and of the stores and reductions that tell them what they have brought."""

import random
from collections.abc import Iterator

from ptxsim_tests_isa_case import WIDTH, Case, mask, typed

THREADS = 64
BYTES = ".mbarrier::complete_tx::bytes"
HEAD = f"""
.shared .align 16 .b8 room[{THREADS * 16}]; .shared .align 8 .b64 phase;
.reg .b32 %bar, %own, %place, %x, %mapped; .reg .b64 %gbar, %state, %wide; .reg .pred %p, %first;
mov.b32 %bar, phase; mov.b64 %gbar, phase; cvta.shared.u64 %gbar, %gbar; setp.eq.u32 %first, %thread, 0;
mov.b32 %own, room; mad.lo.u32 %own, %thread, 16, %own;
xor.b32 %place, %thread, 33; mov.b32 %x, room; mad.lo.u32 %place, %place, 16, %x;
"""
OWN = ("", ".shared", ".shared::cta")
RELEASE = ("", ".release.cta", ".release.cluster", ".relaxed.cta", ".relaxed.cluster")
ACQUIRE = ("", ".acquire.cta", ".acquire.cluster", ".relaxed.cta", ".relaxed.cluster")
RELAXED = ("", ".relaxed.cta", ".relaxed.cluster")
WAIT = "{{ W: mbarrier.try_wait.parity.shared.b64 %p, [%bar], {0}; @%p bra D; bra W; D: }}"
LOAD = "ld.shared.b64 %out0, [%place];"


def start(count: int) -> str:
    """Return PTX that makes the mbarrier of a number of arrivals."""
    return f"@%first mbarrier.init.shared.b64 [%bar], {count}; bar.sync 0;"


def at(space: str) -> str:
    """Return the operand for the mbarrier's address."""
    return "[%gbar]" if space == "" else "[%bar]"


def words(count: int = THREADS, seed: int = 3) -> list[int]:
    """Return random 64-bit words."""
    draw = random.Random(seed)
    return [draw.getrandbits(64) for _ in range(count)]


def case(form: str, body: str, columns: list[list[int]], expected: list[list[int]], name: str = "") -> Case:
    """Make a case of one CTA."""
    return Case(name or form, form, HEAD + body, columns, expected, THREADS)


def arrivals() -> Iterator[Case]:
    """All threads arrive, and wait for the phase: by parity, or by the state that they got."""
    column = words()
    other = [column[t ^ 33] for t in range(THREADS)]
    store = "st.shared.b64 [%own], %in0;"
    for order in RELEASE:
        for space in (*OWN, ".shared::cluster"):
            form = f"mbarrier.arrive{order}{space}.b64"
            # A relaxed arrival orders no memory, so a barrier must.
            sync = "bar.sync 0;" if "relaxed" in order else ""
            sink = f"{start(THREADS)} {store} {form} _, {at(space)}; {WAIT.format(0)} {sync} {LOAD}"
            yield case(form, sink, [column], [other], f"{form}-sink")
            counted = f"{start(3 * THREADS)} {store} {form} _, {at(space)}, 3; {WAIT.format(0)} {sync} {LOAD}"
            yield case(form, counted, [column], [other], f"{form}-count")
            if space != ".shared::cluster":
                wait = "{ W: mbarrier.test_wait.shared.b64 %p, [%bar], %state; @!%p bra W; }"
                body = f"{start(THREADS)} {store} {form} %state, {at(space)}; {wait} {sync} {LOAD}"
                yield case(form, body, [column], [other], f"{form}-state")
            expecting = f"mbarrier.arrive.expect_tx{order}{space}.b64"
            bring = f"st.async.shared::cluster{BYTES}.b64 [%own], %in0, [%bar];"
            body = f"{start(THREADS)} {bring} {expecting} _, {at(space)}, 8; {WAIT.format(0)} {LOAD}"
            yield case(expecting, body, [column], [other], f"{expecting}-sink")
            if space != ".shared::cluster":
                body = f"{start(THREADS)} {expecting} %state, {at(space)}, 8; {bring} {WAIT.format(0)} {LOAD}"
                yield case(expecting, body, [column], [other], f"{expecting}-state")


def waits() -> Iterator[Case]:
    """Three phases; the word read after each was written before the arrival at it."""
    column = words()
    for name in ("test_wait", "try_wait"):
        for parity in ("", ".parity"):
            for order in ACQUIRE:
                for space in OWN:
                    form = f"mbarrier.{name}{parity}{order}{space}.b64"
                    for hint in ("", ", 1000") if name == "try_wait" else ("",):
                        sync = "bar.sync 0;" if "relaxed" in order else ""
                        body, expected = start(THREADS), []
                        for phase in range(3):
                            named = phase % 2 if parity else "%state"
                            body += (
                                f"add.s64 %wide, %in0, {phase}; st.shared.b64 [%own], %wide;"
                                "mbarrier.arrive.shared.b64 %state, [%bar];"
                                f"{{ W: {form} %p, {at(space)}, {named}{hint}; @!%p bra W; }} {sync}"
                                f"ld.shared.b64 %out{phase}, [%place]; bar.sync 0;"
                            )
                            expected.append([mask(column[t ^ 33] + phase, 64) for t in range(THREADS)])
                        yield case(form, body, [column], expected, f"{form}{hint.replace(', ', '-')}")


def transactions() -> Iterator[Case]:
    """Bytes that are expected come, or are said to have come; init and inval."""
    column = words()
    own = [column[t] for t in range(THREADS)]
    for order in RELAXED:
        for space in (*OWN, ".shared::cluster"):
            form = f"mbarrier.expect_tx{order}{space}.b64"
            body = (
                f"{start(1)} @%first {form} {at(space)}, {THREADS * 8 - 8}; bar.sync 0;"
                f"st.async.shared::cluster{BYTES}.b64 [%own], %in0, [%bar]; bar.sync 0;"
                f"@%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 8; {WAIT.format(0)}"
                "ld.shared.b64 %out0, [%own];"
            )
            yield case(form, body, [column], [own])
            form = f"mbarrier.complete_tx{order}{space}.b64"
            body = (
                f"{start(1)} @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], {THREADS * 4};"
                f"bar.sync 0; {form} {at(space)}, 4; {WAIT.format(0)} mov.b64 %out0, %in0;"
            )
            yield case(form, body, [column], [own])
    for space in OWN:
        form = f"mbarrier.init{space}.b64"
        body = (
            f"mov.u32 %x, {THREADS}; @%first {form} {at(space)}, %x; bar.sync 0;"
            f"mbarrier.arrive.shared.b64 _, [%bar]; {WAIT.format(0)} mov.b64 %out0, %in0;"
        )
        yield case(form, body, [column], [own])
        form = f"mbarrier.inval{space}.b64"
        body = (
            f"{start(THREADS)} mbarrier.arrive.shared.b64 _, [%bar]; {WAIT.format(0)} bar.sync 0;"
            f"@%first {form} {at(space)}; @%first st.shared.b64 [%bar], %in0; bar.sync 0;"
            "ld.shared.b64 %out0, [%bar]; bar.sync 0; @%first mbarrier.init.shared.b64 [%bar], 1;"
        )
        yield case(form, body, [column], [[column[0]] * THREADS])


def stores() -> Iterator[Case]:
    """Each thread sends its 16 bytes, or a part of them, to another thread's place."""
    low, high = words(seed=5), words(seed=6)
    for weak in ("", ".weak"):
        for space in ("", ".shared::cluster"):
            for kind in ("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
                for count in (1, 2, 4) if WIDTH[kind] == 32 else (1, 2):
                    yield store(weak, space, kind, count, low, high)


def store(weak: str, space: str, kind: str, count: int, low: list[int], high: list[int]) -> Case:
    """Make the case of one form of ``st.async``."""
    vector = f".v{count}" if count > 1 else ""
    form = f"st.async{weak}{space}{BYTES}{vector}.{kind}"
    size = WIDTH[kind] // 8
    if size == 8:
        declare = ".reg .b64 %v0, %v1; mov.b64 %v0, %in0; mov.b64 %v1, %in1;"
    else:
        declare = ".reg .b32 %v0, %v1, %v2, %v3; mov.b64 {%v0, %v1}, %in0; mov.b64 {%v2, %v3}, %in1;"
    value = "%v0" if count == 1 else "{" + ", ".join(f"%v{k}" for k in range(count)) + "}"
    target = "[%place]" if space else "[%wide]"
    wide = "cvt.u64.u32 %wide, %place; cvta.shared.u64 %wide, %wide;"
    clear = "st.shared.v2.b64 [%own], {0, 0};"
    body = (
        f"{declare} {wide} {clear} {start(1)} @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], "
        f"{size * count * THREADS}; {form} {target}, {value}, {at(space)}; {WAIT.format(0)}"
        "ld.shared.v2.b64 {%out0, %out1}, [%own];"
    )
    octets = [low[t ^ 33] | high[t ^ 33] << 64 for t in range(THREADS)]
    kept = [mask(word, 8 * size * count) for word in octets]
    return case(form, body, [low, high], [[mask(word, 64) for word in kept], [word >> 64 for word in kept]])


REDUCED = {
    "add": (("u32", "s32", "u64", "s64"), lambda old, v: old + v),
    "min": (("u32", "s32"), min),
    "max": (("u32", "s32"), max),
    "inc": (("u32",), lambda old, v: 0 if old >= v else old + 1),
    "dec": (("u32",), lambda old, v: v if old == 0 or old > v else old - 1),
    "and": (("b32",), lambda old, v: old & v),
    "or": (("b32",), lambda old, v: old | v),
    "xor": (("b32",), lambda old, v: old ^ v),
}


def reductions() -> Iterator[Case]:
    """All threads change one word; ``inc`` and ``dec`` with one bound, so that no order shows."""
    for name, (kinds, apply) in REDUCED.items():
        for kind in kinds:
            for space in ("", ".shared::cluster"):
                yield reduction(name, kind, space, apply)


def reduction(name: str, kind: str, space: str, apply) -> Case:
    """Make the case of one form of ``red.async``."""
    form = f"red.async.relaxed.cluster{space}{BYTES}.{name}.{kind}"
    bits = WIDTH[kind]
    column = [mask(word, bits) for word in words(seed=len(form))]
    begin = mask(words(1, seed=9)[0], bits)
    if name in ("inc", "dec"):
        column, begin = [41] * THREADS, 17
    value = "mov.b64 %value, %in0;" if bits == 64 else "cvt.u32.u64 %value, %in0;"
    target = "[room]" if space else "[%wide]"
    body = (
        f".reg .b{bits} %value, %left; {value} mov.b64 %wide, room; cvta.shared.u64 %wide, %wide;"
        f"@%first st.shared.b{bits} [room], {begin}; {start(1)}"
        f"@%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], {bits // 8 * THREADS};"
        f"{form} {target}, %value, {at(space)}; {WAIT.format(0)} ld.shared.b{bits} %left, [room];"
        + ("mov.b64 %out0, %left;" if bits == 64 else "cvt.u64.u32 %out0, %left;")
    )
    left = begin
    for word in column:
        left = mask(apply(typed(left, kind), typed(word, kind)), bits)
    return case(form, body, [column], [[left] * THREADS])


def cases() -> list[Case]:
    """Return every case of this file."""
    return [*arrivals(), *waits(), *transactions(), *stores(), *reductions()]
