"""Who touched each cell of memory last, and whether a barrier lies between: the data race detector.

Two accesses of one cell by different threads, at least one a write (two atomics do not count), are a race unless
ordered. What orders them:

- a CTA barrier that both threads take part in (``bar.sync``, ``barrier.sync``), also through further barriers;
- ``bar.warp.sync`` of the whole warp, for threads of one warp.

Nothing else does. In particular ``shfl``, ``vote``, ``redux``, ``elect`` and reconvergence make lanes of a warp wait
for each other but, by the PTX ISA, order no memory access, so code that relies on them is reported.
A barrier's threads count only warp by warp: a ``bar.warp.sync`` of part of a warp's threads orders nothing here.

Cells are as wide as the narrowest access the program makes to the space. Each holds the stamp of its last write and of its
last reads: ``tick << bits | code``, where the tick of a thread is that of its last barrier, and the code names a
thread, or several of one warp, or several of several warps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.lanes import WARP, Geometry, Index, Lanes, lanes_of

U32 = npt.NDArray[np.uint32]
Bool = npt.NDArray[np.bool_]

_LOG_LIMIT = 64


class Clocks:
    """Which barrier each thread of a tile passed last.

    Attributes
    ----------
    stamp
        uint32 per lane: what the lane's next access is marked with.
    base
        uint32 per lane: accesses by the lane's CTA with a smaller stamp happened before its last full CTA barrier.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        per_launch = geometry.pitch * geometry.ctas_per_launch
        self.threads = per_launch
        self.warps = per_launch // WARP
        self.bits = (per_launch + self.warps + 2).bit_length()
        self.everyone = self.threads + self.warps
        self.atomic = self.everyone + 1
        self.tick = 1
        self.thread: U32 = geometry.thread.astype(np.uint32)
        self.stamp: U32 = self.thread | np.uint32(1 << self.bits)
        self.base: U32 = np.full(geometry.size, 1 << self.bits, np.uint32)
        self._known: npt.NDArray[np.int64] | None = None

    def barrier(self, lanes: Lanes, full: bool, words: Sequence[npt.NDArray[np.int64]] = ()) -> None:
        """Note a barrier of ``lanes``; ``full`` if it was all threads of their CTAs.

        A partial barrier is of one CTA; ``words`` is what threads left that arrived without waiting.
        """
        if full:
            self._advance(lanes)
            start = self.tick << self.bits
            self.base = lanes.put(self.base, np.full(lanes.n, start, np.uint32))
            return
        heard = self._heard(lanes)
        for word in words:
            heard = np.maximum(heard, word)
        assert self._known is not None
        self._known[lanes.index[0] // self.geometry.pitch, self._warps(lanes)] = heard
        self._advance(lanes)

    def leave_word(self, lanes: Lanes) -> dict[int, npt.NDArray[np.int64]]:
        """Return, for each CTA, what ``lanes`` knew when they arrived without waiting; later accesses are not covered."""
        ctas = lanes.index // self.geometry.pitch
        words = {int(cta): self._heard(lanes_of(self.geometry, lanes.index[ctas == cta])) for cta in np.unique(ctas)}
        self._advance(lanes)
        return words

    def warp_barrier(self, lanes: Lanes) -> None:
        """Note a ``bar.warp.sync`` of whole warps."""
        self._advance(lanes)

    def _advance(self, lanes: Lanes) -> None:
        """Give ``lanes`` a new tick."""
        self.tick += 1
        if self.tick >> (32 - self.bits):
            raise OverflowError("more barriers than the race detector can tell apart")
        self.stamp = lanes.put(self.stamp, lanes.take(self.thread) | np.uint32(self.tick << self.bits))

    def _warps(self, lanes: Lanes) -> Index:
        """Return the warps, in their CTA, that are there with all 32 lanes: no others count."""
        per_cta = self.geometry.pitch // WARP
        warps, counts = np.unique(lanes.index // WARP, return_counts=True)
        return warps[counts == WARP] % per_cta

    def _heard(self, lanes: Lanes) -> npt.NDArray[np.int64]:
        """Return, for each warp of the CTA, its last tick that happened before now for any of ``lanes``."""
        geometry = self.geometry
        per_cta = geometry.pitch // WARP
        if self._known is None:
            self._known = np.zeros((geometry.ctas, per_cta, per_cta), np.int64)
        cta, warps = int(lanes.index[0]) // geometry.pitch, self._warps(lanes)
        heard: npt.NDArray[np.int64] = self._known[cta, warps].max(axis=0, initial=0)
        first = cta * geometry.pitch + warps * WARP
        heard[warps] = np.maximum(heard[warps], self.stamp[first].astype(np.int64) >> self.bits)
        return heard

    def conflicts(self, index: Index, old: U32, atomic: bool) -> Bool:
        """Return which of the accesses ``old`` (one stamp a lane) are not ordered before the lanes at ``index``."""
        geometry = self.geometry
        code = (old & np.uint32((1 << self.bits) - 1)).astype(np.int64)
        tick = (old >> np.uint32(self.bits)).astype(np.int64)
        me = geometry.thread[index]
        own_tick = (self.stamp[index] >> np.uint32(self.bits)).astype(np.int64)
        warp = np.where(code < self.threads, code // WARP, code - self.threads)
        one_warp = code < self.everyone
        cta = warp // (geometry.pitch // WARP)
        same_cta = (cta == me // geometry.pitch) | ((geometry.ctas_per_launch == 1) & ~one_warp)
        ordered = (old == 0) | (code == me)
        ordered |= same_cta & (old < self.base[index])
        ordered |= one_warp & (warp == me // WARP) & (tick < own_tick)
        if self._known is not None:
            per_cta = geometry.pitch // WARP
            known = self._known[geometry.cta[index], me // WARP % per_cta, np.where(one_warp, warp % per_cta, 0)]
            ordered |= one_warp & same_cta & (tick <= known)
        if atomic:
            ordered |= code == self.atomic
        return ~ordered

    def name(self, stamp: int) -> str:
        """Say in words who left ``stamp``."""
        code = stamp & ((1 << self.bits) - 1)
        pitch, threads = self.geometry.pitch, self.geometry.threads
        if code < self.threads:
            return f"thread {code // pitch * threads + code % pitch}"
        if code < self.everyone:
            return f"several threads of warp {code - self.threads}"
        return "an atomic of another thread" if code == self.atomic else "several threads"


Report = Callable[[int, int, str], Exception]


class Tracker:
    """The last write and the last reads of every cell of one space of a tile.

    Reads are only logged; the log is worked off when a write comes before the next barrier of all.
    """

    def __init__(self, clocks: Clocks, cells: int) -> None:
        self.clocks = clocks
        self.writer: U32 = np.zeros(cells, np.uint32)
        self._reader: U32 | None = None
        self._log: list[tuple[Index, Lanes, U32, U32]] = []
        self._one_cta = clocks.geometry.ctas_per_launch == 1

    def barrier_of_all(self) -> None:
        """Forget the reads: every thread of the tile has passed a barrier."""
        if self._one_cta:
            self._log.clear()

    def read(self, lanes: Lanes, cells: Index, report: Report) -> None:
        """Note a read of one cell a lane.

        ``report(position, cell, problem)`` makes the exception; an empty problem means a cell never written.
        """
        clocks = self.clocks
        writer = self.writer.take(cells)
        if not np.minimum.reduce(writer):
            position = int(np.flatnonzero(writer == 0)[0])
            raise report(position, int(cells[position]), "")
        base = lanes.take(clocks.base)
        self._check(lanes, cells, writer, base, "read", "written", report, atomic=False)
        self._log.append((cells, lanes, lanes.take(clocks.stamp), base))
        if len(self._log) > _LOG_LIMIT:
            self._settle()

    def write(self, lanes: Lanes, cells: Index, report: Report, *, atomic: bool = False) -> None:
        """Note a write of one cell a lane; two lanes in one cell are a race unless atomic."""
        clocks = self.clocks
        base, stamp = lanes.take(clocks.base), lanes.take(clocks.stamp)
        if atomic:
            stamp = (stamp & ~np.uint32((1 << clocks.bits) - 1)) | np.uint32(clocks.atomic)
        self._check(lanes, cells, self.writer.take(cells), base, "write", "written", report, atomic=atomic)
        if self._log:
            self._settle()
        if self._reader is not None:
            self._check(lanes, cells, self._reader.take(cells), base, "write", "read", report, atomic=False)
        self.writer[cells] = stamp
        if not atomic:
            left = self.writer.take(cells)
            if np.count_nonzero(left != stamp):
                position = int(np.flatnonzero(left != stamp)[0])
                other = clocks.name(int(left[position]))
                raise report(position, int(cells[position]), f"written by {other} in the same instruction")

    def _check(self, lanes: Lanes, cells: Index, old: U32, base: U32, doing: str, done: str, report: Report, *,
               atomic: bool) -> None:
        late = old >= base if self._one_cta else old != 0
        if not np.count_nonzero(late):
            return
        positions = np.flatnonzero(late)
        conflicts = self.clocks.conflicts(lanes.index[positions], old[positions], atomic)
        if conflicts.any():
            position = int(positions[np.flatnonzero(conflicts)[0]])
            other = self.clocks.name(int(old[position]))
            raise report(position, int(cells[position]),
                         f"a {doing} of what {other} has {done}, with no barrier between")

    def _settle(self) -> None:
        """Work off the log of reads."""
        clocks = self.clocks
        if self._reader is None:
            self._reader = np.zeros(len(self.writer), np.uint32)
        reader = self._reader
        for cells, lanes, stamp, base in self._log:
            old = reader.take(cells)
            reader[cells] = stamp
            left = reader.take(cells)
            # A cell that another lane of this instruction read too, or another thread since the last barrier.
            code = np.uint32((1 << clocks.bits) - 1)
            shared = (left != stamp) | ((old >= base) & ((old ^ stamp) & code != 0))
            if np.count_nonzero(shared):
                self._several(reader, cells, lanes, stamp, base, np.flatnonzero(shared), old)
        self._log.clear()

    def _several(self, reader: U32, cells: Index, lanes: Lanes, stamp: U32, base: U32, positions: Index,
                 old: U32) -> None:
        """Mark the cells at ``positions`` (and whoever else read them now) as read by several threads."""
        clocks = self.clocks
        mask = np.uint32((1 << clocks.bits) - 1)
        touched = np.isin(cells, cells[positions])
        where = cells[touched]
        warp = lanes.geometry.thread[lanes.index[touched]] // WARP
        previous = (old[touched] & mask).astype(np.int64)
        previous_warp = np.where(previous < clocks.threads, previous // WARP, previous - clocks.threads)
        compact, inverse = np.unique(where, return_inverse=True)
        low, high = np.full(len(compact), clocks.warps), np.full(len(compact), -1)
        np.minimum.at(low, inverse, warp)
        np.maximum.at(high, inverse, warp)
        recent = old[touched] >= base[touched]
        np.minimum.at(low, inverse[recent], previous_warp[recent])
        np.maximum.at(high, inverse[recent], previous_warp[recent])
        code = np.where(low == high, clocks.threads + low, clocks.everyone)
        newest: npt.NDArray[Any] = np.zeros(len(compact), np.uint32)
        np.maximum.at(newest, inverse, stamp[touched] & ~mask)
        reader[compact] = newest | code.astype(np.uint32)
