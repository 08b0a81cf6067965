"""The frames of forms of clusters and mbarriers. A launch of one CTA is a cluster of one."""

from collections.abc import Callable
from typing import Final

from oracle.card.snippets import SLOT, THREADS, Frame

_BYTES: Final = ".mbarrier::complete_tx::bytes"
_FAR: Final = 100
"""How far away the thread is whose word a thread reads."""


def _find_peer(frame: Frame) -> None:
    """%peer: the place of the thread whose word a thread reads."""
    frame.add(
        f"add.u32 %peer, %thread, {_FAR};",
        f"and.b32 %peer, %peer, {THREADS - 1};",
        f"mad.lo.u32 %peer, %peer, {SLOT}, %base;",
    )


class _Bar:
    """An mbarrier: the registers with its two addresses, and what to do with it."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.near, self.generic = frame.register("b32"), frame.register("b64")
        self.first = frame.register("pred")
        frame.add(
            ".shared .align 8 .b64 phase;",
            f"mov.u32 {self.near}, phase;",
            f"mov.u64 {self.generic}, phase;",
            f"cvta.shared.u64 {self.generic}, {self.generic};",
            f"setp.eq.u32 {self.first}, %thread, 0;",
        )
        _find_peer(frame)

    def at(self, name: str) -> str:
        """Return the operand of a form: generic unless it names a space."""
        return f"[{self.near}]" if ".shared" in name else f"[{self.generic}]"

    def init(self, count: int, form: str = "mbarrier.init.shared.b64") -> None:
        """Let thread 0 make it."""
        self.frame.add(f"@{self.first} {form} {self.at(form)}, {count};", "bar.sync 0;")

    def expect(self, size: int) -> None:
        """Let thread 0 arrive and expect bytes."""
        self.frame.add(f"@{self.first} mbarrier.arrive.expect_tx.shared.b64 _, [{self.near}], {size};")

    def wait(self, form: str = "mbarrier.try_wait.parity.shared.b64", named: str = "0") -> None:
        """Wait for a phase; a barrier orders what a relaxed form does not."""
        done, label = self.frame.register("pred"), f"again{len(self.frame.lines)}"
        self.frame.add(f"{label}:", f"{form} {done}, {self.at(form)}, {named};", f"@!{done} bra {label};")
        self.frame.add("bar.sync 0;")

    def finish(self, space: str = "shared") -> None:
        """Read the other thread's word."""
        word = self.frame.register("b64")
        self.frame.add(f"ld.{space}.b64 {word}, [%peer];")
        self.frame.result(word, "b64")
        self.frame.next_result()


def _arrive(frame: Frame, name: str) -> None:
    """Each thread arrives at its word's mbarrier, with the bytes that it brings where it expects some."""
    word, state, bar = frame.operand("b64", "b64"), frame.register("b64"), _Bar(frame)
    bar.init(THREADS)
    if "expect_tx" in name:
        frame.add(f"st.async.shared::cluster{_BYTES}.b64 [%mine], {word}, [{bar.near}];")
    else:
        frame.add(f"st.shared.b64 [%mine], {word};")
    size = ", 8" if "expect_tx" in name else ""
    frame.add(f"{name} {'_' if '::cluster.b64' in name else state}, {bar.at(name)}{size};")
    bar.wait()
    bar.finish()


def _test(frame: Frame, name: str) -> None:
    word, state, bar = frame.operand("b64", "b64"), frame.register("b64"), _Bar(frame)
    bar.init(THREADS)
    for phase in range(3):
        frame.add(f"add.s64 {word}, {word}, {phase};", f"st.shared.b64 [%mine], {word};")
        frame.add(f"mbarrier.arrive.shared.b64 {state}, [{bar.near}];")
        bar.wait(name, str(phase % 2) if ".parity" in name else state)
        bar.finish()
        frame.add("bar.sync 0;")


def _transactions(frame: Frame, name: str) -> None:
    word, bar = frame.operand("b64", "b64"), _Bar(frame)
    bar.init(1)
    if "expect_tx" in name:
        frame.add(f"@{bar.first} {name} {bar.at(name)}, {THREADS * 8 - 8};", "bar.sync 0;")
        frame.add(f"st.async.shared::cluster{_BYTES}.b64 [%mine], {word}, [{bar.near}];", "bar.sync 0;")
        bar.expect(8)
    else:
        bar.expect(THREADS * 4)
        frame.add(f"st.shared.b64 [%mine], {word};", "bar.sync 0;", f"{name} {bar.at(name)}, 4;")
    bar.wait()
    bar.finish()


def _init(frame: Frame, name: str) -> None:
    word, bar = frame.operand("b64", "b64"), _Bar(frame)
    bar.init(THREADS, name)
    frame.add(f"st.shared.b64 [%mine], {word};", f"mbarrier.arrive.shared.b64 _, [{bar.near}];")
    bar.wait()
    bar.finish()


def _invalidate(frame: Frame, name: str) -> None:
    """Make the mbarrier again, of another count, where it was."""
    word, bar = frame.operand("b64", "b64"), _Bar(frame)
    bar.init(1)
    frame.add(f"@{bar.first} {name} {bar.at(name)};")
    bar.init(THREADS)
    frame.add(f"st.shared.b64 [%mine], {word};", f"mbarrier.arrive.shared.b64 _, [{bar.near}];")
    bar.wait()
    bar.finish()


def _kind(name: str) -> tuple[str, int, int]:
    """Return the register of an asynchronous store's element, its bytes, and how many there are."""
    kind = name.rpartition(".")[2]
    count = next((int(part[1]) for part in name.split(".") if part in ("v2", "v4")), 1)
    return f"b{kind[1:]}", int(kind[1:]) // 8, count


def _target(frame: Frame, name: str, register: str) -> str:
    if ".shared" in name:
        return f"[{register}]"
    wide = frame.register("b64")
    frame.add(f"cvt.u64.u32 {wide}, {register};", f"cvta.shared.u64 {wide}, {wide};")
    return f"[{wide}]"


def _store(frame: Frame, name: str) -> None:
    """Send elements to the other thread's place, where zeros were."""
    register, size, count = _kind(name)
    sources = [frame.operand(register, register) for _ in range(count)]
    bar, words = _Bar(frame), [frame.register("b64") for _ in range(2)]
    frame.add(f"mov.b64 {words[0]}, 0;", f"st.shared.v2.b64 [%mine], {{{words[0]}, {words[0]}}};")
    bar.init(1)
    bar.expect(size * count * THREADS)
    value = sources[0] if count == 1 else "{" + ", ".join(sources) + "}"
    frame.add(f"{name} {_target(frame, name, '%peer')}, {value}, {bar.at(name)};")
    bar.wait()
    frame.add(f"ld.shared.v2.b64 {{{words[0]}, {words[1]}}}, [%mine];")
    for k, word in enumerate(words):
        frame.result(word, "b64", 8 * k)
    frame.next_result()


def _reduce(frame: Frame, name: str) -> None:
    """Four threads change one word; ``inc`` and ``dec`` with one bound, so that no order shows."""
    register, size, _ = _kind(name)
    source, bar, place = frame.operand(register, register), _Bar(frame), frame.register("b32")
    if ".inc" in name or ".dec" in name:
        frame.add(f"mov.u32 {source}, 2;")
    frame.add(
        f"and.b32 {place}, %thread, {THREADS // 4 - 1};",
        f"mad.lo.u32 {place}, {place}, {SLOT}, %base;",
        f"st.shared.{register} [%mine], {source};",
    )
    bar.init(1)
    bar.expect(size * THREADS)
    frame.add(f"{name} {_target(frame, name, place)}, {source}, {bar.at(name)};")
    bar.wait()
    left = frame.register(register)
    frame.add(f"ld.shared.{register} {left}, [%mine];")
    frame.result(left, register)
    frame.next_result()


def _map(frame: Frame, name: str) -> None:
    """Read the other thread's word through its address in CTA 0, and that address's rank."""
    word, wide = frame.operand("b64", "b64"), frame.register("b64")
    _find_peer(frame)
    rank = frame.register("b32")
    frame.add(f"st.shared.b64 [%mine], {word};", "bar.sync 0;")
    how = name if name.startswith("mapa") else name.replace("getctarank", "mapa")
    if how.endswith("u32"):
        frame.add(f"{how} %peer, %peer, 0;")
        at = "%peer"
    else:
        frame.add(
            f"cvt.u64.u32 {wide}, %peer;", *([] if "::" in how else [f"cvta.shared.u64 {wide}, {wide};"])
        )
        frame.add(f"{how} {wide}, {wide}, 0;")
        at = wide
    if name.startswith("getctarank"):
        frame.add(f"{name} {rank}, {at};")
        frame.result(rank, "b32", 8)
    frame.add(f"ld{'.shared::cluster' if '::' in how else ''}.b64 {word}, [{at}];")
    frame.result(word, "b64")
    frame.next_result()


def _barrier(frame: Frame, name: str) -> None:
    """Pass words to another warp."""
    word, bar = frame.operand("b64", "b64"), _Bar(frame)
    aligned = ".aligned" if name.endswith(".aligned") else ""
    arrive = name if ".arrive" in name else f"barrier.cluster.arrive{aligned}"
    wait = name if ".wait" in name else f"barrier.cluster.wait{aligned}"
    frame.add(f"st.shared.b64 [%mine], {word};")
    if ".relaxed" in name:
        frame.add("fence.acq_rel.cluster;")
    frame.add(f"{arrive};", f"{wait};")
    bar.finish("shared::cluster")


_FRAMES: Final[dict[str, Callable[[Frame, str], None]]] = {
    "mbarrier.arrive": _arrive,
    "mbarrier.test_wait": _test,
    "mbarrier.try_wait": _test,
    "mbarrier.expect_tx": _transactions,
    "mbarrier.complete_tx": _transactions,
    "mbarrier.init": _init,
    "mbarrier.inval": _invalidate,
    "st.async": _store,
    "red.async": _reduce,
    "mapa": _map,
    "getctarank": _map,
    "barrier.cluster": _barrier,
}


def frame_of(name: str) -> Callable[[Frame, str], None] | None:
    """Return the frame of a form that concerns clusters or mbarriers, if it does."""
    return next((frame for head, frame in _FRAMES.items() if name.startswith(f"{head}.")), None)
