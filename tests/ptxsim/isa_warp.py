"""Cases of what lanes do together, of barriers, branches and the rest."""

import random
from collections.abc import Callable, Iterator

from ptxsim_tests_isa_case import WIDTH, Case, mask, samples, typed

FULL = 0xFFFFFFFF
# Two warps; in the second, lanes that differ in their masks: evens, odds.
EVENS, ODDS = 0x55555555, 0xAAAAAAAA


def lanes_case(
    form: str,
    statement: str,
    declare: str,
    columns: list[list[int]],
    outputs: list[str],
    work: Callable[[int, list[list[int]], int], tuple[int, ...]],
    masks: str,
    name: str = "",
) -> Case:
    """Make a case of one collective for two warps.

    ``masks`` is ``full`` (a constant mask) or ``halves``: lanes with odd numbers and even numbers meet apart,
    each group at the same place but with its own mask. ``work(lane, operands of the warp, mask)`` returns a
    lane's outputs.
    """
    lines = [declare]
    member = "-1"
    if masks == "halves":
        lines += [
            ".reg .b32 %odd, %member; .reg .pred %is;",
            "and.b32 %odd, %thread, 1; setp.eq.b32 %is, %odd, 1;",
            f"selp.b32 %member, {ODDS}, {EVENS}, %is;",
        ]
        member = "%member"
    lines.append(statement.replace("MASK", member) + ";")
    expected: list[list[int]] = [[] for _ in outputs]
    for t in range(64):
        warp = [column[t // 32 * 32 : t // 32 * 32 + 32] for column in columns]
        members = FULL if masks == "full" else ODDS if t % 2 else EVENS
        for column, value in zip(expected, work(t % 32, warp, members), strict=True):
            column.append(value)
    return Case(name or f"{form}-{masks}", form, "\n".join([*lines, *outputs]), columns, expected, 64)


def source_lane(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """Return the lane that a shuffle reads, by the ISA's pseudo code."""
    value, clamp, segment = b & 31, c & 31, c >> 8 & 31
    last, first = (lane & segment) | (clamp & ~segment & 31), lane & segment
    j, valid = {
        "up": (lane - value, lane - value >= last),
        "down": (lane + value, lane + value <= last),
        "bfly": (lane ^ value, lane ^ value <= last),
        "idx": (first | value & ~segment, (first | value & ~segment) <= last),
    }[mode]
    return (j, valid) if valid else (lane, False)


WIDEN = "cvt.u64.u32 %out0, %x;"
FLAG = "selp.b64 %out1, 1, 0, %p;"


def shuffles() -> Iterator[Case]:
    """``shfl`` with constant and varying lanes, whole warps and segments."""
    draw = random.Random(5)
    values = [draw.getrandbits(32) for _ in range(64)]
    declare = ".reg .b32 %x, %a, %b, %c; .reg .pred %p;"
    declare += "cvt.u32.u64 %a, %in0; cvt.u32.u64 %b, %in1; cvt.u32.u64 %c, %in2;"
    for mode in ("up", "down", "bfly", "idx"):
        form = f"shfl.sync.{mode}.b32"
        clamp = 0 if mode == "up" else 31
        for b, c in (
            (0, clamp),
            (1, clamp),
            (2, clamp),
            (4, clamp),
            (8, clamp),
            (16, clamp),
            (31, clamp),
            (3, clamp),
            (1, 0x1800 | (clamp & 7)),
            (5, 0x1000 | clamp),
        ):
            yield lanes_case(
                form,
                f"{form} %x|%p, %a, {b}, {c}, MASK",
                declare,
                [values, [0] * 64, [0] * 64],
                [WIDEN, FLAG],
                lambda lane, warp, _, m=mode, b=b, c=c: (
                    warp[0][source_lane(m, lane, b, c)[0]],
                    int(source_lane(m, lane, b, c)[1]),
                ),
                "full",
                f"{form}-{b}-{c:#x}",
            )
        moved = [draw.randrange(64) for _ in range(64)]
        bounds = [draw.choice([clamp, 0x1800 | clamp & 7, 0x1C00, 0x1F1F, 17]) for _ in range(64)]
        yield lanes_case(
            form,
            f"{form} %x|%p, %a, %b, %c, MASK",
            declare,
            [values, moved, bounds],
            [WIDEN, FLAG],
            lambda lane, warp, _, m=mode: (
                warp[0][source_lane(m, lane, warp[1][lane], warp[2][lane])[0]],
                int(source_lane(m, lane, warp[1][lane], warp[2][lane])[1]),
            ),
            "full",
            f"{form}-varying",
        )
        even = [v & ~1 for v in moved]
        yield lanes_case(
            form,
            f"{form} %x, %a, %b, {clamp}, MASK",
            declare,
            [values, even if mode != "idx" else [v & ~1 | t & 1 for t, v in enumerate(even)], [0] * 64],
            [WIDEN],
            lambda lane, warp, _, m=mode, c=clamp: (warp[0][source_lane(m, lane, warp[1][lane], c)[0]],),
            "halves",
        )


def member_lanes(members: int) -> list[int]:
    """Return the lanes of a mask."""
    return [lane for lane in range(32) if members >> lane & 1]


def votes() -> Iterator[Case]:
    """``vote``, ``match``, ``elect``, ``redux``."""
    patterns = [
        [1] * 32 + [0] * 32,
        [0] * 31 + [1] + [1] * 31 + [0],
        samples(["pred"], 64)[0],
        [t % 2 for t in range(64)],
    ]
    declare = ".reg .b32 %x, %a; .reg .pred %p, %q; cvt.u32.u64 %a, %in0; setp.ne.b32 %p, %a, 0;"
    flag = "selp.b64 %out0, 1, 0, %q;"
    folds = {"any": any, "all": all, "uni": lambda v: len(set(v)) == 1}
    for masks in ("full", "halves"):
        for k, pattern in enumerate(patterns):
            for mode, fold in folds.items():
                form = f"vote.sync.{mode}.pred"
                yield lanes_case(
                    form,
                    f"{form} %q, %p, MASK",
                    declare,
                    [pattern],
                    [flag],
                    lambda lane, warp, m, f=fold: (int(f([warp[0][j] for j in member_lanes(m)])),),
                    masks,
                    f"{form}-{masks}-{k}",
                )
            form = "vote.sync.ballot.b32"
            yield lanes_case(
                form,
                f"{form} %x, !%p, MASK",
                declare,
                [pattern],
                ["cvt.u64.u32 %out0, %x;"],
                lambda lane, warp, m: (sum(1 << j for j in member_lanes(m) if not warp[0][j]),),
                masks,
                f"{form}-{masks}-{k}",
            )
        yield from reductions(masks)
        for kind in ("b32", "b64"):
            few = [random.Random(9).choice([3, 1 << 31, 7 << 40 if kind == "b64" else 7]) for _ in range(64)]
            few = [few[0], *samples(["b32"], 63, seed=4)[0]] if masks == "full" else few
            few[40:50] = [5] * 10
            few[32:40] = [1 << 33 | 5 if kind == "b64" else 6] * 8
            convert = "mov.b64 %v, %in0;" if kind == "b64" else "cvt.u32.u64 %v, %in0;"
            own = f".reg .b32 %x; .reg .pred %p; .reg .{kind} %v; {convert}"
            form = f"match.any.sync.{kind}"
            yield lanes_case(
                form,
                f"{form} %x, %v, MASK",
                own,
                [few],
                ["cvt.u64.u32 %out0, %x;"],
                lambda lane, warp, m: (sum(1 << j for j in member_lanes(m) if warp[0][j] == warp[0][lane]),),
                masks,
            )
            form = f"match.all.sync.{kind}"
            alike = [4] * 32 + few[32:]
            yield lanes_case(
                form,
                f"{form} %x|%p, %v, MASK",
                own,
                [alike],
                [WIDEN, FLAG],
                lambda lane, warp, m: (m, 1) if len({warp[0][j] for j in member_lanes(m)}) == 1 else (0, 0),
                masks,
            )
        yield lanes_case(
            "elect.sync",
            "elect.sync %x|%p, MASK",
            ".reg .b32 %x; .reg .pred %p;",
            [[0] * 64],
            [WIDEN, FLAG],
            lambda lane, warp, m: (member_lanes(m)[0], int(lane == member_lanes(m)[0])),
            masks,
        )


def reductions(masks: str) -> Iterator[Case]:
    """``redux``."""
    folds: dict[str, Callable[[list[int]], int]] = {"add": sum, "min": min, "max": max}
    bitwise: dict[str, Callable[[int, int], int]] = {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }
    columns = samples(["b32"], 64, seed=3)
    for name, kinds in (("add", "us"), ("min", "us"), ("max", "us"), ("and", "b"), ("or", "b"), ("xor", "b")):
        for letter in kinds:
            kind = f"{letter}32"
            form = f"redux.sync.{name}.{kind}"

            def fold(lane, warp, m, name=name, kind=kind):
                picked = [typed(warp[0][j], kind) for j in member_lanes(m)]
                if name in folds:
                    return (mask(folds[name](picked), WIDTH[kind]),)
                result = picked[0]
                for value in picked[1:]:
                    result = bitwise[name](result, value)
                return (result,)

            yield lanes_case(
                form,
                f"{form} %x, %a, MASK",
                ".reg .b32 %x, %a; cvt.u32.u64 %a, %in0;",
                columns,
                [WIDEN],
                fold,
                masks,
            )


SHARED = ".shared .align 8 .b8 room[512];"
EXCHANGE = (
    ".reg .b32 %own, %other; mov.b32 %own, room; mad.lo.u32 %own, %thread, 8, %own;"
    "xor.b32 %other, %thread, {far};"
    "mov.b32 %x, room; mad.lo.u32 %other, %other, 8, %x; st.shared.b64 [%own], %in0;"
)


def barriers() -> Iterator[Case]:
    """A word is handed to another thread across each kind of barrier."""
    column = samples(["b64"], 64)[0]
    ready = ".reg .b32 %x; .reg .pred %p;"
    load = "ld.shared.b64 %out0, [%other];"
    for form in (
        "bar.sync",
        "bar.cta.sync",
        "barrier.sync",
        "barrier.cta.sync",
        "barrier.sync.aligned",
        "barrier.cta.sync.aligned",
    ):
        for operands in ("0", "3, 64"):
            yield Case(
                f"{form}-{operands}",
                form,
                f"{SHARED}{ready}{EXCHANGE.format(far=33)}{form} {operands};{load}",
                [column],
                [[column[t ^ 33] for t in range(64)]],
                64,
            )
    for form in (
        "bar.arrive",
        "bar.cta.arrive",
        "barrier.arrive",
        "barrier.cta.arrive",
        "barrier.arrive.aligned",
        "barrier.cta.arrive.aligned",
    ):
        # The first warp only tells that its words are there; the second waits for them.
        body = (
            f"{SHARED}{ready}{EXCHANGE.format(far=32)} mov.b64 %out0, 0;"
            "setp.ge.u32 %p, %thread, 32; @%p bra SECOND;"
            f"{form} 1, 64; bra DONE; SECOND: {form.replace('arrive', 'sync')} 1, 64; {load} DONE:"
        )
        yield Case(form, form, body, [column], [[0] * 32 + column[:32]], 64)
    yield Case(
        "bar.warp.sync",
        "bar.warp.sync",
        f"{SHARED}{ready}{EXCHANGE.format(far=5)} bar.warp.sync -1; {load}",
        [column],
        [[column[t ^ 5] for t in range(64)]],
        64,
    )


def control() -> Iterator[Case]:
    """Branches, exits, and instructions that show nothing."""
    column = samples(["b64"], 64)[0]
    for form in ("bra", "bra.uni"):
        body = ".reg .pred %p; setp.lt.u32 %p, %thread, 40; mov.b64 %out0, 5;"
        body += f"@%p {form} L; add.s64 %out0, %in0, 1; L:"
        yield Case(form, form, body, [column], [[5] * 40 + [mask(v + 1, 64) for v in column[40:]]], 64)
        body = f"mov.b64 %out0, 1; {form} L; mov.b64 %out0, 2; L: add.s64 %out0, %out0, %in0;"
        yield Case(f"{form}-without-a-guard", form, body, [column], [[mask(v + 1, 64) for v in column]], 64)
    for form in ("ret", "ret.uni", "exit", "exit.uni"):
        # Threads that end early leave the zeros of the output buffer.
        body = f".reg .pred %p; setp.ge.u32 %p, %thread, 17; mov.b64 %out0, %in0; @%p {form};"
        yield Case(form, form, body, [column], [column[:17] + [0] * 47], 64)
    body = ".reg .pred %p; setp.gt.u32 %p, %thread, 70; mov.b64 %out0, 1; @%p trap;"
    yield Case("trap-of-nobody", "trap", body, [column], [[1] * 64], 64)
    body = (
        ".reg .pred %p; .reg .b32 %x; mov.b64 %out0, 0; setp.lt.u32 %p, %thread, 7; @%p bra L; bra D;"
        "L: activemask.b32 %x; cvt.u64.u32 %out0, %x; D:"
    )
    yield Case("activemask.b32", "activemask.b32", body, [column], [[127] * 7 + [0] * 57], 64)
    quiet = ["griddepcontrol.wait", "griddepcontrol.launch_dependents"]
    quiet += [f"membar.{level}" for level in ("cta", "gl", "sys")]
    quiet += [
        f"fence{order}.{level}"
        for order in ("", ".sc", ".acq_rel", ".acquire", ".release")
        for level in ("cta", "cluster", "gpu", "sys")
    ]
    quiet += ["fence.proxy.alias", "fence.proxy.async", "fence.mbarrier_init.release.cluster"]
    quiet += [f"fence.proxy.async.{space}" for space in ("global", "shared::cta", "shared::cluster")]
    for proxy in ("", ".proxy.async::generic"):
        quiet.append(f"fence{proxy}.acquire.sync_restrict::shared::cluster.cluster")
        quiet.append(f"fence{proxy}.release.sync_restrict::shared::cta.cluster")
    for form in quiet:
        yield Case(form, form, f"{form}; mov.b64 %out0, %in0;", [column], [column], 64)


def cases() -> list[Case]:
    """Return every case of this file."""
    return [*shuffles(), *votes(), *barriers(), *control()]
