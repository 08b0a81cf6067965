"""The frames of forms that are more than operands and results: warps, barriers, control flow, addresses."""

from collections.abc import Callable
from typing import Final

from oracle.card.snippets import SLOT, THREADS, Frame

_WARP: Final = 32
_ALL: Final = "0xffffffff"
_FEWER: Final = "0xffffffe0"
SPECIALS: Final = (
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    "%laneid",
    *(f"%lanemask_{which}" for which in ("eq", "le", "lt", "ge", "gt")),
)


def _collective(
    frame: Frame,
    form: str,
    operands: list[tuple[str, str]],
    target: str,
    pair: bool,
    masks: tuple[str, ...] = (_ALL, _FEWER),
) -> None:
    """All lanes of a warp, and then all but its first five."""
    sources = [frame.operand(kind, role) for kind, role in operands]
    lane = frame.register("b32")
    absent = frame.register("pred")
    frame.add(f"mov.u32 {lane}, %laneid;", f"setp.lt.u32 {absent}, {lane}, 5;")
    for mask in masks:
        d, p = frame.register(target), frame.register("pred")
        label = f"skip{frame.results}"
        if mask != _ALL:
            frame.add(f"@{absent} bra {label};")
        place = f"{d}|{p}" if pair else d
        frame.add(f"{form} {', '.join([place, *sources, mask])};")
        frame.result(d, target)
        frame.next_result()
        if pair:
            frame.result(p, "pred")
            frame.next_result()
        if mask != _ALL:
            frame.add(f"{label}:")


def _shfl(frame: Frame, name: str) -> None:
    # A lane must not read one outside of the mask, so all are in it.
    operands = [("b32", "b32"), ("b32", "lane"), ("b32", "clamp")]
    _collective(frame, name, operands, "b32", pair=True, masks=(_ALL,))


def _vote(frame: Frame, name: str) -> None:
    for role in ("pred", "warp-pred"):
        _collective(frame, name, [("pred", role)], "b32" if "ballot" in name else "pred", pair=False)


def _redux(frame: Frame, name: str) -> None:
    for role in (name.split(".")[-1], "warp-b32"):
        _collective(frame, name, [("b32", role)], "b32", pair=False)


def _match(frame: Frame, name: str) -> None:
    width = name[-3:]
    for role in (f"few-{width}", f"warp-{width}"):
        _collective(frame, name, [(width, role)], "b32", pair="all" in name)


def _elect(frame: Frame, name: str) -> None:
    _collective(frame, name, [], "b32", pair=True)


def _activemask(frame: Frame, name: str) -> None:
    mask = frame.register("b32")
    frame.add(f"{name} {mask};")
    frame.result(mask, "b32")
    frame.next_result()


def _barrier(frame: Frame, name: str) -> None:
    """Pass words through shared memory to another warp, or for a warp's barrier to another of its lanes."""
    word = frame.operand("b32", "b32")
    frame.add(f"st.shared.b32 [%mine], {word};")
    distance = 7 if "warp" in name else 100
    if "warp" in name:
        frame.add(f"{name} {_ALL};")
    elif "arrive" in name:
        # The first half only writes and arrives; the second half waits for both and reads those words.
        late = frame.register("pred")
        wait = name.replace("arrive", "sync")
        frame.add(
            f"setp.ge.u32 {late}, %thread, {THREADS // 2};",
            f"@{late} bra waits;",
            f"{name} 1, {THREADS};",
            "bra done;",
            "waits:",
            f"{wait} 1, {THREADS};",
        )
        distance = THREADS // 2
    else:
        frame.add(f"{name} 0;", f"{name} 2, {THREADS};")
    if "warp" in name:
        frame.add(f"xor.b32 %peer, %thread, {distance};")
    else:
        frame.add(f"add.u32 %peer, %thread, {distance};", f"and.b32 %peer, %peer, {THREADS - 1};")
    read = frame.register("b32")
    frame.add(f"mad.lo.u32 %peer, %peer, {SLOT}, %base;", f"ld.shared.b32 {read}, [%peer];")
    frame.result(read, "b32")
    frame.next_result()
    if "arrive" in name:
        frame.add("done:")


def _fence(frame: Frame, name: str) -> None:
    word = frame.operand("b32", "b32")
    frame.add(f"st.shared.b32 [%mine], {word};", f"{name};", f"ld.shared.b32 {word}, [%mine];")
    frame.result(word, "b32")
    frame.next_result()


def _branch(frame: Frame, name: str) -> None:
    """Loop, each lane as often as its operand says, or all alike where the branch is uniform."""
    trips, sum_, more = frame.operand("b32", "trips"), frame.register("b32"), frame.register("pred")
    if name.endswith("uni"):
        frame.add(f"mov.u32 {trips}, 9;")
    frame.add(
        f"mov.u32 {sum_}, 0;",
        "again:",
        f"mad.lo.u32 {sum_}, {sum_}, 3, {trips};",
        f"sub.u32 {trips}, {trips}, 1;",
        f"setp.gt.s32 {more}, {trips}, 0;",
        f"@{more} {name} again;",
    )
    frame.result(sum_, "b32")
    frame.next_result()


def _exit(frame: Frame, name: str) -> None:
    """Half of the threads end early, or, where that is uniform, all of them do."""
    word, early = frame.operand("b32", "b32"), frame.register("pred")
    frame.result(word, "b32")
    bound = THREADS if name.endswith("uni") else THREADS // 2 + 5
    frame.add(f"setp.lt.u32 {early}, %thread, {bound};", f"@{early} {name};", f"not.b32 {word}, {word};")
    frame.result(word, "b32")
    frame.next_result()


def _matrix(frame: Frame, name: str) -> None:
    """Each warp has 1 KB of shared memory, 64 rows of 16 bytes; lanes name rows of it."""
    count = int(name.split(".m8n8.x")[1][0])
    for i, word in enumerate(frame.quads("b64")):
        frame.add(f"st.shared.b64 [%mine+{8 * i}], {word};")
    row = frame.operand("b32", "row" if name.startswith("ld") else "own-row")
    frame.add(
        "bar.sync 0;",
        f"and.b32 %peer, %thread, {THREADS - _WARP};",
        f"mad.lo.u32 %peer, %peer, {SLOT}, %base;",
    )
    frame.add(f"mad.lo.u32 %peer, {row}, 16, %peer;")
    if name.startswith("ld"):
        registers = [frame.register("b32") for _ in range(count)]
        vector = "{" + ", ".join(registers) + "}"
        frame.add(f"{name} {vector}, [%peer];")
        for register in registers:
            frame.result(register, "b32")
            frame.next_result()
        return
    registers = [frame.operand("b32", "b32") for _ in range(count)]
    vector = "{" + ", ".join(registers) + "}"
    frame.add(f"{name} [%peer], {vector};", "bar.sync 0;")
    for i in range(4):
        word = frame.register("b64")
        frame.add(f"ld.shared.b64 {word}, [%mine+{8 * i}];")
        frame.result(word, "b64", 8 * i)
    frame.next_result()


def _address(frame: Frame, name: str) -> None:
    """Write a word through an address of one kind and read it through one of the other."""
    space = name.split(".")[-2]
    word, back, address = frame.operand("b32", "b32"), frame.register("b32"), frame.register("b64")
    turned = frame.register("b64")
    if space == "global":
        frame.add(f"st.global.b32 [%out], {word};", f"{name} {turned}, %out;")
        frame.add(f"ld{'.global' if '.to.' in name else ''}.b32 {back}, [{turned}];")
    else:
        room = f"{space.partition('::')[0]}_room"
        frame.add(f"mov.u64 {address}, {room};")
        if space.startswith("shared"):
            frame.add(f"mul.wide.u32 {turned}, %thread, {SLOT};", f"add.s64 {address}, {address}, {turned};")
        frame.add(f"cvta.{space}.u64 {turned}, {address};", f"st.b32 [{turned}], {word};")
        if ".to." in name:
            frame.add(f"{name} {turned}, {turned};", f"ld.{space}.b32 {back}, [{turned}];")
        else:
            frame.add(f"ld.{space}.b32 {back}, [{address}];")
    frame.next_result()
    frame.result(back, "b32")
    frame.next_result()


def specials(frame: Frame) -> None:
    """Every special register that does not depend on where a CTA happens to run."""
    for special in SPECIALS:
        word = frame.register("b32")
        frame.add(f"mov.u32 {word}, {special};")
        frame.result(word, "b32")
        frame.next_result()


FRAMES: Final[dict[str, Callable[[Frame, str], None]]] = {
    "shfl": _shfl,
    "vote": _vote,
    "redux": _redux,
    "match": _match,
    "elect": _elect,
    "activemask": _activemask,
    "bar": _barrier,
    "barrier": _barrier,
    "membar": _fence,
    "fence": _fence,
    "griddepcontrol": _fence,
    "bra": _branch,
    "ret": _exit,
    "exit": _exit,
    "ldmatrix": _matrix,
    "stmatrix": _matrix,
    "cvta": _address,
}
"""Frames by the first word of the opcode."""
