"""What each thread knows to have happened: by barriers of its CTA and its cluster, and by mbarriers.

- The cluster's barrier orders what each thread did before it arrived (with ``.relaxed``: before its last
  fence of the cluster) before what others do after they have waited.
- A phase of an mbarrier orders what each thread did before it arrived, and the asynchronous stores that the
  phase counts, before what a thread does that has seen the phase complete; a barrier after that passes it on.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.arrivals import KEPT, Arrivals
from oracle.ptxsim.clocks import U32, Bool, Clocks, Word
from oracle.ptxsim.geometry import WARP, Geometry, Index
from oracle.ptxsim.lanes import Lanes

I64 = npt.NDArray[np.int64]

MBARRIERS: Final = 64
"""Mbarriers of a CTA that are told apart."""

_SHARED_FIRST: Final = 4
"""Where what a thread has seen of mbarriers stands among what a barrier passes on."""


class Knowledge(Clocks):
    """What each thread of a tile knows to have happened, by whichever way.

    Attributes
    ----------
    started
        uint32 per lane: bit r is set if CTA r of the lane's cluster is known to have started.
    passed
        int64 per lane: how many barriers of the cluster happened before.
    cluster_base
        uint32 per lane: accesses by the lane's cluster with a smaller stamp happened before.
    met_base
        uint32 per lane: likewise for what needs no memory ordered, mbarriers made before a fence for them.
    observed
        int64 per lane, for each place of an mbarrier: phases of the own CTA's mbarrier seen complete.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.bits_of_tick = 31 - self.bits  # the highest bit says more
        self.started: U32 = (np.uint32(1) << geometry.rank.astype(np.uint32)).take(geometry.cta)
        self.all_started = np.uint32((1 << geometry.ctas_per_cluster) - 1)
        self.cluster, self.seat, self.roster = geometry.lane_cluster, geometry.seat, geometry.roster
        size = geometry.size
        self._mate_base: U32 = self.stamp & ~self.code_mask
        self.passed: I64 = np.zeros(size, np.int64)
        self.cluster_base: U32 = np.zeros(size, np.uint32)
        self.met_base: U32 = np.zeros(size, np.uint32)
        self.fenced: U32 = np.zeros(size, np.uint32)
        # Ticks before which the cluster's last two barriers, by parity, order a thread's accesses: as far as
        # memory goes, and as far as mbarriers that were fenced go.
        self._released: U32 = np.zeros((2, size), np.uint32)
        self._met: U32 = np.zeros((2, size), np.uint32)
        self._releasing: U32 = np.zeros(size, np.uint32)
        self._meeting: U32 = np.zeros(size, np.uint32)
        self._generation: I64 = np.zeros(len(geometry.members), np.int64)
        # The least of those ticks of a CTA's threads, as stamps.
        self._floor_released: U32 = np.zeros(geometry.ctas, np.uint32)
        self._floor_met: U32 = np.zeros(geometry.ctas, np.uint32)
        self.observed: list[I64] = []
        self._saw: list[U32] = []
        self._arrivals: list[Arrivals] = []
        self._fresh = False

    # The cluster's barrier.

    def fence(self, lanes: Lanes) -> None:
        """Note a fence of the cluster's scope, or a wider one."""
        self._advance(lanes)
        self.fenced = lanes.put(self.fenced, np.full(lanes.n, self.tick, np.uint32))

    def cluster_arrive(self, lanes: Lanes, relaxed: bool) -> None:
        """Note ``barrier.cluster.arrive``."""
        self._advance(lanes)
        tick = np.full(lanes.n, self.tick, np.uint32)
        self._meeting = lanes.put(self._meeting, tick)
        self._releasing = lanes.put(self._releasing, lanes.take(self.fenced) if relaxed else tick)

    def cluster_complete(self, done: Bool, come: Bool) -> None:
        """Note that barriers of clusters are complete: ``done`` by cluster, ``come`` by lane."""
        odd = self._generation % 2 == 1
        for parity in (0, 1):
            clusters = done & (odd == bool(parity))
            if not clusters.any():
                continue
            mine = clusters.take(self.cluster)
            for kept, new in ((self._released, self._releasing), (self._met, self._meeting)):
                last = kept[1 - parity]
                ticks = np.where(come, np.maximum(new, last), last)
                kept[parity] = ticks if clusters.all() else np.where(mine, ticks, kept[parity])
            self._floor_released = self._floor(self._released[parity], clusters, self._floor_released)
            self._floor_met = self._floor(self._met[parity], clusters, self._floor_met)
        self._generation[done] += 1

    def _floor(self, ticks: U32, clusters: Bool, floor: U32) -> U32:
        """Return the least ticks of the CTAs of some clusters, as stamps; of the others what they were."""
        geometry = self.geometry
        if not geometry.whole:
            ticks = np.where(geometry.exists, ticks, np.uint32((1 << self.bits_of_tick) - 1))
        least = ticks.reshape(-1, geometry.pitch).min(axis=1) << np.uint32(self.bits)
        return least if clusters.all() else np.where(clusters[geometry.cluster_of], least, floor)

    def cluster_pass(self, lanes: Lanes) -> None:
        """Note that ``barrier.cluster.wait`` has let lanes go."""
        geometry, cta = self.geometry, lanes.cta
        self._fresh = self._fresh or lanes.rows is not None
        self.passed = lanes.put(self.passed, self._generation.take(lanes.take(self.cluster)))
        self.started = lanes.put(self.started, np.full(lanes.n, self.all_started, np.uint32))
        released, met = (
            floor[geometry.members].min(axis=1)[geometry.cluster_of]
            for floor in (self._floor_released, self._floor_met)
        )
        self.cluster_base = lanes.put(self.cluster_base, released.take(cta))
        self.met_base = lanes.put(self.met_base, met.take(cta))
        own = self._floor_released.take(cta)
        self.base = lanes.put(self.base, np.maximum(lanes.take(self.base), own))
        self.oldest = int(np.minimum.reduce(self.base)) >> self.bits

    # Mbarriers.

    def know(self, places: int) -> None:
        """Be ready for so many places of mbarriers in a CTA."""
        if places > MBARRIERS:
            raise OverflowError("more mbarriers than the race detector can tell apart")
        geometry = self.geometry
        while len(self.observed) < places:
            self.observed.append(np.zeros(geometry.size, np.int64))
            self._saw.append(np.zeros(geometry.size, np.uint32))
            self._arrivals.append(Arrivals(geometry.ctas, self.roster.shape[1]))

    def phase(self, place: int) -> I64:
        """Return how many phases of each CTA's mbarrier at a place are complete."""
        return self._arrivals[place].phase

    def _by_place(self, lanes: Lanes, keys: Index) -> Iterator[tuple[int, Index, Index]]:
        """Split lanes by the place of their mbarrier: its number, the lanes, and the CTAs of the mbarriers.

        A key is the number of the place times CTAs, plus CTA.
        """
        if len(self._arrivals) == 1:
            yield 0, lanes.index, keys
            return
        place = keys // self.geometry.ctas
        for number in np.unique(place):
            mine = np.flatnonzero(place == number)
            yield int(number), lanes.index.take(mine), keys.take(mine) - number * self.geometry.ctas

    def arrive(self, lanes: Lanes, keys: Index) -> None:
        """Note releasing arrivals at mbarriers."""
        for number, index, target in self._by_place(lanes, keys):
            arrivals = self._arrivals[number]
            np.bitwise_or.at(arrivals.started, target, self.started[index])
            source = self.geometry.cta[index]
            # Lanes that arrive at one target from different CTAs have their turns.
            turn = self.geometry.rank[source] - self.geometry.rank[target]
            for one in (turn[0],) if (turn == turn[0]).all() else np.unique(turn):
                group = turn == one
                self._leave(arrivals, index[group], source[group], target[group])
            now = arrivals.now.reshape(-1)
            seats = target * self.roster.shape[1] + self.seat[index]
            ticks = (self.stamp[index] >> np.uint32(self.bits)) + np.uint32(1)
            now[seats] = np.maximum(now[seats], ticks)
        self._advance(lanes)

    def _leave(self, arrivals: Arrivals, index: Index, source: Index, target: Index) -> None:
        """Leave what lanes know of others; all lanes that arrive at one target are of one CTA."""
        geometry = self.geometry
        if len(target) == 1 or (target[1:] > target[:-1]).all():
            targets, group = target, np.arange(len(target))
        else:
            targets, group = np.unique(target, return_inverse=True)
        many = len(targets)
        sources = np.zeros(many, np.intp)
        sources[group] = source
        base, passed = np.zeros(many, np.uint32), np.zeros(many, np.int64)
        np.maximum.at(base, group, self.base[index])
        np.maximum.at(passed, group, self.passed[index])
        rank = geometry.rank[sources]
        by_cta = arrivals.now.reshape(geometry.ctas, -1, geometry.pitch)
        own = np.maximum(by_cta[targets, rank], base[:, None] >> np.uint32(self.bits))
        self._leave_warps(own, index, group)
        by_cta[targets, rank] = own
        if passed.any():
            known = self._released[((passed - 1) % 2)[:, None], self.roster[geometry.cluster_of[targets]]]
            self._leave_more(arrivals, targets, passed > 0, known)
        for observed, other in zip(self.observed, self._arrivals, strict=True):
            seen = np.zeros(many, np.int64)
            np.maximum.at(seen, group, observed[index])
            if seen.any():
                recent = (seen > 0) & (seen > other.phase[sources] - KEPT)
                self._leave_more(arrivals, targets, recent, other.kept[(seen - 1) % KEPT, sources])

    def _leave_more(self, arrivals: Arrivals, targets: Index, which: Bool, known: U32) -> None:
        """Leave what is known of all threads of a cluster, at some of the targets."""
        arrivals.now[targets] = np.maximum(
            arrivals.now[targets], np.where(which[:, None], known, np.uint32(0))
        )

    def _leave_warps(self, own: U32, index: Index, group: Index) -> None:
        """Leave what lanes know by barriers of their warps and of part of their CTA: ``own`` by thread."""
        geometry = self.geometry
        per_tile = geometry.size // WARP
        pair = group * per_tile + index // WARP
        if not (pair[1:] > pair[:-1]).all():
            pair = np.unique(pair)
        row, warp = pair // per_tile, pair % per_tile
        ticks = self._mate_base.reshape(-1, WARP)[warp].max(axis=1) >> np.uint32(self.bits)
        mine = warp % (geometry.pitch // WARP)
        by_warp = own.reshape(len(own), -1, WARP)
        by_warp[row, mine] = np.maximum(by_warp[row, mine], ticks[:, None])
        if self._known is not None:
            known = self._known[geometry.cta[warp * WARP], mine]
            for one, ticks_known in zip(row, known, strict=True):
                late = np.where(ticks_known > 0, ticks_known + 1, 0).astype(np.uint32)
                np.maximum(by_warp[one], late[:, None], out=by_warp[one])

    def contribute(self, lanes: Lanes, keys: Index) -> None:
        """Note asynchronous stores: whoever sees their phase complete knows that the storing CTAs started."""
        for number, index, target in self._by_place(lanes, keys):
            np.bitwise_or.at(self._arrivals[number].started, target, self.started[index])

    def complete(self, keys: Index) -> None:
        """Note complete phases."""
        number = keys // self.geometry.ctas
        for one in np.unique(number):
            self._arrivals[one].complete(keys[number == one] - one * self.geometry.ctas)

    def observe(self, lanes: Lanes, keys: Index) -> None:
        """Note that lanes have seen the last phase of their mbarriers complete."""
        for number, index, target in self._by_place(lanes, keys):
            arrivals = self._arrivals[number]
            self.observed[number][index] = arrivals.phase.take(target)
            self._saw[number][index] = self.stamp.take(index)
            by_cta = arrivals.kept_started[(arrivals.phase - 1) % KEPT, np.arange(len(arrivals.phase))]
            self.started[index] |= by_cta.take(target)
        self._fresh = True
        self.learnt()

    def learnt(self) -> None:
        """Note that `observed` has changed."""

    # Barriers pass on what some of their threads have seen.

    def mates(self, lanes: Lanes, stamp: U32) -> U32:
        """Return what `Clocks` does: here a thread's tick counts more than barriers of its warp."""
        return lanes.take(self._mate_base)

    def mates_of(self, index: Index) -> U32:
        """Return the same for the lanes at ``index``."""
        return np.asarray(self._mate_base[index])

    def barrier(self, lanes: Lanes, full: bool, words: Sequence[Word] = ()) -> None:
        """Note a barrier, as `Clocks` does."""
        super().barrier(lanes, full, words)
        self._mate_base = lanes.put(self._mate_base, lanes.take(self.stamp) & ~self.code_mask)
        if not self._fresh:
            return
        if full:
            self._share(lanes.index, lanes.cta)
            self._fresh = lanes.rows is not None
        else:
            self._share(lanes.index, np.zeros(lanes.n, np.intp), [word.more for word in words])

    def warp_barrier(self, lanes: Lanes) -> None:
        """Note a ``bar.warp.sync`` of whole warps."""
        super().warp_barrier(lanes)
        self._mate_base = lanes.put(self._mate_base, lanes.take(self.stamp) & ~self.code_mask)
        if self._fresh:
            self._share(lanes.index, lanes.index // WARP)

    def leave_word(self, lanes: Lanes) -> dict[int, Word]:
        """Return what lanes know, by CTA."""
        words = super().leave_word(lanes)
        if not self._fresh:
            return words
        cta = lanes.cta
        return {
            one: Word(word.heard, tuple(self._most(lanes.index[cta == one]))) for one, word in words.items()
        }

    def _tables(self) -> list[npt.NDArray[Any]]:
        return [self.passed, self.cluster_base, self.met_base, self.started, *self.observed]

    def _most(self, index: Index) -> list[Any]:
        """Return the most that lanes know, of each table."""
        return [
            np.bitwise_or.reduce(table[index]) if table is self.started else table[index].max()
            for table in self._tables()
        ]

    def _share(self, index: Index, group: Index, words: Sequence[tuple[Any, ...]] = ()) -> None:
        """Let all lanes of a group, neighbours in ascending order, know what any of them knows."""
        starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        sizes = np.diff(np.append(starts, len(group)))
        for number, table in enumerate(self._tables()):
            join: Any = np.bitwise_or if table is self.started else np.maximum
            had = table[index]
            most = join.reduceat(had, starts)
            for word in words:
                if len(word) > number:
                    most = join(most, word[number])
            known = most.repeat(sizes)
            learning = had != known
            if learning.any():
                lanes = index[learning]
                table[lanes] = known[learning]
                if number >= _SHARED_FIRST:
                    self._saw[number - _SHARED_FIRST][lanes] = self.stamp[lanes]
                    self.learnt()
