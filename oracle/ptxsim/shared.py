"""Loads, stores and atomics of a CTA's own shared memory; `access` says how a space works."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault
from oracle.ptxsim.clocks import Clocks
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import Index
from oracle.ptxsim.lanes import Lanes
from oracle.ptxsim.races import Report, Tracker
from oracle.ptxsim.vectors import columns, gather, interleaved, part, scatter

Array = npt.NDArray[Any]


class Shared:
    """The shared memory of every CTA of a tile.

    Parameters
    ----------
    clocks
        The tile's barriers.
    size
        Bytes of each CTA.
    start
        The address of the first byte.
    granule
        Bytes of the narrowest access of the program.
    name_at
        Says which variable a byte offset belongs to.
    gaps
        Where no variable lies ahead of one: first byte and end.
    """

    def __init__(
        self,
        clocks: Clocks,
        size: int,
        start: int,
        granule: int,
        name_at: Callable[[int], str],
        gaps: list[tuple[int, int]],
    ) -> None:
        geometry = clocks.geometry
        self.clocks = clocks
        self.size, self.start, self.granule, self.name_at = size, start, granule, name_at
        self.gaps = gaps
        self.pitch = -(-size // 16) * 16
        # Never read before it is written; a pattern that no index or float survives, should that check ever
        # fail.
        self.octets = np.full(geometry.ctas * self.pitch, 0xA5, np.uint8)
        self.views: dict[str, Array] = {}
        self.tracker = self._tracker(geometry.ctas * self.pitch // granule)
        self.origin = geometry.cta * self.pitch

    def _tracker(self, cells: int) -> Tracker:
        return Tracker(self.clocks, cells, one_cta=True)

    def view(self, code: str) -> Array:
        """Return all bytes as elements of type ``code``, flat."""
        if code not in self.views:
            self.views[code] = self.octets.view(code)
        return self.views[code]

    def offsets(self, lanes: Lanes, address: Array, width: int, fault: Fault) -> Index:
        """Return each lane's byte in the tile's shared memory, for accesses ``width`` wide."""
        relative: Array = address - np.uint32(self.start)
        self.check(relative, address, width, fault)
        offsets: Index = lanes.take(self.origin) + relative
        return offsets

    def check(self, relative: Array, address: Array, width: int, fault: Fault) -> None:
        """Raise unless all accesses, ``relative`` to the first byte of a CTA, are inside and aligned."""
        if np.maximum.reduce(relative) > self.size - width or self.size < width:
            position = int(np.flatnonzero((relative > self.size - width) | (self.size < width))[0])
            raise fault(
                "out of bounds",
                f"{width} bytes outside the {self.size} bytes of shared memory",
                position,
                int(address[position]),
                self._place(int(relative[position])),
            )
        if int(np.bitwise_or.reduce(address)) & (width - 1):
            position = int(np.flatnonzero(address & np.uint32(width - 1))[0])
            raise fault(
                "misaligned",
                f"an access of {width} bytes",
                position,
                int(address[position]),
                self._place(int(relative[position])),
            )
        for first, end in self.gaps:
            outside = (relative + width > first) & (relative < end)
            if outside.any():
                position = int(np.flatnonzero(outside)[0])
                raise fault(
                    "out of bounds",
                    f"{width} bytes between the variables of shared memory",
                    position,
                    int(address[position]),
                    self._place(int(relative[position])),
                )

    def report(self, fault: Fault) -> Report:
        """Return the maker of a race's or an uninitialised read's exception."""

        def make(position: int, cell: int, problem: str, kind: str = "race") -> SimulationError:
            offset = cell * self.granule % self.pitch
            if not problem:
                kind, problem = "uninitialised", "a read of what nobody has written"
            return fault(kind, problem, position, self.start + offset, self._place(offset))

        return make

    def cell_of(self, address: int, cta: int) -> int:
        """Return the cell of an address of a message about a thread of a CTA."""
        return (cta * self.pitch + address - self.start) // self.granule

    def _place(self, offset: int) -> str:
        return self.name_at(offset - (1 << 32) if offset >> 31 else offset)

    def load(self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault) -> list[Array]:
        """Return ``count`` consecutive elements of type ``code`` from each lane's address."""
        size = np.dtype(code).itemsize
        offsets = self.offsets(lanes, address, size * count, fault)
        cells = size * count // self.granule
        self.tracker.read(lanes, part(offsets, self.granule), cells, True, self.report(fault))
        return columns(gather(self.view(code), part(offsets, size), count, True), count)

    def store(self, lanes: Lanes, address: Array, code: str, values: list[Array], fault: Fault) -> None:
        """Write consecutive elements to each lane's address."""
        size, count = np.dtype(code).itemsize, len(values)
        offsets = self.offsets(lanes, address, size * count, fault)
        cells = size * count // self.granule
        self.tracker.write(lanes, part(offsets, self.granule), cells, True, self.report(fault))
        scatter(self.view(code), part(offsets, size), count, True, interleaved(values, lanes.n, code))

    def atomic(self, lanes: Lanes, address: Array, code: str, fault: Fault) -> tuple[Array, Index]:
        """Check an atomic access; return the data and each lane's element in it."""
        size = np.dtype(code).itemsize
        offsets = self.offsets(lanes, address, size, fault)
        report, first, cells = self.report(fault), part(offsets, self.granule), size // self.granule
        self.tracker.written(first, cells, True, report)
        self.tracker.write(lanes, first, cells, True, report, atomic=True)
        return self.view(code), part(offsets, size)
