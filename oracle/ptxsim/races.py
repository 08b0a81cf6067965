"""Who touched each cell of memory last, and whether a barrier lies between: the data race detector.

Two accesses of one cell by different threads, at least one a write, are a race unless both are atomics or
something orders them. What orders them:

- a CTA barrier that both threads take part in (``bar.sync``, ``barrier.sync``), also through further
barriers;
- ``bar.warp.sync`` of the whole warp, for threads of one warp.

Nothing else does. In particular ``shfl``, ``vote``, ``redux``, ``elect`` and reconvergence make lanes of a
warp wait for each other but, by the PTX ISA, order no memory access, so code that relies on them is reported.
A barrier's threads count only warp by warp: a ``bar.warp.sync`` of part of a warp's threads orders nothing
here.

So it does not matter in which order the threads happened to run: warps in step are judged as any others are.

Cells are as wide as the narrowest access the program makes to the space. Each holds the stamp of its last
write and of its last reads: ``tick << bits | code``, where the tick of a thread is that of its last barrier,
and the code names a thread, or several of one warp, or several of several warps; of writes also whether it
was an atomic. An atomic leaves the stamp of a plain write by the same thread since its last barrier, since
that one still asks other threads for more.
"""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.clocks import Clocks
from oracle.ptxsim.geometry import WARP, Index
from oracle.ptxsim.lanes import Lanes
from oracle.ptxsim.vectors import gather, runs, scatter

U32 = npt.NDArray[np.uint32]
Bool = npt.NDArray[np.bool_]

_LOG_LIMIT = 64
NOWHERE: Index = np.zeros(0, np.intp)


class Report(Protocol):
    """Makes the exception for a cell: ``(position in the lanes, cell, problem, kind)``.

    An empty problem means a cell that nobody has written.
    """

    def __call__(self, position: int, cell: int, problem: str, kind: str = "race") -> Exception:
        """Return the exception."""


Span = tuple[int, int]
"""The bytes, from the first up to the last, within which an access stays in every CTA's part of a space."""


class Read(NamedTuple):
    """A logged read: the arguments, and the clocks of that time.

    ``few`` are all of ``first``, once each.
    """

    lanes: Lanes
    first: Index
    few: Index
    length: int
    aligned: bool
    span: Span | None
    alike: int
    stamp: U32
    base: U32

    def per_lane(self) -> tuple[Index, U32, U32]:
        """Return the cells, and for each cell the stamp and the base of its lane."""
        first = self.first.repeat(self.alike) if self.alike > 1 else self.first
        stamp, base = self.lanes.take(self.stamp), self.lanes.take(self.base)
        if self.length > 1:
            return runs(first, self.length), stamp.repeat(self.length), base.repeat(self.length)
        return first, stamp, base


class Tracker:
    """The last write and the last reads of every cell of one space of a tile.

    ``one_cta`` says that all who can touch a cell are of one CTA, so that its barriers order them. An access
    is a run of ``count`` cells from ``first`` of each lane; ``aligned`` if ``first`` is a multiple of it.
    Reads are only logged; the log is worked off when a write comes before the next barrier of all.
    """

    def __init__(self, clocks: Clocks, cells: int, one_cta: bool) -> None:
        self.clocks = clocks
        # Runs of up to 16 cells are looked at as one wider element.
        self.writer: U32 = np.zeros(-(-cells // 16) * 16, np.uint32)
        self._reader: U32 | None = None
        self._log: list[Read] = []
        self._marks: Bool | None = None
        self._marked = 0
        self._one_cta = one_cta
        self._last_write = self._last_read = 0

    def barrier_of_all(self) -> None:
        """Forget the reads: every thread of the tile has passed a barrier."""
        if self._one_cta:
            self._forget()

    def _writes_ordered(self) -> bool:
        """Return whether every write so far lies before the last CTA barrier of every lane."""
        return self._one_cta and self._last_write < self.clocks.oldest

    def _reads_ordered(self) -> bool:
        """Return whether every read so far lies before the last CTA barrier of every lane."""
        return self._one_cta and self._last_read < self.clocks.oldest

    def written(self, first: Index, count: int, aligned: bool, report: Report, alike: int = 1) -> U32:
        """Return the stamps of the last writes; a cell never written is an error.

        ``report(position, cell, problem)`` makes the exception; an empty problem means never written.
        ``alike`` is how many lanes in a row are at each of ``first``.
        """
        writer: U32 = gather(self.writer, first, count, aligned)
        if not np.minimum.reduce(writer):
            position, step = divmod(int(np.flatnonzero(writer == 0)[0]), count)
            raise report(position * alike, int(first[position]) + step, "")
        return writer

    def read(
        self,
        lanes: Lanes,
        first: Index,
        count: int,
        aligned: bool,
        report: Report,
        span: Span | None = None,
        few: Index | None = None,
        alike: int = 1,
    ) -> None:
        """Note a read; ``few`` are all of ``first``, once each, if they are known."""
        clocks = self.clocks
        if few is None:
            few = first
        stamps: U32 = gather(self.writer, few, count, aligned)
        if not np.minimum.reduce(stamps):
            self.written(first, count, aligned, report, alike)
        if not self._writes_ordered() and not self._ordered(lanes, few, count, stamps):
            all_first = first.repeat(alike) if alike > 1 else first
            writer: U32 = gather(self.writer, all_first, count, aligned)
            places = self._unordered(lanes, all_first, count, writer)
            if len(places):
                raise self._race(
                    all_first, count, writer, int(places[0]), "read of what was written by {}", report
                )
        if self._log and self._reads_ordered():
            self._forget()
        elif len(self._log) > _LOG_LIMIT:
            self._settle()
        self._log.append(Read(lanes, first, few, count, aligned, span, alike, clocks.stamp, clocks.base))
        self._last_read = clocks.tick

    def write(
        self,
        lanes: Lanes,
        first: Index,
        count: int,
        aligned: bool,
        report: Report,
        span: Span | None = None,
        *,
        atomic: bool = False,
    ) -> None:
        """Note a write; two lanes in one cell are a race unless atomic."""
        clocks = self.clocks
        stamp: U32 = lanes.take(clocks.stamp)
        if count > 1:
            stamp = stamp.repeat(count)
        mark = stamp | clocks.atomic if atomic else stamp
        if not self._writes_ordered():
            old = gather(self.writer, first, count, aligned)
            places = self._unordered(lanes, first, count, old)
            if atomic:
                both = places[clocks.atomics(old[places])]
                mark[both] = (stamp[both] & ~clocks.code_mask) | clocks.several_atomics
                places = places[~clocks.atomics(old[places])]
                mark = np.where(old == stamp, stamp, mark)
            if len(places):
                raise self._race(first, count, old, int(places[0]), "write of what was written by {}", report)
        if not self._reads_ordered():
            if self._log and self._was_read(first, count, aligned, span):
                self._settle()
            if self._reader is not None:
                old = gather(self._reader, first, count, aligned)
                places = self._unordered(lanes, first, count, old)
                if len(places):
                    raise self._race(
                        first, count, old, int(places[0]), "write of what was read by {}", report
                    )
        self._last_write = clocks.tick
        scatter(self.writer, first, count, aligned, mark)
        # Lanes in ascending places cannot meet in one; otherwise see whose stamp is left.
        if aligned and np.count_nonzero(first[1:] > first[:-1]) == len(first) - 1:
            return
        left = gather(self.writer, first, count, aligned)
        met = np.flatnonzero(left != mark)
        if len(met) and atomic:
            cells = first[met // count] + met % count
            self.writer[cells] = (left[met] & ~clocks.code_mask) | clocks.several_atomics
        elif len(met):
            at = int(met[0])
            problem = f"a write of what was written by {clocks.name(int(left[at]))} in the same instruction"
            raise report(at // count, int(first[at // count]) + at % count, problem)

    def _recent(self, old: U32) -> Bool:
        """Return which stamps are not older than the last CTA barrier of some lane."""
        return old >= np.uint32(self.clocks.oldest << self.clocks.bits if self._one_cta else 1)

    def _ordered(self, lanes: Lanes, first: Index, count: int, old: U32) -> bool:
        """Return whether accesses ``old`` of cells are soon seen to be ordered before any of the lanes."""
        return not np.count_nonzero(self._recent(old))

    def _unordered(self, lanes: Lanes, first: Index, count: int, old: U32) -> Index:
        """Return the places in ``old`` whose accesses are not ordered before the lanes' access now."""
        if not np.count_nonzero(self._recent(old)):
            return NOWHERE
        if self._one_cta:
            base = lanes.take(self.clocks.base)
            return self._late(lanes, count, old, old >= (base.repeat(count) if count > 1 else base))
        return self._late(lanes, count, old, old != 0)

    def _late(self, lanes: Lanes, count: int, old: U32, late: Bool) -> Index:
        """Return those of the ``late`` places in ``old`` that nothing orders."""
        if not np.count_nonzero(late):
            return NOWHERE
        clocks = self.clocks
        stamp = lanes.take(clocks.stamp)
        mates = clocks.mates(lanes, stamp)
        if count > 1:
            stamp, mates = stamp.repeat(count), mates.repeat(count)
        # The usual reasons, for all lanes at once: the same thread, or the same warp before a bar.warp.sync.
        difference = old ^ stamp
        late &= (difference & clocks.code_mask) != 0
        late &= ((difference & clocks.warp_mask) != 0) | (old >= mates)
        places = np.flatnonzero(late)
        if not len(places):
            return NOWHERE
        return np.asarray(places[clocks.unordered(lanes.index[places // count], old[places])])

    def _race(
        self, first: Index, count: int, old: U32, place: int, problem: str, report: Report
    ) -> Exception:
        """Return the exception for one place in ``old``."""
        position, step = divmod(place, count)
        detail = f"a {problem.format(self.clocks.name(int(old[place])))}, with no barrier between"
        return report(position, int(first[position]) + step, detail)

    def _was_read(self, first: Index, count: int, aligned: bool, span: Span | None) -> bool:
        """Return whether a logged read may have touched one of the cells."""
        if all(apart(read.span, span) for read in self._log):
            return False
        if self._marks is None:
            self._marks = np.zeros(len(self.writer), np.bool_)
        for read in self._log[self._marked :]:
            touched = np.ones(len(read.few) * read.length, np.bool_)
            scatter(self._marks, read.few, read.length, read.aligned, touched)
        self._marked = len(self._log)
        return bool(np.count_nonzero(gather(self._marks, first, count, aligned)))

    def _forget(self) -> None:
        self._log.clear()
        if self._marked and self._marks is not None:
            self._marks.fill(False)
        self._marked = 0

    def _settle(self) -> None:
        """Work off the log of reads."""
        if self._reader is None:
            self._reader = np.zeros(len(self.writer), np.uint32)
        self._note(self._reader, self._log, self._one_cta)
        self._forget()

    def _note(self, reader: U32, log: list[Read], one_cta: bool) -> None:
        """Note reads as the last ones; with ``one_cta`` those before a CTA's barrier are of no interest."""
        clocks = self.clocks
        for read in log:
            cells, stamp, base = read.per_lane()
            old = reader.take(cells)
            reader[cells] = stamp
            left = reader.take(cells)
            # A cell that another lane of this instruction read too, or another thread since the last barrier.
            recent = old >= base if one_cta else old != 0
            shared = (left != stamp) | (recent & ((old ^ stamp) & clocks.code_mask != 0))
            if np.count_nonzero(shared):
                where = np.flatnonzero(shared)
                before = np.where(recent, old, stamp)
                self._several(reader, cells[where], stamp[where], left[where], before[where])

    def _several_code(self, cells: Index) -> U32 | np.uint32:
        """Return the code for several threads that read cells."""
        return self.clocks.several

    def _several(self, reader: U32, cells: Index, stamp: U32, left: U32, old: U32) -> None:
        """Mark cells read by several threads: ``stamp`` and ``left`` now, ``old`` before."""
        clocks = self.clocks
        differ = ((left ^ stamp) | (old ^ stamp)) & clocks.warp_mask != 0
        tick = np.maximum(stamp, left) & ~clocks.code_mask
        mark = tick | clocks.of_warp | (stamp & clocks.one & ~np.uint32(WARP - 1))
        reader[cells] = mark
        differ |= reader.take(cells) != mark
        if np.count_nonzero(differ):
            reader[cells[differ]] = tick[differ] | self._several_code(cells[differ])


def apart(one: Span | None, other: Span | None) -> bool:
    """Return whether two accesses are known to have no byte in common."""
    return one is not None and other is not None and (one[1] < other[0] or other[1] < one[0])
