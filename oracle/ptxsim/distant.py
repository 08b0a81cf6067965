"""Shared memory of a cluster: accesses of other CTAs' memory, and stores that arrive later.

A 32-bit address of ``.shared::cluster`` is one of the own CTA, or has ``rank + 1`` in its upper eight bits.
"""

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault
from oracle.ptxsim.cluster_clocks import ClusterClocks
from oracle.ptxsim.distant_races import DistantTracker
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import Geometry, Index
from oracle.ptxsim.lanes import Lanes
from oracle.ptxsim.mbarriers import BYTES
from oracle.ptxsim.races import Report, Span
from oracle.ptxsim.shared import Shared
from oracle.ptxsim.vectors import columns, gather, interleaved, part, runs, scatter

Array = npt.NDArray[Any]

TAG: Final = 24
"""Where the rank stands in an address."""

_INSIDE: Final = np.uint32((1 << TAG) - 1)


class DistantShared(Shared):
    """The shared memory of every CTA of a tile whose program uses clusters or mbarriers."""

    clocks: ClusterClocks
    tracker: DistantTracker

    def _tracker(self, cells: int) -> DistantTracker:
        return DistantTracker(self.clocks, cells)

    @property
    def geometry(self) -> Geometry:
        """The tile."""
        return self.clocks.geometry

    @cached_property
    def gone(self) -> npt.NDArray[np.bool_]:
        """Which CTAs have exited."""
        return np.zeros(self.geometry.ctas, np.bool_)

    def mapped(self, address: Array, rank: Array, fault: Fault) -> Array:
        """Return addresses, of whatever CTA, as those of the CTA of a rank."""
        bad = rank >= np.uint32(self.geometry.ctas_per_cluster)
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            count = self.geometry.ctas_per_cluster
            raise fault("absent CTA", f"CTA {rank[position]} of a cluster of {count}", position)
        return (address & _INSIDE) | ((rank + np.uint32(1)) << np.uint32(TAG))

    def ranks(self, lanes: Lanes, address: Array) -> Array:
        """Return the ranks of the CTAs that addresses belong to."""
        tag = address >> np.uint32(TAG)
        own = self.geometry.rank.take(lanes.cta).astype(np.uint32)
        return np.where(tag == 0, own, tag - np.uint32(1))

    def elsewhere(self, lanes: Lanes, address: Array, width: int, fault: Fault) -> tuple[Index, Span]:
        """Return each lane's byte in the tile's shared memory, for addresses of ``.shared::cluster``.

        And the bytes, of a CTA's, that all accesses are within.
        """
        rank = self.ranks(lanes, address)
        bad = rank >= self.geometry.ctas_per_cluster
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            count = self.geometry.ctas_per_cluster
            raise fault("absent CTA", f"CTA {rank[position]} of a cluster of {count}", position)
        relative: Array = (address & _INSIDE) - np.uint32(self.start)
        span = self.check(relative, address, width, fault)
        cta = self.geometry.peers[lanes.cta, rank]
        self._present(lanes, address, cta, rank, fault)
        offsets: Index = cta * self.pitch + relative
        return offsets, span

    def _present(self, lanes: Lanes, address: Array, cta: Index, rank: Array, fault: Fault) -> None:
        """Raise unless the CTAs are known to have started, and have not exited."""
        gone = self.gone[cta]
        if gone.any():
            position = int(np.flatnonzero(gone)[0])
            detail = f"CTA {rank[position]} of the cluster, whose shared memory is accessed, has exited"
            raise fault("absent CTA", detail, position, int(address[position]))
        unknown = (lanes.take(self.clocks.started) >> rank) & np.uint32(1) == 0
        if unknown.any():
            position = int(np.flatnonzero(unknown)[0])
            detail = f"nothing before says that CTA {rank[position]} of the cluster has started"
            raise fault("absent CTA", detail, position, int(address[position]))

    def report(self, fault: Fault, lanes: Lanes | None = None) -> Report:
        """Return the maker of errors; for ``lanes`` that may be of another CTA, it names the cell's."""
        plain = super().report(fault)
        if lanes is None:
            return plain
        own = lanes.cta

        def there(kind: str, detail: str, position: int, cell: int) -> SimulationError:
            cta, offset = divmod(cell * self.granule, self.pitch)
            if cta == own[position]:
                return fault(kind, detail, position, self.start + offset, self._place(offset))
            rank = int(self.geometry.rank[cta])
            address = (rank + 1 << TAG) + self.start + offset
            return fault(kind, detail, position, address, f"{self._place(offset)} of CTA {rank}")

        def make(position: int, cell: int, problem: str, kind: str = "race") -> SimulationError:
            if not problem:
                kind, problem = "uninitialised", "a read of what nobody has written"
            return there(kind, problem, position, cell)

        return make

    def cell_of(self, address: int, cta: int) -> int:
        """Return the cell of an address of a message, which may be of another CTA than the thread."""
        owner = int(self.geometry.peers[cta, (address >> TAG) - 1]) if address >> TAG else cta
        return super().cell_of(address & int(_INSIDE), owner)

    def _cells(self, offsets: Index, size: int) -> tuple[Index, int]:
        return part(offsets, self.granule), size // self.granule

    def load_distant(self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault) -> list[Array]:
        """Load, from ``.shared::cluster``."""
        size = np.dtype(code).itemsize
        offsets, _ = self.elsewhere(lanes, address, size * count, fault)
        self.tracker.distant_read(lanes, *self._cells(offsets, size * count), self.report(fault, lanes))
        self.touch(lanes, offsets)
        return columns(gather(self.view(code), part(offsets, size), count, True), count)

    def store_distant(
        self, lanes: Lanes, address: Array, code: str, values: list[Array], fault: Fault
    ) -> None:
        """Store, to ``.shared::cluster``."""
        size, count = np.dtype(code).itemsize, len(values)
        offsets, span = self.elsewhere(lanes, address, size * count, fault)
        cells = self._cells(offsets, size * count)
        self.tracker.distant_write(lanes, *cells, self.report(fault, lanes), self.clocks.distant(lanes), span)
        self.touch(lanes, offsets)
        scatter(self.view(code), part(offsets, size), count, True, interleaved(values, lanes.n, code))

    def atomic_distant(self, lanes: Lanes, address: Array, code: str, fault: Fault) -> tuple[Array, Index]:
        """Check an atomic access of ``.shared::cluster``; return the data and each lane's element in it."""
        size = np.dtype(code).itemsize
        offsets, span = self.elsewhere(lanes, address, size, fault)
        first, cells = self._cells(offsets, size)
        report, mark = self.report(fault, lanes), self.clocks.distant(lanes, atomic=True)
        self.tracker.written(first, cells, True, report)
        self.tracker.distant_write(lanes, first, cells, report, mark, span, atomics=True)
        self.touch(lanes, offsets)
        return self.view(code), part(offsets, size)

    def bring(
        self,
        lanes: Lanes,
        offsets: Index,
        size: int,
        span: Span,
        keys: Index,
        reduction: bool,
        fault: Fault,
    ) -> None:
        """Note asynchronous stores of ``size`` bytes, or reductions, that mbarriers are told of."""
        first, cells = self._cells(offsets, size)
        report, mark = self.report(fault, lanes), self.clocks.mark(keys, reduction)
        if reduction:
            self.tracker.written(first, cells, True, report)
        self.tracker.distant_write(lanes, first, cells, report, mark, span, atomics=reduction)
        self._issue(keys)

    def remark(self, offsets: Index, size: int, keys: Index, reduction: bool) -> None:
        """Note the phases that stores under way are counted in when they arrive, later than issued."""
        self.tracker.remark(runs(*self._cells(offsets, size)), self.clocks.mark(keys, reduction))
        self._issue(keys)

    @cached_property
    def _issued(self) -> dict[int, Index]:
        """For each CTA: how many phases of its mbarriers must be complete for all stores to have arrived."""
        return {}

    def _issue(self, keys: Index) -> None:
        for number in np.unique(keys // self.geometry.ctas):
            ctas = keys[keys // self.geometry.ctas == number] % self.geometry.ctas
            issued = self._issued.setdefault(int(number), np.zeros(self.geometry.ctas, np.intp))
            issued[ctas] = self.clocks.phase(int(number))[ctas] + 1

    def own(self, lanes: Lanes, offsets: Index, fault: Fault) -> None:
        """Note the memory of mbarriers that lanes make."""
        first, cells = self._cells(offsets, BYTES)
        places = offsets % self.pitch
        span = int(places.min()), int(places.max()) + BYTES - 1
        self.tracker.write(lanes, first, cells, True, self.report(fault), span)
        self.tracker.own(runs(first, cells), span)

    def disown(self, offsets: Index) -> None:
        """Note memory that is no mbarrier's any more."""
        self.tracker.disown(runs(*self._cells(offsets, BYTES)))

    # Who may still be there.

    @cached_property
    def _touches(self) -> npt.NDArray[np.uint32]:
        """The tick of each lane's last access of each CTA of its cluster, by rank, plus one."""
        return np.zeros((self.geometry.size, self.geometry.ctas_per_cluster), np.uint32)

    def touch(self, lanes: Lanes, offsets: Index) -> None:
        """Note accesses of other CTAs, which must not end before them."""
        cta = offsets // self.pitch
        others = np.flatnonzero(cta != lanes.cta)
        if len(others):
            index = lanes.index[others]
            ticks = self.clocks.stamp[index] >> np.uint32(self.clocks.bits)
            self._touches[index, self.geometry.rank[cta[others]]] = ticks

    def leave(self, ctas: Index) -> tuple[int, str] | None:
        """Note that the last threads of CTAs exit; return a CTA and what is wrong with that, if anything."""
        self.gone[ctas] = True
        geometry = self.geometry
        for number, issued in self._issued.items():
            seen = self.clocks.observed[number].reshape(-1, geometry.pitch).max(axis=1)
            early = ctas[seen[ctas] < issued[ctas]]
            if len(early):
                detail = "a CTA exits that has not seen all asynchronous stores into its shared memory arrive"
                return int(early[0]), detail
        if "_touches" in self.__dict__:
            for cta in ctas:
                thread = self._still_there(int(cta))
                if thread is not None:
                    what = f"what thread {thread} does in its shared memory"
                    return int(cta), f"a CTA exits, and nothing orders that after {what}"
        return None

    def _still_there(self, cta: int) -> int | None:
        """Return a thread of another CTA of whose accesses of this CTA none of this CTA's threads knows."""
        geometry, clocks = self.geometry, self.clocks
        lanes = clocks.roster[geometry.cluster_of[cta]]
        ticks = self._touches[lanes, geometry.rank[cta]]
        lanes, ticks = lanes[ticks > 0], ticks[ticks > 0]
        stamps = clocks.thread[lanes] | (ticks << np.uint32(clocks.bits))
        first = cta * geometry.pitch
        for mine in range(first, first + geometry.threads):
            if not len(lanes):
                return None
            bad = clocks.unordered(np.full(len(lanes), mine), stamps)
            lanes, stamps = lanes[bad], stamps[bad]
        return geometry.thread_in_grid(int(lanes[0])) if len(lanes) else None
