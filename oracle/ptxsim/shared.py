"""Loads, stores and atomics of a CTA's own shared memory; `access` says how a space works."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault
from oracle.ptxsim.clocks import Clocks
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import WARP, Index
from oracle.ptxsim.lanes import LANES, Lanes
from oracle.ptxsim.races import Report, Span, Tracker
from oracle.ptxsim.vectors import columns, gather, interleaved, part, scatter

Array = npt.NDArray[Any]


class Place(NamedTuple):
    """Where lanes access shared memory: the first cell and element of each, and the bytes touched of a CTA.

    With ``alike`` above 1, as many lanes in a row are at each of them; ``few`` are all cells once.
    """

    cells: Index
    few: Index
    elements: Index
    span: Span
    alike: int


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
        return self._of_ctas(lanes) + relative

    def _of_ctas(self, lanes: Lanes) -> Index:
        """Return the first byte of each lane's CTA."""
        return lanes.once(("CTA", self.pitch), lambda: lanes.cta * self.pitch)

    def place(
        self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault, name: int | None, alike: bool
    ) -> Place:
        """Return where the lanes access ``count`` elements of type ``code``.

        An instruction's ``name`` says that its addresses are the same in every tile of a shape; only then is
        it worth looking for warps whose lanes are at one place, if the caller can use that: ``alike``.
        """
        if name is not None and lanes.kept is not None:
            key = "place", name, self.size
            return lanes.once(key, lambda: self.place(lanes, address, code, count, fault, None, alike))
        size = np.dtype(code).itemsize
        relative: Array = address - np.uint32(self.start)
        span = self.check(relative, address, size * count, fault)
        offsets, each = self._of_ctas(lanes) + relative, 1
        if alike and lanes.level > LANES:
            warps = offsets.reshape(-1, WARP)
            if (warps == warps[:, :1]).all():
                offsets, each = np.ascontiguousarray(warps[:, 0]), WARP
        elements = part(offsets, size)
        cells = elements if size == self.granule else part(offsets, self.granule)
        return Place(cells, np.unique(cells) if alike else cells, elements, span, each)

    def check(self, relative: Array, address: Array, width: int, fault: Fault) -> Span:
        """Raise unless all accesses, ``relative`` to the first byte of a CTA, are inside and aligned.

        Return the first and the last byte.
        """
        most = int(np.maximum.reduce(relative))
        if most > self.size - width:
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
        span = int(np.minimum.reduce(relative)), most + width - 1
        for first, end in self.gaps:
            if span[1] < first or span[0] >= end:
                continue
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
        return span

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

    def load(
        self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault, name: int | None = None
    ) -> list[Array]:
        """Return ``count`` consecutive elements of type ``code`` from each lane's address.

        ``name`` as for `place`.
        """
        place = self.place(lanes, address, code, count, fault, name, alike=name is not None)
        cells = np.dtype(code).itemsize * count // self.granule
        self.tracker.read(
            lanes, place.cells, cells, True, self.report(fault), place.span, place.few, alike=place.alike
        )
        found = columns(gather(self.view(code), place.elements, count, True), count)
        return [values.repeat(place.alike) for values in found] if place.alike > 1 else found

    def store(
        self,
        lanes: Lanes,
        address: Array,
        code: str,
        values: list[Array],
        fault: Fault,
        name: int | None = None,
    ) -> None:
        """Write consecutive elements to each lane's address; ``name`` as for `place`."""
        count = len(values)
        place = self.place(lanes, address, code, count, fault, name, alike=False)
        cells = np.dtype(code).itemsize * count // self.granule
        self.tracker.write(lanes, place.cells, cells, True, self.report(fault), place.span)
        scatter(self.view(code), place.elements, count, True, interleaved(values, lanes.n, code))

    def atomic(self, lanes: Lanes, address: Array, code: str, fault: Fault) -> tuple[Array, Index]:
        """Check an atomic access; return the data and each lane's element in it."""
        size = np.dtype(code).itemsize
        offsets = self.offsets(lanes, address, size, fault)
        report, first, cells = self.report(fault), part(offsets, self.granule), size // self.granule
        self.tracker.written(first, cells, True, report)
        self.tracker.write(lanes, first, cells, True, report, atomic=True)
        return self.view(code), part(offsets, size)
