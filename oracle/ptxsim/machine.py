"""The state of one tile of launches while it runs, and everything generated code asks of it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault, Global, Shared
from oracle.ptxsim.atomics import accumulate, exchange
from oracle.ptxsim.collective import OutsideMaskError
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.lanes import LANES, WARP, Geometry, Index, Lanes, lanes_of
from oracle.ptxsim.local import Local
from oracle.ptxsim.memory import REGION_BITS, Buffer
from oracle.ptxsim.program import SHARED_START, WINDOWS, Program
from oracle.ptxsim.races import Clocks

Array = npt.NDArray[Any]
Collective = Callable[..., tuple[Array, ...]]


class CtaLanes:
    """Stands for the lanes in code that is computed once for every CTA."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.n = geometry.ctas

    def special(self, name: str) -> Array:
        """Return a special register that is the same for all lanes of a CTA."""
        first = np.arange(self.n, dtype=np.intp) * self.geometry.pitch
        return self.geometry.special(name[1:], first)

    def launches(self) -> Array:
        """Return the launch of every CTA."""
        return np.arange(self.n) // self.geometry.ctas_per_launch


class Machine:
    """One tile: memory, barriers, and the operations that generated code calls.

    Parameters
    ----------
    program, geometry
        What runs, and how many lanes of it.
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
        buffers: list[Buffer],
        params: npt.NDArray[np.uint8],
        dynamic_shared: int,
        first_launch: int,
    ) -> None:
        self.program = program
        self.geometry = geometry
        self.first_launch = first_launch
        self.params = params
        self.clocks = Clocks(geometry)
        self.shared = Shared(
            self.clocks,
            program.shared_bytes(dynamic_shared),
            SHARED_START,
            program.granules["shared"],
            program.shared_name,
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

    # Parameters.

    def parameter(self, index: int, lanes: Lanes | CtaLanes, offset: int, code: str) -> Array:
        """Return the parameter bytes at a fixed offset, for each lane or CTA."""
        size = np.dtype(code).itemsize
        if not 0 <= offset <= self.params.shape[1] - size:
            raise self.error("out of bounds", f"{size} bytes at parameter offset {offset}", index, 0)
        values = np.ascontiguousarray(self.params[:, offset : offset + size]).view(code).reshape(-1)
        launches = lanes.launches() if isinstance(lanes, CtaLanes) else lanes.take(self.geometry.launch)
        return values.take(launches)

    def load_param(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, count: int
    ) -> list[Array]:
        """Load from the parameters at computed offsets."""
        offsets = (lanes.pick(address) + np.uint64(offset & (1 << 64) - 1)).view(np.int64)
        size = np.dtype(code).itemsize
        outside = (offsets < 0) | (offsets > self.params.shape[1] - size * count)
        if outside.any():
            position = int(np.flatnonzero(outside)[0])
            raise self.error(
                "out of bounds",
                "a parameter offset",
                index,
                int(lanes.index[position]),
                int(offsets[position]),
            )
        launch = self.geometry.launch[lanes.index]
        octets = [(offsets + k * size)[:, None] + np.arange(size) for k in range(count)]
        return [self.params[launch[:, None], at].view(code).reshape(-1) for at in octets]

    # Memory.

    def _narrow(self, lanes: Lanes, address: Array, offset: int) -> Array:
        address = lanes.pick(address)
        return address + np.uint32(offset & 0xFFFFFFFF) if offset else address

    def _broad(self, lanes: Lanes, address: Array, offset: int) -> Array:
        address = lanes.pick(address)
        return address + np.uint64(offset & (1 << 64) - 1) if offset else address

    def load_shared(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, count: int
    ) -> list[Array]:
        """``ld.shared``."""
        if not lanes.n:
            return [np.empty(0, code)] * count
        return self.shared.load(
            lanes, self._narrow(lanes, address, offset), code, count, self._fault(index, lanes)
        )

    def store_shared(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, values: tuple[Array, ...]
    ) -> None:
        """``st.shared``."""
        if lanes.n:
            self.shared.store(
                lanes,
                self._narrow(lanes, address, offset),
                code,
                [lanes.pick(v) for v in values],
                self._fault(index, lanes),
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
        place = np.where(np.isin(region, list(windows)), region, 0)
        for number in np.unique(place):
            positions = np.flatnonzero(place == number)
            space = windows.get(int(number), "global")
            part = address.take(positions) - np.uint64(WINDOWS[space])
            found.append((space, Lanes(self.geometry, lanes.index.take(positions), 1), positions, part))
        return found

    def load_generic(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, count: int
    ) -> list[Array]:
        """``ld`` without a state space."""
        whole = [np.empty(lanes.n, code) for _ in range(count)]
        for space, sub, positions, part in self._spaces(lanes, self._broad(lanes, address, offset)):
            place = part.astype(np.uint32) if space == "shared" else part
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
            place = part.astype(np.uint32) if space == "shared" else part
            parts = tuple(v if v.ndim == 0 else v.take(positions) for v in picked)
            getattr(self, f"store_{space}")(index, sub, place, 0, code, parts)

    def _atomic_parts(
        self, index: int, lanes: Lanes, space: str, address: Array, offset: int, code: str
    ) -> Iterator[tuple[Array, Index, Index]]:
        """Check an atomic access; yield data, cells and lanes' positions for each piece of memory."""
        if space == "generic":
            split = self._spaces(lanes, self._broad(lanes, address, offset))
        else:
            place = (self._narrow if space == "shared" else self._broad)(lanes, address, offset)
            split = [(space, lanes, np.arange(lanes.n), place)]
        for found, sub, positions, part in split:
            fault = self._fault(index, sub)
            if found == "local":
                raise fault("out of bounds", "an atomic on local memory", 0)
            data, cells = (
                self.shared.atomic(sub, part.astype(np.uint32), code, fault)
                if found == "shared"
                else self.memory.atomic(sub, part, code, fault)
            )
            yield data, cells, positions

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
        """``atom``: one lane after the other, in lane order; the values before."""
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
            raise self._fault(index, lanes)(
                "misaligned", "a matrix row of 16 bytes", position, int(rows.reshape(-1)[position])
            )
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

    # What lanes do together.

    def together(
        self, index: int, lanes: Lanes, members: Array | None, function: Collective, *operands: Array
    ) -> list[Array]:
        """Call a function of `collective` on the lanes' operands, and return its results for the lanes."""
        if members is None or (lanes.level > LANES and (members == 0xFFFFFFFF).all()):
            whole = [v if v.ndim == 0 else v.reshape(-1, WARP) for v in operands]
            return [result.reshape(-1) for result in function(*whole, None)]
        place = lanes.index
        warps, row = np.unique(place // WARP, return_inverse=True)
        flat = row * WARP + place % WARP
        spread = [
            v if v.ndim == 0 else _scatter(v, flat, len(warps))
            for v in (*operands, np.broadcast_to(members, lanes.n))
        ]
        try:
            results = function(*spread)
        except OutsideMaskError as problem:
            position = int(np.flatnonzero(flat == problem.args[0])[0])
            raise self.error(
                "member mask",
                "a lane reads a lane that is not in its member mask",
                index,
                int(place[position]),
            ) from None
        return [np.ascontiguousarray(result).reshape(-1).take(flat) for result in results]

    def warp_barrier(self, lanes: Lanes, members: Array | None) -> None:
        """``bar.warp.sync``: it orders memory where the whole warp takes part."""
        if members is not None:
            full = np.broadcast_to(members, lanes.n) == 0xFFFFFFFF
            lanes = lanes_of(self.geometry, lanes.index[full])
        if lanes.n:
            self.clocks.warp_barrier(lanes)

    def barrier_of_all(self, index: int, lanes: Lanes, number: int) -> None:
        """``bar.sync`` reached by all threads of whole CTAs at once."""
        self.clocks.barrier(lanes, full=True)
        if lanes.rows is None:
            self.shared.tracker.barrier_of_all()
            for tracker in self.memory.trackers.values():
                tracker.barrier_of_all()

    def active_mask(self, lanes: Lanes) -> Array:
        """``activemask``."""
        present = np.zeros(self.geometry.size, np.bool_)
        present[lanes.index] = True
        packed = np.packbits(present.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32).reshape(-1)
        return packed.take(lanes.index // WARP)

    # The rest.

    def wait(self, lanes: Lanes) -> None:
        """``griddepcontrol.wait``."""
        if lanes.n:
            self.memory.wait(lanes)

    def trap(self, index: int, lanes: Lanes) -> None:
        """``trap``."""
        if lanes.n:
            raise self.error("trap", "the kernel stopped itself", index, int(lanes.index[0]))

    def divisor(self, index: int, lanes: Lanes, value: Array, guard: Array | None) -> Array:
        """Return a divisor that is zero nowhere; where the guard does not hold, 1 stands for a zero."""
        zero = np.broadcast_to(value == 0, lanes.n)
        if not zero.any():
            return value
        if guard is not None:
            zero = zero & guard
        if zero.any():
            position = int(np.flatnonzero(zero)[0])
            raise self.error(
                "division by zero", "PTX leaves the result open", index, int(lanes.index[position])
            )
        return np.where(value == 0, value.dtype.type(1), value)


def _scatter(values: Array, flat: Index, warps: int) -> Array:
    spread = np.zeros(warps * WARP, values.dtype)
    spread[flat] = values
    return spread.reshape(-1, WARP)
