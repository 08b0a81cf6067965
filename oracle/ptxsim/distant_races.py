"""Races in shared memory that other CTAs can reach, and in what asynchronous stores bring.

A CTA's own accesses are watched as in any other program. Accesses through ``.shared::cluster`` leave stamps
that say so (`cluster_clocks`), which no barrier of a CTA makes old; they look at all reads since the last
barrier of the cluster, not only since that of the CTA. An asynchronous store counts as made when it is
issued: nobody may touch its cells until they know that it is there.
"""

from typing import Final

import numpy as np

from oracle.ptxsim.clocks import U32, Bool
from oracle.ptxsim.cluster_clocks import CLOSER, ClusterClocks
from oracle.ptxsim.geometry import Index
from oracle.ptxsim.lanes import Lanes
from oracle.ptxsim.races import NOWHERE, Read, Report, Span, Tracker, apart
from oracle.ptxsim.vectors import gather, runs

_PAST_LIMIT: Final = 256
_SPANS: Final = 8


class DistantTracker(Tracker):
    """The last write and the last reads of every cell of the shared memory of a tile of clusters."""

    clocks: ClusterClocks

    def __init__(self, clocks: ClusterClocks, cells: int) -> None:
        super().__init__(clocks, cells, one_cta=True)
        # Reads by the own CTA that a barrier of it made old, those worked off, and reads by others.
        self._past: list[Read] = []
        self._past_reader: U32 | None = None
        self._distant_reader: U32 | None = None
        # Where accesses have left stamps that need a closer look, and whether the present access is near one.
        self._closer: list[Span] = []
        self._near = True
        self._of_cta = True
        self._per_cta = cells // clocks.geometry.ctas

    def _writes_ordered(self) -> bool:
        return not self._near and super()._writes_ordered()

    def _look(self, span: Span | None) -> None:
        """Note where an access of the own CTA will be."""
        self._near = any(not apart(span, closer) for closer in self._closer)

    def _leave_closer(self, span: Span) -> None:
        """Note where stamps are left that need a closer look."""
        if span not in self._closer:
            self._closer.append(span)
        if len(self._closer) > _SPANS:
            first, last = (list(ends) for ends in zip(*self._closer, strict=True))
            self._closer = [(min(first), max(last))]
        self._near = True

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
        """Note a read by the own CTA, as `Tracker` does."""
        self._look(span)
        super().read(lanes, first, count, aligned, report, span, few, alike)

    def _forget(self) -> None:
        self._past += self._log
        if len(self._past) > _PAST_LIMIT:
            self._settle_past()
        super()._forget()

    def cluster_barrier_of_all(self) -> None:
        """Forget the reads, if a barrier of its cluster orders them that every thread has passed."""
        if self._last_read < int(np.minimum.reduce(self.clocks.cluster_base)) >> self.clocks.bits:
            super()._forget()
            self._past, self._past_reader = [], None

    def _several_code(self, cells: Index) -> U32 | np.uint32:
        """Return the code for several threads that read cells: of the cells' CTA, but for distant reads."""
        if not self._of_cta:
            return self.clocks.several
        return self.clocks.several_in(cells // self._per_cta)

    def _settle_past(self) -> None:
        if self._past_reader is None:
            self._past_reader = np.zeros(len(self.writer), np.uint32)
        self._note(self._past_reader, self._past, one_cta=False)
        self._past = []

    def _touched(self, cells: Index, span: Span) -> bool:
        """Return whether a read that is still to be worked off may have touched one of the cells."""
        reads = [read for read in (*self._past, *self._log) if not apart(read.span, span)]
        if not reads:
            return False
        wanted = np.zeros(len(self.writer), np.bool_)
        wanted[cells] = True
        return any(
            wanted[read.few].any() if read.length == 1 else wanted[runs(read.few, read.length)].any()
            for read in reads
        )

    def _ordered(self, lanes: Lanes, first: Index, count: int, old: U32) -> bool:
        recent = np.flatnonzero(self._recent(old))
        if not len(recent):
            return True
        cta = first.take(recent // count) // self._per_cta
        return self._near and self.clocks.seen_by_all(lanes, cta, old.take(recent))

    def _late(self, lanes: Lanes, count: int, old: U32, late: Bool) -> Index:
        if self._near and (old[late] >= CLOSER).any():
            late = late & ~self.clocks.obviously(lanes, count, old)
        return super()._late(lanes, count, old, late)

    def _distant(self, lanes: Lanes, count: int, old: U32) -> Index:
        """Return the places in ``old`` that are not ordered before the lanes' access, whoever's they are."""
        base = lanes.take(self.clocks.cluster_base)
        late = (old != 0) & (old >= (base.repeat(count) if count > 1 else base))
        return self._late(lanes, count, old, late)

    def distant_read(self, lanes: Lanes, first: Index, count: int, report: Report) -> None:
        """Note a read through ``.shared::cluster``."""
        writer = self.written(first, count, True, report)
        places = self._distant(lanes, count, writer)
        if len(places):
            raise self._race(first, count, writer, int(places[0]), "read of what was written by {}", report)
        if self._distant_reader is None:
            self._distant_reader = np.zeros(len(self.writer), np.uint32)
        read = Read(lanes, first, first, count, True, None, 1, self.clocks.stamp, self.clocks.cluster_base)
        self._of_cta = False
        self._note(self._distant_reader, [read], one_cta=True)
        self._of_cta = True

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
        """Note a write by the own CTA, as `Tracker` does."""
        self._look(span)
        self._check_reader(self._distant_reader, lanes, first, count, report)
        super().write(lanes, first, count, aligned, report, span, atomic=atomic)

    def _check_reader(
        self, reader: U32 | None, lanes: Lanes, first: Index, count: int, report: Report
    ) -> None:
        """Raise if a read that nothing orders before this write has touched its cells."""
        if reader is not None:
            old = gather(reader, first, count, True)
            places = self._distant(lanes, count, old)
            if len(places):
                raise self._race(first, count, old, int(places[0]), "write of what was read by {}", report)

    def distant_write(
        self,
        lanes: Lanes,
        first: Index,
        count: int,
        report: Report,
        mark: U32,
        span: Span,
        atomics: bool = False,
    ) -> None:
        """Note a write through ``.shared::cluster``, or of an asynchronous store or reduction.

        ``mark`` has a stamp a lane. With ``atomics``, others of the same kind in the cells are no race.
        """
        cells = runs(first, count)
        marks = mark.repeat(count) if count > 1 else mark
        old = self.writer[cells]
        places = self._distant(lanes, count, old)
        if atomics:
            alike = self.clocks.alike(old[places], marks[places])
            several = self.clocks.several_of(marks[places[alike]])
            marks[places[alike]] = several
            places = places[~alike]
        if len(places):
            raise self._race(first, count, old, int(places[0]), "write of what was written by {}", report)
        if self._touched(cells, span):
            # The own CTA's log stays as it is: what is noted twice does no harm.
            self._past += self._log
            self._settle_past()
        self._check_reader(self._past_reader, lanes, first, count, report)
        self._check_reader(self._distant_reader, lanes, first, count, report)
        self.writer[cells] = marks
        self._leave_closer(span)
        met = self._twice(cells)
        if len(met) and atomics:
            self.writer[cells[met]] = self.clocks.several_of(marks[met])
        elif len(met):
            at = int(met[0])
            problem = (
                f"a write of what was written by {self.clocks.name(int(marks[at]))} in the same instruction"
            )
            raise report(at // count, int(cells[at]), problem)

    def _twice(self, cells: Index) -> Index:
        """Return the places of cells that stand there more than once, but for one place of each."""
        ascending = np.sort(cells)
        if not (ascending[1:] == ascending[:-1]).any():
            return NOWHERE
        order = np.argsort(cells, kind="stable")
        again = np.flatnonzero(cells[order][1:] == cells[order][:-1])
        return np.asarray(order[again])

    def remark(self, cells: Index, mark: U32) -> None:
        """Note that asynchronous stores are of other phases than when they were issued."""
        marks = mark.repeat(len(cells) // len(mark))
        mine = self.clocks.is_asynchronous(self.writer[cells])
        self.writer[cells[mine]] = marks[mine]

    def _race(
        self, first: Index, count: int, old: U32, place: int, problem: str, report: Report
    ) -> Exception:
        stamp = old[place : place + 1]
        position, step = divmod(place, count)
        cell = int(first[position]) + step
        doing = problem.split(" of what ")[0]
        if self.clocks.is_mbarrier(stamp)[0]:
            return report(position, cell, f"a {doing} of part of an mbarrier", "mbarrier")
        if self.clocks.is_asynchronous(stamp)[0]:
            what = problem.format(self.clocks.name(int(stamp[0])))
            return report(position, cell, f"a {what}, whose phase the thread has not seen complete")
        return super()._race(first, count, old, place, problem, report)

    def own(self, cells: Index, span: Span) -> None:
        """Note cells that are part of mbarriers from now on."""
        self.writer[cells] = CLOSER | self.clocks.mbarrier
        self._leave_closer(span)

    def disown(self, cells: Index) -> None:
        """Note that mbarriers are no more: nobody has written their cells."""
        self.writer[cells] = 0
