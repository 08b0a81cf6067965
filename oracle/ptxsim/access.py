"""Loads, stores and atomics of global and shared memory: check, then gather or scatter.

A space turns addresses into cells (bounds and alignment are checked there), the `Tracker` says whether the
cells may be touched, and the data moves through a flat view of the element's type.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.lanes import Index, Lanes
from oracle.ptxsim.memory import REGION_BITS, Buffer
from oracle.ptxsim.races import Clocks, Report, Tracker
from oracle.ptxsim.vectors import columns, gather, interleaved, part, scatter

Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]


class Fault(Protocol):
    """Makes the exception for a lane: ``(kind, detail, position in the lanes, address, buffer)``."""

    def __call__(
        self, kind: str, detail: str, position: int, address: int | None = None, buffer: str | None = None
    ) -> SimulationError:
        """Return the exception."""


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
        self.size, self.start, self.granule, self.name_at = size, start, granule, name_at
        self.gaps = gaps
        self.pitch = -(-size // 16) * 16
        # Never read before it is written; a pattern that no index or float survives, should that check ever
        # fail.
        self.octets = np.full(geometry.ctas * self.pitch, 0xA5, np.uint8)
        self.views: dict[str, Array] = {}
        self.tracker = Tracker(clocks, geometry.ctas * self.pitch // granule, one_cta=True)
        self.origin = geometry.cta * self.pitch

    def view(self, code: str) -> Array:
        """Return all bytes as elements of type ``code``, flat."""
        if code not in self.views:
            self.views[code] = self.octets.view(code)
        return self.views[code]

    def offsets(self, lanes: Lanes, address: Array, width: int, fault: Fault) -> Index:
        """Return each lane's byte in the tile's shared memory, for accesses ``width`` wide."""
        relative: Array = address - np.uint32(self.start)
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
        offsets: Index = lanes.take(self.origin) + relative
        return offsets

    def report(self, fault: Fault) -> Report:
        """Return the maker of a race's or an uninitialised read's exception."""

        def make(position: int, cell: int, problem: str) -> SimulationError:
            offset = cell * self.granule % self.pitch
            kind, detail = (
                ("race", problem) if problem else ("uninitialised", "a read of what nobody has written")
            )
            return fault(kind, detail, position, self.start + offset, self._place(offset))

        return make

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


class Global:
    """The global memory of a tile: finds buffers and checks what the caller said of them."""

    def __init__(self, clocks: Clocks, buffers: list[Buffer], granule: int) -> None:
        self.clocks = clocks
        self.geometry = clocks.geometry
        self.buffers = {buffer.number: buffer for buffer in buffers}
        self.granule = granule
        self.trackers = {
            b.number: Tracker(
                clocks, len(b.octets.reshape(-1)) // granule + 1, self.geometry.ctas_per_launch == 1
            )
            for b in buffers
            if b.writable
        }
        self.waited = np.zeros(self.geometry.size, np.bool_)
        self.all_waited = not any(buffer.dependent for buffer in buffers)
        self._strides: dict[int, tuple[Array, Array]] = {}
        self._origins: dict[int, I64] = {}

    def wait(self, lanes: Lanes) -> None:
        """Note ``griddepcontrol.wait`` of these lanes."""
        if not self.all_waited:
            self.waited = lanes.put(self.waited, np.ones(lanes.n, np.bool_))
            self.all_waited = bool((self.waited | ~self.geometry.exists).all())

    def find(self, lanes: Lanes, address: Array, width: int, fault: Fault) -> tuple[Buffer, Index]:
        """Return the buffer that all addresses are in, and each lane's byte in the tile's part of it."""
        if int(np.bitwise_or.reduce(address)) & (width - 1):
            position = int(np.flatnonzero(address & np.uint64(width - 1))[0])
            where = self.place(lanes, address, position)
            raise fault("misaligned", f"an access of {width} bytes", position, *where)
        buffer = self.buffers.get(int(address[0]) >> REGION_BITS)
        if buffer is None:
            raise fault("out of bounds", "an address in no buffer", 0, int(address[0]))
        relative = (address - buffer.address[0]).view(np.int64)
        last = buffer.row_bytes - width
        origin: I64 = lanes.take(self._origin(buffer))
        if buffer.rows == 1:
            if np.minimum.reduce(relative) >= 0 and np.maximum.reduce(relative) <= last:
                return buffer, origin + relative
            bad = (relative < 0) | (relative > last)
        else:
            row, within = self._row(lanes, buffer, relative)
            bad = (within > last) | (row < 0) | (row >= buffer.rows)
            if not np.count_nonzero(bad):
                return buffer, origin + within + row * buffer.row_bytes
        position = int(np.flatnonzero(bad)[0])
        where = self.place(lanes, address, position)
        raise fault("out of bounds", f"{width} bytes outside the buffer", position, *where)

    def _origin(self, buffer: Buffer) -> I64:
        """Return where each lane's launch starts in the tile's part of a buffer."""
        if buffer.number not in self._origins:
            self._origins[buffer.number] = self.geometry.launch * (buffer.rows * buffer.row_bytes)
        return self._origins[buffer.number]

    def _row(self, lanes: Lanes, buffer: Buffer, relative: I64) -> tuple[Array, Array]:
        """Split an offset into row and offset in the row: a float division, off by at most one, put right."""
        if buffer.number not in self._strides:
            full = buffer.stride[self.geometry.launch]
            with np.errstate(divide="ignore"):
                self._strides[buffer.number] = full, np.where(full == 0, 0.0, 1.0 / full)
        full, inverse = self._strides[buffer.number]
        stride = lanes.take(full)
        row = np.floor(relative * lanes.take(inverse)).astype(np.int64)
        within = relative - row * stride
        row += (within >= stride) & (stride != 0)
        row -= within < 0
        return row, relative - row * stride

    def place(self, lanes: Lanes, address: Array, position: int, offset: int = 0) -> tuple[int, str | None]:
        """Return an address, ``offset`` bytes after a lane's, and the words for it."""
        value = int(address[position]) + offset
        buffer = self.buffers.get(value >> REGION_BITS)
        if buffer is None:
            return value, None
        launch = int(self.geometry.launch[lanes.index[position]])
        return value, buffer.place(launch, value - int(buffer.address[0]))

    def by_buffer(self, address: Array) -> list[Index] | None:
        """Return the positions in each buffer, or ``None`` if all lanes are in one."""
        least, most = int(np.minimum.reduce(address)), int(np.maximum.reduce(address))
        if least >> REGION_BITS == most >> REGION_BITS:
            return None
        number = address >> np.uint64(REGION_BITS)
        return [np.flatnonzero(number == n) for n in np.unique(number)]

    def _early(self, lanes: Lanes, address: Array, fault: Fault, doing: str) -> None:
        waited = lanes.take(self.waited)
        if not waited.all():
            position = int(np.flatnonzero(~waited)[0])
            raise fault("before the wait", doing, position, *self.place(lanes, address, position))

    def _report(self, lanes: Lanes, address: Array, first: Index, fault: Fault) -> Report:
        """Return the maker of a race's or an uninitialised read's exception; ``first`` cells are accessed."""

        def make(position: int, cell: int, problem: str) -> SimulationError:
            kind = "race" if problem else "uninitialised"
            detail = problem or "a read of an output that the kernel has not written"
            offset = (cell - int(first[position])) * self.granule
            return fault(kind, detail, position, *self.place(lanes, address, position, offset))

        return make

    def _data(
        self, buffer: Buffer, code: str, count: int, start: Index
    ) -> tuple[Array, str, int, Index, bool]:
        """Return how to reach elements: view, its type, elements of it an access, the first, aligned or not.

        Elements that lie across those of the view, for the buffer's shape or offset, are moved as bytes.
        """
        size = np.dtype(code).itemsize
        mixed = int(np.bitwise_or.reduce(start))
        data = None if mixed & (size - 1) else buffer.view(code)
        if data is None:
            data, code, count, size = buffer.octets.reshape(-1), "u1", count * size, 1
        whole = len(data) % count == 0 and not mixed & (size * count - 1)
        whole = whole and not data.ctypes.data % (size * count)
        return data, code, count, part(start, size), whole

    def load(self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault) -> list[Array]:
        """Return ``count`` consecutive elements of type ``code`` from each lane's address."""
        parts = self.by_buffer(address)
        if parts is not None:
            whole = [np.empty(lanes.n, code) for _ in range(count)]
            for positions in parts:
                sub = Lanes(self.geometry, lanes.index.take(positions), 1)
                got = self.load(sub, address.take(positions), code, count, _shifted(fault, positions))
                for full, found in zip(whole, got, strict=True):
                    full[positions] = found
            return whole
        width = np.dtype(code).itemsize * count
        buffer, start = self.find(lanes, address, width, fault)
        if buffer.dependent and not self.all_waited:
            self._early(lanes, address, fault, "a read of what an earlier kernel writes")
        data, _, length, first, aligned = self._data(buffer, code, count, start)
        if buffer.writable:
            cells = part(start, self.granule)
            report = self._report(lanes, address, cells, fault)
            self.trackers[buffer.number].read(lanes, cells, width // self.granule, aligned, report)
        return columns(gather(data, first, length, aligned).view(code), count)

    def store(self, lanes: Lanes, address: Array, code: str, values: list[Array], fault: Fault) -> None:
        """Write consecutive elements to each lane's address."""
        parts = self.by_buffer(address)
        if parts is not None:
            for positions in parts:
                sub = Lanes(self.geometry, lanes.index.take(positions), 1)
                picked = [v if v.ndim == 0 else v.take(positions) for v in values]
                self.store(sub, address.take(positions), code, picked, _shifted(fault, positions))
            return
        width = np.dtype(code).itemsize * len(values)
        buffer, start = self.check_store(lanes, address, width, fault)
        data, stored, length, first, aligned = self._data(buffer, code, len(values), start)
        cells = part(start, self.granule)
        report = self._report(lanes, address, cells, fault)
        self.trackers[buffer.number].write(lanes, cells, width // self.granule, aligned, report)
        scatter(data, first, length, aligned, interleaved(values, lanes.n, code).view(stored))

    def check_store(self, lanes: Lanes, address: Array, width: int, fault: Fault) -> tuple[Buffer, Index]:
        """Find the buffer of a store, and see that it may be written now."""
        if not self.all_waited:
            self._early(lanes, address, fault, "a global store")
        buffer, start = self.find(lanes, address, width, fault)
        if not buffer.writable:
            raise fault("read-only", "a write to an input", 0, *self.place(lanes, address, 0))
        return buffer, start

    def atomic(self, lanes: Lanes, address: Array, code: str, fault: Fault) -> tuple[Array, Index]:
        """Check an atomic access; return the data and each lane's element in it."""
        size = np.dtype(code).itemsize
        buffer, start = self.check_store(lanes, address, size, fault)
        data, stored, _, first, aligned = self._data(buffer, code, 1, start)
        if stored != code:
            raise fault(
                "misaligned", "an atomic on elements of another size", 0, *self.place(lanes, address, 0)
            )
        tracker, cells, count = self.trackers[buffer.number], part(start, self.granule), size // self.granule
        report = self._report(lanes, address, cells, fault)
        tracker.written(cells, count, aligned, report)
        tracker.write(lanes, cells, count, aligned, report, atomic=True)
        return data, first


def _shifted(fault: Fault, positions: Index) -> Fault:
    """Translate positions of a part of the lanes back."""

    def make(
        kind: str, detail: str, position: int, address: int | None = None, buffer: str | None = None
    ) -> SimulationError:
        return fault(kind, detail, int(positions[position]), address, buffer)

    return make
