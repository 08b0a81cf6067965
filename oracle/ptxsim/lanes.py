"""Which threads run: a set of lanes, and how their part of a full-width array is taken and put back.

A tile is some launches side by side; each CTA takes ``pitch`` lanes (its threads, rounded up to whole warps).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Index = npt.NDArray[np.intp]

WARP = 32

LANES, WARPS, CTAS = 0, 1, 2
"""What a `Lanes` is made of: single lanes, whole warps, whole CTAs."""


@dataclass(frozen=True)
class Geometry:
    """The shape of a tile: launches, CTAs of each, threads of each CTA; also as arrays over lanes."""

    launches: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    ctas_per_launch: int = field(init=False)
    threads: int = field(init=False)
    pitch: int = field(init=False)

    def __post_init__(self) -> None:
        threads = self.block[0] * self.block[1] * self.block[2]
        object.__setattr__(self, "ctas_per_launch", self.grid[0] * self.grid[1] * self.grid[2])
        object.__setattr__(self, "threads", threads)
        object.__setattr__(self, "pitch", -(-threads // WARP) * WARP)

    @property
    def ctas(self) -> int:
        """CTAs of the tile."""
        return self.launches * self.ctas_per_launch

    @property
    def size(self) -> int:
        """Lanes of the tile."""
        return self.ctas * self.pitch

    @property
    def whole(self) -> bool:
        """Whether every lane is a thread."""
        return self.pitch == self.threads

    @cached_property
    def lane(self) -> Index:
        """0..size-1."""
        return np.arange(self.size, dtype=np.intp)

    @cached_property
    def cta(self) -> Index:
        """The CTA of each lane, in the tile."""
        return self.lane // self.pitch

    @cached_property
    def launch(self) -> Index:
        """The launch of each lane, in the tile."""
        return self.lane // (self.pitch * self.ctas_per_launch)

    @cached_property
    def thread(self) -> Index:
        """The thread of each lane in its launch: CTA times pitch, plus the thread in the CTA."""
        return self.lane % (self.pitch * self.ctas_per_launch)

    @cached_property
    def exists(self) -> Array:
        """Whether each lane is a thread: False for the padding of the last warp."""
        return self.lane % self.pitch < self.threads

    def thread_in_grid(self, lane: int) -> int:
        """Return a lane's thread in its launch, without padding: CTA times block size, plus thread."""
        cta, thread = divmod(int(self.thread[lane]), self.pitch)
        return cta * self.threads + thread

    def special(self, name: str, lane: Index) -> npt.NDArray[np.uint32]:
        """Return special register ``name`` (without ``%``) of the given lanes."""
        base, _, axis = name.partition(".")
        thread = lane % self.pitch
        block = lane // self.pitch % self.ctas_per_launch
        if base in ("tid", "ctaid"):
            number, extent = (thread, self.block) if base == "tid" else (block, self.grid)
            parts = {
                "x": number % extent[0],
                "y": number // extent[0] % extent[1],
                "z": number // (extent[0] * extent[1]),
            }
            return parts[axis].astype(np.uint32)
        if base in ("ntid", "nctaid"):
            return np.full(
                lane.shape, (self.block if base == "ntid" else self.grid)["xyz".index(axis)], np.uint32
            )
        within = (thread % WARP).astype(np.uint32)
        one = np.uint32(1) << within
        return {
            "laneid": within,
            "warpid": (thread // WARP).astype(np.uint32),
            "nwarpid": np.full(lane.shape, self.pitch // WARP, np.uint32),
            "lanemask_eq": one,
            "lanemask_lt": one - np.uint32(1),
            "lanemask_le": one | (one - np.uint32(1)),
            "lanemask_gt": ~(one | (one - np.uint32(1))),
            "lanemask_ge": ~(one - np.uint32(1)),
        }[base]


@lru_cache(maxsize=16)
def geometry_of(launches: int, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Geometry:
    """Return the one geometry of a shape: its arrays are worth keeping between tiles."""
    return Geometry(launches, grid, block)


class Lanes:
    """A set of lanes in ascending order.

    Parameters
    ----------
    geometry
        The tile.
    rows, unit
        Row numbers, each a run of ``unit`` lanes (1, 32 or the pitch); ``rows=None`` is every lane.
    within
        For the lanes of a group where a guard holds: their positions in the group; ``None`` if all.
    """

    __slots__ = ("_index", "geometry", "level", "n", "put", "rows", "take", "unit", "within")

    take: Callable[[Array], Array]
    put: Callable[[Array, Array], Array]

    def __init__(
        self, geometry: Geometry, rows: Index | None, unit: int, within: Index | None = None
    ) -> None:
        self.geometry = geometry
        self.rows = rows
        self.unit = unit
        self.within = within
        self._index: Index | None = None
        if rows is None:
            self.n, self.level = geometry.size, CTAS
            self.take, self.put = _same, _replace
            return
        self.n = len(rows) * unit
        self.level = LANES if unit == 1 else CTAS if unit == geometry.pitch else WARPS
        if unit == 1:
            self.take, self.put = self._take_lanes, self._put_lanes
        else:
            self.take, self.put = self._take_rows, self._put_rows

    @property
    def index(self) -> Index:
        """The lane numbers."""
        if self._index is None:
            if self.rows is None:
                self._index = self.geometry.lane
            elif self.unit == 1:
                self._index = self.rows
            else:
                self._index = (self.rows[:, None] * self.unit + np.arange(self.unit)).reshape(-1)
        return self._index

    def _take_lanes(self, full: Array) -> Array:
        return full.take(self.rows)  # type: ignore[arg-type]

    def _put_lanes(self, full: Array, part: Array) -> Array:
        changed = full.copy()
        changed[self.rows] = part
        return changed

    def _take_rows(self, full: Array) -> Array:
        return full.reshape(-1, self.unit).take(self.rows, axis=0).reshape(-1)  # type: ignore[arg-type]

    def _put_rows(self, full: Array, part: Array) -> Array:
        changed = full.copy()
        changed.reshape(-1, self.unit)[self.rows] = part.reshape(-1, self.unit)
        return changed

    def guarded(self, condition: Array) -> "Lanes":
        """Return the lanes where ``condition`` (over this group) holds."""
        held = np.count_nonzero(condition)
        if held == self.n:
            return self
        positions = np.flatnonzero(condition)
        return Lanes(self.geometry, self.index.take(positions), 1, positions)

    def pick(self, values: Array) -> Array:
        """Return the values, over the group, of the lanes where the guard holds; a scalar stays."""
        return values if self.within is None or values.ndim == 0 else values.take(self.within)

    def merge(self, old: Array, new: Array) -> Array:
        """Return ``old``, over the group, with ``new`` where the guard holds."""
        if self.within is None:
            return new
        changed = old.copy()
        changed[self.within] = new
        return changed

    def special(self, name: str) -> Array:
        """Return a special register of these lanes."""
        return self.geometry.special(name[1:], self.index)


def _same(full: Array) -> Array:
    return full


def _replace(full: Array, part: Array) -> Array:
    return part


def lanes_of(geometry: Geometry, index: Index) -> Lanes:
    """Return the given ascending lanes in their coarsest form: all, whole CTAs, whole warps, or lanes."""
    count = len(index)
    if count == geometry.size:
        return Lanes(geometry, None, geometry.pitch)
    if count % WARP == 0 and count:
        first = index[::WARP]
        if not (first % WARP).any() and np.array_equal(index[WARP - 1 :: WARP], first + (WARP - 1)):
            pitch = geometry.pitch
            if count % pitch == 0:
                start = index[::pitch]
                if not (start % pitch).any() and np.array_equal(
                    index[pitch - 1 :: pitch], start + (pitch - 1)
                ):
                    return Lanes(geometry, start // pitch, pitch)
            return Lanes(geometry, first // WARP, WARP)
    return Lanes(geometry, index, 1)
