"""Everything that generated code asks of a tile, beyond its memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.asynchronous import Asynchronous
from oracle.ptxsim.collective import OutsideMaskError
from oracle.ptxsim.geometry import WARP, Geometry, Index
from oracle.ptxsim.lanes import LANES, Lanes, lanes_of

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


class Machine(Asynchronous):
    """A tile with parameters, what lanes do together, and the rest."""

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

    # What lanes do together.

    def together(
        self,
        index: int,
        lanes: Lanes,
        members: Array | None,
        function: Collective,
        wanted: int,
        *operands: Array,
    ) -> list[Array]:
        """Call a function of `collective` on the lanes' operands; return its first ``wanted`` results."""
        if members is None or (lanes.level > LANES and (members == 0xFFFFFFFF).all()):
            whole = [v if v.ndim == 0 else v.reshape(-1, WARP) for v in operands]
            return [result.reshape(-1) for result in function(*whole, None)[:wanted]]
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
        return [np.ascontiguousarray(result).reshape(-1).take(flat) for result in results[:wanted]]

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
