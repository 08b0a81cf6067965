"""Loads, stores and atomics of global memory: check, then gather or scatter.

A space turns addresses into cells (bounds and alignment are checked there), the `Tracker` says whether the
cells may be touched, and the data moves through a flat view of the element's type.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.clocks import Clocks
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import WARP, Index
from oracle.ptxsim.lanes import LANES, Lanes
from oracle.ptxsim.memory import REGION_BITS, Buffer
from oracle.ptxsim.races import Report, Tracker
from oracle.ptxsim.vectors import columns, gather, interleaved, part, scatter

Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]


class Fault(Protocol):
    """Makes the exception for a lane: ``(kind, detail, position in the lanes, address, buffer)``."""

    def __call__(
        self, kind: str, detail: str, position: int, address: int | None = None, buffer: str | None = None
    ) -> SimulationError:
        """Return the exception."""


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
        origin = self._origin(lanes, buffer)
        if buffer.rows == 1:
            if np.minimum.reduce(relative) >= 0 and np.maximum.reduce(relative) <= last:
                return buffer, origin + relative
            bad = (relative < 0) | (relative > last)
        else:
            offsets = self._row_a_warp(lanes, buffer, relative, last)
            if offsets is not None:
                return buffer, origin + offsets
            row, within = self._row(lanes, buffer, relative)
            bad = (within > last) | (row < 0) | (row >= buffer.rows)
            if not np.count_nonzero(bad):
                return buffer, origin + within + row * buffer.row_bytes
        position = int(np.flatnonzero(bad)[0])
        where = self.place(lanes, address, position)
        raise fault("out of bounds", f"{width} bytes outside the buffer", position, *where)

    def _origin(self, lanes: Lanes, buffer: Buffer) -> I64:
        """Return where each lane's launch starts in the tile's part of a buffer."""
        size = buffer.rows * buffer.row_bytes
        return lanes.once(("launch", size), lambda: lanes.take(self.geometry.launch) * size)

    def _row_a_warp(self, lanes: Lanes, buffer: Buffer, relative: I64, last: int) -> I64 | None:
        """Return the bytes in the launch's part of a buffer if each warp is within one row, else ``None``."""
        if lanes.level == LANES:
            return None
        row, within = self._row(lanes, buffer, relative[::WARP], WARP)
        moved = relative[::WARP] - within
        inside = relative - moved.repeat(WARP)
        if np.minimum.reduce(inside) < 0 or np.maximum.reduce(inside) > last:
            return None
        if np.minimum.reduce(row) < 0 or np.maximum.reduce(row) >= buffer.rows:
            return None
        inside += (row * buffer.row_bytes).repeat(WARP)
        return inside

    def _row(self, lanes: Lanes, buffer: Buffer, relative: I64, step: int = 1) -> tuple[Array, Array]:
        """Split the offsets of every ``step``-th lane into row and offset in the row.

        A float division, off by at most one, put right.
        """
        if buffer.number not in self._strides:
            full = buffer.stride[self.geometry.launch]
            with np.errstate(divide="ignore"):
                self._strides[buffer.number] = full, np.where(full == 0, 0.0, 1.0 / full)
        full, inverse = self._strides[buffer.number]
        stride = lanes.take(full)[::step]
        row = np.floor(relative * lanes.take(inverse)[::step]).astype(np.int64)
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

        def make(position: int, cell: int, problem: str, kind: str = "race") -> SimulationError:
            if not problem:
                kind, problem = "uninitialised", "a read of an output that the kernel has not written"
            offset = (cell - int(first[position])) * self.granule
            return fault(kind, problem, position, *self.place(lanes, address, position, offset))

        return make

    def _data(
        self, buffer: Buffer, code: str, count: int, start: Index
    ) -> tuple[Array, str, int, Index, bool]:
        """Return how to reach elements: view, its type, elements of it an access, the first, aligned or not.

        Elements that lie across those of the view, for the buffer's shape or offset, are moved as bytes.
        """
        size = np.dtype(code).itemsize
        mixed = 0
        if buffer.row_bytes % (size * count) or int(buffer.address[0]) % (size * count):
            # Addresses are aligned, but rows in the array need not be.
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
