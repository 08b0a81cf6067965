"""Shared memory of a cluster: accesses of other CTAs' memory, and stores that arrive later.

A 32-bit address of ``.shared::cluster`` is one of the own CTA, or has ``rank + 1`` in its upper eight bits.
"""

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault
from oracle.ptxsim.cluster_clocks import ClusterClocks
from oracle.ptxsim.geometry import Geometry, Index
from oracle.ptxsim.lanes import Lanes
from oracle.ptxsim.shared import Shared
from oracle.ptxsim.vectors import columns, gather, interleaved, part, scatter

Array = npt.NDArray[Any]

TAG: Final = 24
"""Where the rank stands in an address."""

_INSIDE: Final = np.uint32((1 << TAG) - 1)


class DistantShared(Shared):
    """The shared memory of every CTA of a tile whose program uses clusters."""

    @property
    def geometry(self) -> Geometry:
        """The tile."""
        return self.clocks.geometry

    @cached_property
    def peers(self) -> Index:
        """The CTAs of each CTA's cluster, by rank."""
        return np.asarray(self.geometry.members.take(self.geometry.cluster_of, axis=0))

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
        own = self.geometry.rank.take(lanes.take(self.geometry.cta)).astype(np.uint32)
        return np.where(tag == 0, own, tag - np.uint32(1))

    def elsewhere(self, lanes: Lanes, address: Array, width: int, fault: Fault) -> Index:
        """Return each lane's byte in the tile's shared memory, for addresses of ``.shared::cluster``."""
        rank = self.ranks(lanes, address)
        bad = rank >= self.geometry.ctas_per_cluster
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            count = self.geometry.ctas_per_cluster
            raise fault("absent CTA", f"CTA {rank[position]} of a cluster of {count}", position)
        relative: Array = (address & _INSIDE) - np.uint32(self.start)
        self.check(relative, address, width, fault)
        cta = self.peers[lanes.take(self.geometry.cta), rank]
        self._present(lanes, address, cta, rank, fault)
        offsets: Index = cta * self.pitch + relative
        return offsets

    def _present(self, lanes: Lanes, address: Array, cta: Index, rank: Array, fault: Fault) -> None:
        """Raise unless the CTAs are known to have started, and have not exited."""
        gone = self.gone[cta]
        if gone.any():
            position = int(np.flatnonzero(gone)[0])
            detail = f"CTA {rank[position]} of the cluster, whose shared memory is accessed, has exited"
            raise fault("absent CTA", detail, position, int(address[position]))
        clocks = self.clocks
        assert isinstance(clocks, ClusterClocks)
        unknown = (lanes.take(clocks.started) >> rank) & np.uint32(1) == 0
        if unknown.any():
            position = int(np.flatnonzero(unknown)[0])
            detail = f"nothing before says that CTA {rank[position]} of the cluster has started"
            raise fault("absent CTA", detail, position, int(address[position]))

    def _cells(self, offsets: Index, size: int) -> tuple[Index, int]:
        return part(offsets, self.granule), size // self.granule

    def load_distant(self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault) -> list[Array]:
        """Load, from ``.shared::cluster``."""
        size = np.dtype(code).itemsize
        offsets = self.elsewhere(lanes, address, size * count, fault)
        first, cells = self._cells(offsets, size * count)
        self.tracker.written(first, cells, True, self.report(fault))
        return columns(gather(self.view(code), part(offsets, size), count, True), count)

    def store_distant(
        self, lanes: Lanes, address: Array, code: str, values: list[Array], fault: Fault
    ) -> None:
        """Store, to ``.shared::cluster``."""
        size, count = np.dtype(code).itemsize, len(values)
        offsets = self.elsewhere(lanes, address, size * count, fault)
        self.mark(offsets, size * count)
        scatter(self.view(code), part(offsets, size), count, True, interleaved(values, lanes.n, code))

    def atomic_distant(self, lanes: Lanes, address: Array, code: str, fault: Fault) -> tuple[Array, Index]:
        """Check an atomic access of ``.shared::cluster``; return the data and each lane's element in it."""
        size = np.dtype(code).itemsize
        offsets = self.elsewhere(lanes, address, size, fault)
        first, cells = self._cells(offsets, size)
        self.tracker.written(first, cells, True, self.report(fault))
        return self.view(code), part(offsets, size)

    def mark(self, offsets: Index, size: int) -> None:
        """Note a write."""
        first, cells = self._cells(offsets, size)
        scatter(self.tracker.writer, first, cells, True, np.ones(len(first) * cells, np.uint32))
