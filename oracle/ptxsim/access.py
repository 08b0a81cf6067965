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
    """

    def __init__(
        self, clocks: Clocks, size: int, start: int, granule: int, name_at: Callable[[int], str]
    ) -> None:
        geometry = clocks.geometry
        self.size, self.start, self.granule, self.name_at = size, start, granule, name_at
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
        offsets: Index = lanes.take(self.origin) + relative
        return offsets

    def report(self, offsets: Index, fault: Fault) -> Report:
        """Return the maker of a race's or an uninitialised read's exception."""

        def make(position: int, cell: int, problem: str) -> SimulationError:
            offset = cell * self.granule % self.pitch
            kind, detail = (
                ("race", problem) if problem else ("uninitialised", "a read of what nobody has written")
            )
            return fault(kind, detail, position, self.start + offset, self._place(offset))

        return make

    def cells(self, offsets: Index, width: int) -> list[Index]:
        """Return the cells of each lane's access, one array for each cell of an element."""
        first = offsets // self.granule if self.granule > 1 else offsets
        return [first + k if k else first for k in range(width // self.granule)]

    def _place(self, offset: int) -> str:
        return self.name_at(offset - (1 << 32) if offset >> 31 else offset)

    def load(self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault) -> list[Array]:
        """Return ``count`` consecutive elements of type ``code`` from each lane's address."""
        size = np.dtype(code).itemsize
        offsets = self.offsets(lanes, address, size * count, fault)
        report = self.report(offsets, fault)
        for cells in self.cells(offsets, size * count):
            self.tracker.read(lanes, cells, report)
        data, first = self.view(code), offsets // size if size > 1 else offsets
        return [data.take(first + k if k else first) for k in range(count)]

    def store(self, lanes: Lanes, address: Array, code: str, values: list[Array], fault: Fault) -> None:
        """Write consecutive elements to each lane's address."""
        size = np.dtype(code).itemsize
        offsets = self.offsets(lanes, address, size * len(values), fault)
        report = self.report(offsets, fault)
        for cells in self.cells(offsets, size * len(values)):
            self.tracker.write(lanes, cells, report)
        data, first = self.view(code), offsets // size if size > 1 else offsets
        for k, value in enumerate(values):
            data[first + k if k else first] = value

    def atomic(self, lanes: Lanes, address: Array, code: str, fault: Fault) -> tuple[Array, Index]:
        """Check an atomic access; return the data and each lane's element in it."""
        size = np.dtype(code).itemsize
        offsets = self.offsets(lanes, address, size, fault)
        report = self.report(offsets, fault)
        for cells in self.cells(offsets, size):
            written = self.tracker.writer.take(cells)
            if not np.minimum.reduce(written):
                position = int(np.flatnonzero(written == 0)[0])
                raise report(position, int(cells[position]), "")
            self.tracker.write(lanes, cells, report, atomic=True)
        return self.view(code), offsets // size


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
            raise fault(
                "misaligned", f"an access of {width} bytes", position, *self.place(address, position, lanes)
            )
        number = int(address[0]) >> REGION_BITS
        buffer = self.buffers.get(number)
        if buffer is None:
            raise fault("out of bounds", "an address in no buffer", 0, int(address[0]))
        relative = (address - buffer.address[0]).view(np.int64)
        row: Array | int = 0
        within = relative
        if buffer.rows > 1:
            row, within = self._row(lanes, buffer, relative)
        bad = within.view(np.uint64) > np.uint64(max(buffer.row_bytes - width, 0))
        outside = np.maximum.reduce(within.view(np.uint64)) > max(buffer.row_bytes - width, 0)
        if buffer.rows > 1:
            bad |= (row < 0) | (row >= buffer.rows)
            outside = bool(bad.any())
        if outside or buffer.row_bytes < width:
            position = int(np.flatnonzero(bad | (buffer.row_bytes < width))[0])
            raise fault(
                "out of bounds",
                f"{width} bytes outside the buffer",
                position,
                *self.place(address, position, lanes),
            )
        launch_bytes = buffer.rows * buffer.row_bytes
        start = lanes.take(self.geometry.launch) * launch_bytes + within
        return buffer, start + row * buffer.row_bytes if buffer.rows > 1 else start

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

    def place(self, address: Array, position: int, lanes: Lanes) -> tuple[int, str | None]:
        """Return an address and the words for it: buffer, offset, and row if it has rows."""
        value = int(address[position])
        buffer = self.buffers.get(value >> REGION_BITS)
        if buffer is None:
            return value, None
        return value, f"{buffer.name}{value - int(buffer.address[0]):+d}"

    def by_buffer(self, lanes: Lanes, address: Array) -> list[Index] | None:
        """Return the positions in each buffer, or ``None`` if all lanes are in one."""
        number = address >> np.uint64(REGION_BITS)
        if np.minimum.reduce(number) == np.maximum.reduce(number):
            return None
        return [np.flatnonzero(number == n) for n in np.unique(number)]

    def _early(self, lanes: Lanes, buffer: Buffer, address: Array, fault: Fault, doing: str) -> None:
        waited = lanes.take(self.waited)
        if not waited.all():
            position = int(np.flatnonzero(~waited)[0])
            raise fault("before the wait", doing, position, *self.place(address, position, lanes))

    def _report(self, buffer: Buffer, address: Array, lanes: Lanes, fault: Fault) -> Report:
        def make(position: int, cell: int, problem: str) -> SimulationError:
            kind = "race" if problem else "uninitialised"
            detail = problem or "a read of an output that the kernel has not written"
            return fault(kind, detail, position, *self.place(address, position, lanes))

        return make

    def _cells(self, start: Index, width: int) -> list[Index]:
        first = start // self.granule if self.granule > 1 else start
        return [first + k if k else first for k in range(width // self.granule)]

    def load(self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault) -> list[Array]:
        """Return ``count`` consecutive elements of type ``code`` from each lane's address."""
        parts = self.by_buffer(lanes, address)
        if parts is not None:
            whole = [np.empty(lanes.n, code) for _ in range(count)]
            for positions in parts:
                sub = Lanes(self.geometry, lanes.index.take(positions), 1)
                got = self.load(sub, address.take(positions), code, count, _shifted(fault, positions))
                for full, part in zip(whole, got, strict=True):
                    full[positions] = part
            return whole
        size = np.dtype(code).itemsize
        buffer, start = self.find(lanes, address, size * count, fault)
        if buffer.dependent and not self.all_waited:
            self._early(lanes, buffer, address, fault, "a read of what an earlier kernel writes")
        if buffer.writable:
            for cells in self._cells(start, size * count):
                self.trackers[buffer.number].read(lanes, cells, self._report(buffer, address, lanes, fault))
        data = buffer.view(code)
        if data is None or (size > 1 and int(np.bitwise_or.reduce(start)) & (size - 1)):
            octets = buffer.view("u1")
            assert octets is not None
            return [
                octets.take((start + k * size)[:, None] + np.arange(size)).view(code).reshape(-1)
                for k in range(count)
            ]
        first = start // size if size > 1 else start
        return [data.take(first + k if k else first) for k in range(count)]

    def store(self, lanes: Lanes, address: Array, code: str, values: list[Array], fault: Fault) -> None:
        """Write consecutive elements to each lane's address."""
        parts = self.by_buffer(lanes, address)
        if parts is not None:
            for positions in parts:
                sub = Lanes(self.geometry, lanes.index.take(positions), 1)
                self.store(
                    sub,
                    address.take(positions),
                    code,
                    [v if v.ndim == 0 else v.take(positions) for v in values],
                    _shifted(fault, positions),
                )
            return
        size = np.dtype(code).itemsize
        buffer, start = self.check_store(lanes, address, size * len(values), fault)
        for cells in self._cells(start, size * len(values)):
            self.trackers[buffer.number].write(lanes, cells, self._report(buffer, address, lanes, fault))
        data = buffer.view(code)
        if data is None or (size > 1 and int(np.bitwise_or.reduce(start)) & (size - 1)):
            octets = buffer.view("u1")
            assert octets is not None
            for k, value in enumerate(values):
                spread = (
                    np.ascontiguousarray(np.broadcast_to(value, start.shape)).view(np.uint8).reshape(-1, size)
                )
                octets[(start + k * size)[:, None] + np.arange(size)] = spread
            return
        first = start // size if size > 1 else start
        for k, value in enumerate(values):
            data[first + k if k else first] = value

    def check_store(self, lanes: Lanes, address: Array, width: int, fault: Fault) -> tuple[Buffer, Index]:
        """Find the buffer of a store, and see that it may be written now."""
        if not self.all_waited:
            waited = lanes.take(self.waited)
            if not waited.all():
                position = int(np.flatnonzero(~waited)[0])
                raise fault(
                    "before the wait", "a global store", position, *self.place(address, position, lanes)
                )
        buffer, start = self.find(lanes, address, width, fault)
        if not buffer.writable:
            raise fault("read-only", "a write to an input", 0, *self.place(address, 0, lanes))
        return buffer, start

    def atomic(self, lanes: Lanes, address: Array, code: str, fault: Fault) -> tuple[Array, Index]:
        """Check an atomic access; return the data and each lane's element in it."""
        size = np.dtype(code).itemsize
        buffer, start = self.check_store(lanes, address, size, fault)
        report = self._report(buffer, address, lanes, fault)
        for cells in self._cells(start, size):
            written = self.trackers[buffer.number].writer.take(cells)
            if not np.minimum.reduce(written):
                raise report(int(np.flatnonzero(written == 0)[0]), 0, "")
            self.trackers[buffer.number].write(lanes, cells, report, atomic=True)
        data = buffer.view(code)
        if data is None:
            raise fault("misaligned", "an atomic on a buffer of other elements", 0, int(address[0]))
        return data, start // size


def _shifted(fault: Fault, positions: Index) -> Fault:
    """Translate positions of a part of the lanes back."""

    def make(
        kind: str, detail: str, position: int, address: int | None = None, buffer: str | None = None
    ) -> SimulationError:
        return fault(kind, detail, int(positions[position]), address, buffer)

    return make
