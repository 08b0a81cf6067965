"""Which threads run: a set of lanes, and how their part of a full-width array is taken and put back."""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.geometry import WARP, Array, Geometry, Index

LANES, WARPS, CTAS = 0, 1, 2
"""What a `Lanes` is made of: single lanes, whole warps, whole CTAs."""

_MOST_LASTING: Final = 64

Result = TypeVar("Result")
Halves = tuple["Lanes | None", "Lanes | None"]


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

    Attributes
    ----------
    source, positions
        The group that these lanes parted from, and their positions in it, where that is known.
    kept
        What never changes for a group that comes again with every tile, by name; ``None`` for another group.
    """

    __slots__ = (
        "__weakref__",
        "_index",
        "geometry",
        "kept",
        "level",
        "n",
        "positions",
        "put",
        "rows",
        "source",
        "take",
        "unit",
        "within",
    )

    take: Callable[[Array], Array]
    put: Callable[[Array, Array], Array]

    def __init__(
        self, geometry: Geometry, rows: Index | None, unit: int, within: Index | None = None
    ) -> None:
        self.geometry = geometry
        self.rows = rows
        self.unit = unit
        self.within = within
        self.source: ReferenceType[Lanes] | None = None
        self.positions: Index | None = None
        self.kept: dict[Hashable, Any] | None = None
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

    def once(self, name: Hashable, make: Callable[[], Result]) -> Result:
        """Return what ``make`` gives for these lanes, whatever the tile: made once if the group lasts."""
        if self.kept is None:
            return make()
        if name not in self.kept:
            self.kept[name] = make()
        found: Result = self.kept[name]
        return found

    def split(self, condition: Array, name: Hashable = None) -> Halves:
        """Return the lanes where ``condition`` (over this group) holds, and the others; ``None`` for nobody.

        With a ``name``, the condition is the same whatever the tile.
        """
        if name is None:
            return self._halves(condition, lasting=False)
        return self.once(("split", name), lambda: self._halves(condition, lasting=self.kept is not None))

    def _halves(self, condition: Array, lasting: bool) -> Halves:
        held = np.count_nonzero(condition)
        if held in (0, self.n):
            return (self, None) if held else (None, self)
        return self._half(condition, lasting), self._half(~condition, lasting)

    def _half(self, condition: Array, lasting: bool) -> "Lanes":
        positions = np.flatnonzero(condition)
        half = lanes_of(self.geometry, self.index.take(positions))
        half.source, half.positions = ref(self), positions
        if lasting:
            _keep(half)
        return half

    def part_of(self, owner: "Lanes", values: Array) -> Array | None:
        """Return these lanes' part of values over a group that they parted from; ``None`` if not known."""
        if self.source is None or self.source() is not owner:
            return None
        assert self.positions is not None
        return values.take(self.positions)

    def guarded(self, condition: Array, name: Hashable = None) -> "Lanes":
        """Return the lanes where ``condition`` (over this group) holds; ``name`` as for `split`."""
        if name is not None:
            return self.once(("guard", name), lambda: self._lasting_guarded(condition))
        held = np.count_nonzero(condition)
        if held == self.n:
            return self
        positions = np.flatnonzero(condition)
        return Lanes(self.geometry, self.index.take(positions), 1, positions)

    def _lasting_guarded(self, condition: Array) -> "Lanes":
        lanes = self.guarded(condition)
        if self.kept is not None:
            _keep(lanes)
        return lanes

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

    @property
    def cta(self) -> Index:
        """The CTA of each lane."""
        return self.once("CTA", lambda: self.take(self.geometry.cta))

    def per_cta(self) -> npt.NDArray[np.int64]:
        """Return how many of these lanes each CTA has."""
        return self.once("per CTA", self._count)

    def _count(self) -> npt.NDArray[np.int64]:
        geometry = self.geometry
        if self.rows is None:
            return np.full(geometry.ctas, geometry.pitch)
        return np.bincount(self.rows * self.unit // geometry.pitch, minlength=geometry.ctas) * self.unit


def _same(full: Array) -> Array:
    return full


def _replace(full: Array, part: Array) -> Array:
    return part


def _keep(lanes: Lanes, key: object = None) -> None:
    """Let a group last, unless there are many; ``key`` is for finding it."""
    groups = lanes.geometry.groups
    if lanes.kept is None and len(groups) < _MOST_LASTING:
        lanes.kept = {}
        groups[len(groups) if key is None else key] = lanes


def everyone(geometry: Geometry) -> Lanes:
    """Return the group of all lanes."""
    found: Lanes | None = geometry.groups.get("everyone")
    if found is None:
        found = geometry.groups["everyone"] = Lanes(geometry, None, geometry.pitch)
        found.kept = {}
    return found


def _whole(geometry: Geometry, rows: Index, unit: int) -> Lanes:
    """Return a group of whole warps or CTAs, the same one for the same rows."""
    key = b"%d:%b" % (unit, rows.tobytes())
    found: Lanes | None = geometry.groups.get(key)
    if found is None:
        found = Lanes(geometry, rows, unit)
        _keep(found, key)
    return found


def lanes_of(geometry: Geometry, index: Index) -> Lanes:
    """Return the given ascending lanes in their coarsest form: all, whole CTAs, whole warps, or lanes."""
    count = len(index)
    if count == geometry.size:
        return everyone(geometry)
    if count % WARP == 0 and count:
        first = index[::WARP]
        if not (first % WARP).any() and np.array_equal(index[WARP - 1 :: WARP], first + (WARP - 1)):
            pitch = geometry.pitch
            if count % pitch == 0:
                start = index[::pitch]
                if not (start % pitch).any() and np.array_equal(
                    index[pitch - 1 :: pitch], start + (pitch - 1)
                ):
                    return _whole(geometry, start // pitch, pitch)
            return _whole(geometry, first // WARP, WARP)
    return Lanes(geometry, index, 1)


def union(geometry: Geometry, parts: list[Lanes]) -> Lanes:
    """Return all lanes of groups that have none in common."""
    if len(parts) == 1:
        return parts[0]
    if sum(part.n for part in parts) == geometry.size:
        return everyone(geometry)
    if all(part.kept is not None for part in parts):
        # Groups that last are told apart by where they are.
        name = "union", *(id(part) for part in parts)
        return parts[0].once(name, lambda: _joined(geometry, parts))
    return lanes_of(geometry, merged(geometry, parts))


def _joined(geometry: Geometry, parts: list[Lanes]) -> Lanes:
    found = lanes_of(geometry, merged(geometry, parts))
    _keep(found)
    return found


def merged(geometry: Geometry, parts: list[Lanes]) -> Index:
    """Return the lane numbers of all groups, ascending."""
    if len(parts) == 1:
        return parts[0].index
    present = np.zeros(geometry.size, np.bool_)
    for part in parts:
        present[part.index] = True
    return np.flatnonzero(present)
