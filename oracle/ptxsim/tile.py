"""The state of one tile of launches, and its loads and stores as generated code calls them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault, Global
from oracle.ptxsim.atomics import accumulate, exchange
from oracle.ptxsim.clocks import Clocks
from oracle.ptxsim.cluster_clocks import ClusterClocks
from oracle.ptxsim.distant import DistantShared
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import WARP, Geometry, Index
from oracle.ptxsim.lanes import Lanes
from oracle.ptxsim.local import Local
from oracle.ptxsim.memory import REGION_BITS, Buffer
from oracle.ptxsim.orders import Order
from oracle.ptxsim.program import WINDOWS, Program
from oracle.ptxsim.shared import Shared

Array = npt.NDArray[Any]


class Tile:
    """One tile: its memory and barriers, and the memory operations.

    Parameters
    ----------
    program, geometry
        What runs, and how many lanes of it.
    order
        Who goes first.
    buffers
        Global memory of these launches.
    params
        uint8 ``[launches, bytes]``, laid out as the program's parameters.
    dynamic_shared
        Bytes of dynamic shared memory.
    first_launch
        The number of the first launch, for messages.
    """

    def __init__(
        self,
        program: Program,
        geometry: Geometry,
        order: Order,
        buffers: list[Buffer],
        params: npt.NDArray[np.uint8],
        dynamic_shared: int,
        first_launch: int,
    ) -> None:
        self.program = program
        self.geometry = geometry
        self.order = order
        self.first_launch = first_launch
        self.params = params
        self.clocks = ClusterClocks(geometry) if program.clustered else Clocks(geometry)
        self.shared = (DistantShared if program.clustered else Shared)(
            self.clocks,
            program.shared_bytes(dynamic_shared),
            program.shared_start,
            program.granules["shared"],
            program.shared_name,
            program.shared_gaps(),
        )
        self.memory = Global(self.clocks, buffers, program.granules["global"])
        self.local = Local(geometry, program.local_bytes)

    # Errors.

    def error(
        self,
        kind: str,
        detail: str,
        index: int,
        lane: int,
        address: int | None = None,
        buffer: str | None = None,
    ) -> SimulationError:
        """Return the exception for a lane at instruction ``index``."""
        code = self.program.code
        instruction = code[min(index, len(code) - 1)]
        return SimulationError(
            kind,
            detail,
            launch=self.first_launch + int(self.geometry.launch[lane]),
            thread=self.geometry.thread_in_grid(lane),
            address=address,
            buffer=buffer,
            line=instruction.line,
            text=instruction.text,
            source=instruction.source,
        )

    def _fault(self, index: int, lanes: Lanes) -> Fault:
        def fault(
            kind: str, detail: str, position: int, address: int | None = None, buffer: str | None = None
        ) -> SimulationError:
            return self.error(kind, detail, index, int(lanes.index[position]), address, buffer)

        return fault

    # Memory.

    def _narrow(self, lanes: Lanes, address: Array, offset: int) -> Array:
        address = lanes.pick(address)
        return address + np.uint32(offset & 0xFFFFFFFF) if offset else address

    def _broad(self, lanes: Lanes, address: Array, offset: int) -> Array:
        address = lanes.pick(address)
        return address + np.uint64(offset & (1 << 64) - 1) if offset else address

    def load_shared(
        self,
        index: int,
        lanes: Lanes,
        address: Array,
        offset: int,
        code: str,
        count: int,
        steady: bool = False,
    ) -> list[Array]:
        """``ld.shared``; ``steady`` if the addresses are the same in every tile of a shape."""
        if not lanes.n:
            return [np.empty(0, code)] * count
        return self.shared.load(
            lanes,
            self._narrow(lanes, address, offset),
            code,
            count,
            self._fault(index, lanes),
            index if steady else None,
        )

    def store_shared(
        self,
        index: int,
        lanes: Lanes,
        address: Array,
        offset: int,
        code: str,
        values: tuple[Array, ...],
        steady: bool = False,
    ) -> None:
        """``st.shared``; ``steady`` as for `load_shared`."""
        if lanes.n:
            self.shared.store(
                lanes,
                self._narrow(lanes, address, offset),
                code,
                [lanes.pick(v) for v in values],
                self._fault(index, lanes),
                index if steady else None,
            )

    def load_global(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, count: int
    ) -> list[Array]:
        """``ld.global``."""
        if not lanes.n:
            return [np.empty(0, code)] * count
        return self.memory.load(
            lanes, self._broad(lanes, address, offset), code, count, self._fault(index, lanes)
        )

    def store_global(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, values: tuple[Array, ...]
    ) -> None:
        """``st.global``."""
        if lanes.n:
            self.memory.store(
                lanes,
                self._broad(lanes, address, offset),
                code,
                [lanes.pick(v) for v in values],
                self._fault(index, lanes),
            )

    def load_local(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, count: int
    ) -> list[Array]:
        """``ld.local``."""
        return self.local.load(
            lanes, self._broad(lanes, address, offset), code, count, self._fault(index, lanes)
        )

    def store_local(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, values: tuple[Array, ...]
    ) -> None:
        """``st.local``."""
        self.local.store(
            lanes,
            self._broad(lanes, address, offset),
            code,
            [lanes.pick(v) for v in values],
            self._fault(index, lanes),
        )

    def _spaces(self, lanes: Lanes, address: Array) -> list[tuple[str, Lanes, Index, Array]]:
        """Split generic addresses by state space: space, lanes, positions, addresses in the space."""
        region = address >> np.uint64(REGION_BITS)
        found = []
        windows = {WINDOWS[space] >> REGION_BITS: space for space in ("shared", "local")}
        if self.program.clustered:
            windows[WINDOWS["shared"] >> REGION_BITS] = "cluster"
        place = np.where(np.isin(region, list(windows)), region, 0)
        for number in np.unique(place):
            positions = np.flatnonzero(place == number)
            space = windows.get(int(number), "global")
            part = address.take(positions) - np.uint64(int(number) << REGION_BITS)
            found.append((space, Lanes(self.geometry, lanes.index.take(positions), 1), positions, part))
        return found

    def load_generic(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, count: int
    ) -> list[Array]:
        """``ld`` without a state space."""
        whole = [np.empty(lanes.n, code) for _ in range(count)]
        for space, sub, positions, part in self._spaces(lanes, self._broad(lanes, address, offset)):
            place = part.astype(np.uint32) if space in ("shared", "cluster") else part
            for full, values in zip(
                whole, getattr(self, f"load_{space}")(index, sub, place, 0, code, count), strict=True
            ):
                full[positions] = values
        return whole

    def store_generic(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, values: tuple[Array, ...]
    ) -> None:
        """``st`` without a state space."""
        picked = [lanes.pick(v) for v in values]
        for space, sub, positions, part in self._spaces(lanes, self._broad(lanes, address, offset)):
            place = part.astype(np.uint32) if space in ("shared", "cluster") else part
            parts = tuple(v if v.ndim == 0 else v.take(positions) for v in picked)
            getattr(self, f"store_{space}")(index, sub, place, 0, code, parts)

    def _atomic_parts(
        self, index: int, lanes: Lanes, space: str, address: Array, offset: int, code: str
    ) -> Iterator[tuple[Array, Index, Index]]:
        """Check an atomic access; yield, for each piece of memory, its data, and cells and lanes by turns."""
        if space == "generic":
            split = self._spaces(lanes, self._broad(lanes, address, offset))
        else:
            narrow = space in ("shared", "cluster")
            place = (self._narrow if narrow else self._broad)(lanes, address, offset)
            split = [(space, lanes, np.arange(lanes.n), place)]
        for found, sub, positions, part in split:
            fault = self._fault(index, sub)
            if found == "local":
                raise fault("out of bounds", "an atomic on local memory", 0)
            if isinstance(self.shared, DistantShared) and found == "cluster":
                data, cells = self.shared.atomic_distant(sub, part.astype(np.uint32), code, fault)
            elif found == "shared":
                data, cells = self.shared.atomic(sub, part.astype(np.uint32), code, fault)
            else:
                data, cells = self.memory.atomic(sub, part, code, fault)
            turns = self.order.turns(sub.index)
            yield (data, cells, positions) if turns is None else (data, cells[turns], positions[turns])

    def atomic(
        self,
        index: int,
        lanes: Lanes,
        space: str,
        name: str,
        address: Array,
        offset: int,
        code: str,
        values: tuple[Array, ...],
    ) -> Array:
        """``atom``: one lane after the other; the values before."""
        before = np.empty(lanes.n, code)
        operands = [np.broadcast_to(lanes.pick(v), lanes.n) for v in values]
        if lanes.n:
            for data, cells, positions in self._atomic_parts(index, lanes, space, address, offset, code):
                before[positions] = exchange(name, data, cells, [v[positions] for v in operands])
        return before

    def reduction(
        self,
        index: int,
        lanes: Lanes,
        space: str,
        name: str,
        address: Array,
        offset: int,
        code: str,
        values: tuple[Array, ...],
    ) -> None:
        """``red``: as `atomic`, with nothing to return."""
        value = np.broadcast_to(lanes.pick(values[0]), lanes.n)
        if lanes.n:
            for data, cells, positions in self._atomic_parts(index, lanes, space, address, offset, code):
                accumulate(name, data, cells, value[positions])

    def load_matrix(
        self, index: int, lanes: Lanes, address: Array, offset: int, count: int, trans: bool
    ) -> list[Array]:
        """``ldmatrix``: every lane reads its own elements from the rows that the lanes point to."""
        result = []
        for rows in self._matrix_rows(index, lanes, address, offset, count, trans):
            parts = [self.load_shared(index, lanes, row, 0, "u2" if trans else "u4", 1)[0] for row in rows]
            result.append(
                parts[0]
                if not trans
                else parts[0].astype(np.uint32) | (parts[1].astype(np.uint32) << np.uint32(16))
            )
        return result

    def store_matrix(
        self, index: int, lanes: Lanes, address: Array, offset: int, values: tuple[Array, ...], trans: bool
    ) -> None:
        """``stmatrix``."""
        for value, rows in zip(
            values, self._matrix_rows(index, lanes, address, offset, len(values), trans), strict=True
        ):
            if trans:
                for half, row in enumerate(rows):
                    part = (value >> np.uint32(16 * half)).astype(np.uint16)
                    self.store_shared(index, lanes, row, 0, "u2", (part,))
            else:
                self.store_shared(index, lanes, rows[0], 0, "u4", (value,))

    def _matrix_rows(
        self, index: int, lanes: Lanes, address: Array, offset: int, count: int, trans: bool
    ) -> list[list[Array]]:
        """Return, for each matrix, the addresses of each lane's one word, or two halves if transposed."""
        rows = self._narrow(lanes, address, offset).reshape(-1, WARP)
        used = rows[:, : 8 * count]
        if int(np.bitwise_or.reduce(used, axis=None)) & 15:
            position = int(np.flatnonzero((rows & np.uint32(15)) * (np.arange(WARP) < 8 * count))[0])
            at = int(rows.reshape(-1)[position])
            place = self.program.shared_name(at - self.program.shared_start)
            raise self._fault(index, lanes)("misaligned", "a matrix row of 16 bytes", position, at, place)
        lane = np.arange(WARP)
        result = []
        for matrix in range(count):
            if trans:
                picks = [(8 * matrix + lane % 4 * 2 + half, lane // 4 * 2) for half in (0, 1)]
            else:
                picks = [(8 * matrix + lane // 4, lane % 4 * 4)]
            result.append(
                [(rows.take(row, axis=1) + column.astype(np.uint32)).reshape(-1) for row, column in picks]
            )
        return result
