"""The order of threads: one canonical, the others drawn from a schedule's number.

Between two rendezvous the threads of a launch may run in any order; a rendezvous is a barrier, or what a warp
does together. Schedule 0 keeps all threads in step. Any other draws, the same for every launch,

- a priority of one of a few for each thread (even schedules), or each warp (odd ones): the most urgent run
  until they wait for others, then the next;
- the order in which lanes of one atomic instruction have their turn;
- whose asynchronous stores arrive late;
- what is in registers that nobody has written.

No correct kernel notices any of it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.geometry import WARP, Geometry, Index

PRIORITIES: Final = 3


@dataclass(frozen=True, eq=False)
class Order:
    """One order for a tile's shape.

    priority
        int64 per lane: who goes first; ``None`` in the canonical order.
    turn
        intp per lane: whose turn is earlier in an atomic; ``None``: in lane order.
    late
        bool per lane: whose asynchronous stores arrive as late as they can, and whose first ``try_wait`` of a
        phase may fail; ``None``: nobody's.
    fill
        The byte that registers hold at the start.
    """

    priority: npt.NDArray[np.int64] | None
    turn: Index | None
    late: npt.NDArray[np.bool_] | None
    fill: int

    def blank(self, size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return a register of ``size`` lanes that nobody has written."""
        if dtype == np.bool_:
            return np.full(size, self.fill != 0)
        return np.full(size * dtype.itemsize, self.fill, np.uint8).view(dtype)

    def turns(self, lanes: Index) -> Index | None:
        """Return the positions of ``lanes`` in the order of their turns; ``None``: as they stand."""
        return None if self.turn is None else np.argsort(self.turn[lanes], kind="stable")


@lru_cache(maxsize=16)
def order_of(geometry: Geometry, schedule: int) -> Order:
    """Return the order of a schedule, 0 or more."""
    if schedule == 0:
        return Order(None, None, None, 0)
    draw = np.random.default_rng(schedule)
    lanes = geometry.pitch * geometry.ctas_per_launch
    unit = WARP if schedule % 2 else 1
    priority = draw.integers(0, PRIORITIES, lanes // unit).repeat(unit)
    turn, fill = draw.permutation(lanes), int(draw.integers(1, 256))
    late = draw.integers(0, 2, lanes) == 1
    priority, turn, late = (np.tile(drawn, geometry.launches) for drawn in (priority, turn, late))
    return Order(priority, turn, late, fill)
