"""The shape of a tile: launches, clusters, CTAs and threads, and which of its lanes is which of them.

A tile is some launches side by side; each CTA takes ``pitch`` lanes (its threads, rounded up to whole warps).
"""

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Index = npt.NDArray[np.intp]

WARP = 32


@dataclass(frozen=True)
class Geometry:
    """The shape of a tile: launches, CTAs of each, threads of each CTA; also as arrays over lanes.

    ``explicit`` says that whoever launched it chose the size of ``cluster``, in CTAs.
    """

    launches: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    explicit: bool = False
    ctas_per_launch: int = field(init=False)
    ctas_per_cluster: int = field(init=False)
    threads: int = field(init=False)
    pitch: int = field(init=False)

    def __post_init__(self) -> None:
        threads = math.prod(self.block)
        object.__setattr__(self, "ctas_per_launch", math.prod(self.grid))
        object.__setattr__(self, "ctas_per_cluster", math.prod(self.cluster))
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
    def groups(self) -> dict[object, Any]:
        """The groups of lanes (`lanes.Lanes`) that come again with every tile, by what tells them apart."""
        return {}

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

    @cached_property
    def members(self) -> Index:
        """The CTAs, in the tile, of each cluster: ``[clusters, ctas_per_cluster]``, by rank."""
        order = np.lexsort((self.rank, self.cluster_of))
        return np.asarray(order.reshape(-1, self.ctas_per_cluster))

    @cached_property
    def rank(self) -> Index:
        """The rank of each CTA of the tile in its cluster."""
        within, extent = self._parts("cluster_ctaid"), self.cluster
        return np.asarray(within[0] + extent[0] * (within[1] + extent[1] * within[2]))

    @cached_property
    def cluster_of(self) -> Index:
        """The cluster of each CTA of the tile."""
        at, extent = self._parts("clusterid"), self.clusters
        inside = at[0] + extent[0] * (at[1] + extent[1] * at[2])
        launch = np.arange(self.ctas, dtype=np.intp) // self.ctas_per_launch
        return np.asarray(launch * math.prod(extent) + inside)

    @cached_property
    def lane_cluster(self) -> Index:
        """The cluster of each lane, in the tile."""
        return np.asarray(self.cluster_of.take(self.cta))

    @cached_property
    def seat(self) -> Index:
        """The place of each lane among the threads of its cluster: rank times pitch, plus thread."""
        return np.asarray(self.rank.take(self.cta) * self.pitch + self.lane % self.pitch)

    @cached_property
    def roster(self) -> Index:
        """The lanes of each cluster, by seat."""
        lanes = self.members[:, :, None] * self.pitch + np.arange(self.pitch)
        return np.asarray(lanes.reshape(len(lanes), -1))

    @cached_property
    def peers(self) -> Index:
        """The CTAs of each CTA's cluster, by rank."""
        return np.asarray(self.members.take(self.cluster_of, axis=0))

    @property
    def clusters(self) -> tuple[int, int, int]:
        """Clusters of a launch, by axis."""
        x, y, z = (whole // part for whole, part in zip(self.grid, self.cluster, strict=True))
        return x, y, z

    def _parts(self, name: str) -> tuple[Index, Index, Index]:
        """Return the three axes of ``ctaid``, ``cluster_ctaid`` or ``clusterid`` of each CTA of the tile."""
        number = np.arange(self.ctas, dtype=np.intp) % self.ctas_per_launch
        x, y = self.grid[:2]
        at = number % x, number // x % y, number // (x * y)
        if name == "ctaid":
            return at
        pairs = zip(at, self.cluster, strict=True)
        i, j, k = (a % c if name == "cluster_ctaid" else a // c for a, c in pairs)
        return i, j, k

    def thread_in_grid(self, lane: int) -> int:
        """Return a lane's thread in its launch, without padding: CTA times block size, plus thread."""
        cta, thread = divmod(int(self.thread[lane]), self.pitch)
        return cta * self.threads + thread

    def special(self, name: str, lane: Index) -> npt.NDArray[np.uint32]:
        """Return special register ``name`` (without ``%``) of the given lanes."""
        base, _, axis = name.partition(".")
        thread = lane % self.pitch
        if base == "tid":
            x, y = self.block[:2]
            axes = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}
            return axes[axis].astype(np.uint32)
        if base in ("ctaid", "cluster_ctaid", "clusterid"):
            return self._parts(base)["xyz".index(axis)].take(lane // self.pitch).astype(np.uint32)
        if base == "cluster_ctarank":
            return self.rank.take(lane // self.pitch).astype(np.uint32)
        if base in ("ntid", "nctaid", "cluster_nctaid", "nclusterid"):
            extents = dict(
                zip(("ntid", "nctaid", "cluster_nctaid"), (self.block, self.grid, self.cluster), strict=True)
            )
            return np.full(lane.shape, extents.get(base, self.clusters)["xyz".index(axis)], np.uint32)
        if base in ("cluster_nctarank", "is_explicit_cluster"):
            value = self.ctas_per_cluster if base == "cluster_nctarank" else self.explicit
            return np.full(lane.shape, value, np.uint32)
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


@lru_cache(maxsize=8)
def geometry_of(
    owner: object,
    launches: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int] = (1, 1, 1),
    explicit: bool = False,
) -> Geometry:
    """Return the one geometry of a shape and a program, ``owner``: what it keeps is worth having again."""
    return Geometry(launches, grid, block, cluster, explicit)
