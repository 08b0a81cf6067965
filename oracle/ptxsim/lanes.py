"""Which threads run: a set of lanes, and how their part of a full-width array is taken and put back."""

from collections.abc import Callable

import numpy as np

from oracle.ptxsim.geometry import WARP, Array, Geometry, Index

LANES, WARPS, CTAS = 0, 1, 2
"""What a `Lanes` is made of: single lanes, whole warps, whole CTAs."""


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
