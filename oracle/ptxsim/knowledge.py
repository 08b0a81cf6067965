"""What each thread knows to have happened: by barriers of its CTA and its cluster, and by mbarriers.

- The cluster's barrier orders what each thread did before it arrived (with ``.relaxed``: before its last
  fence of the cluster) before what others do after they have waited.
- A phase of an mbarrier orders what each thread did before it arrived, and the asynchronous stores that the
  phase counts, before what a thread does that has seen the phase complete; a barrier after that passes it on.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.clocks import U32, Bool, Clocks, Word
from oracle.ptxsim.geometry import WARP, Geometry, Index
from oracle.ptxsim.lanes import Lanes

I64 = npt.NDArray[np.int64]

MBARRIERS: Final = 64
"""Mbarriers of a CTA that are told apart."""

KEPT: Final = 4
"""Of so many phases of an mbarrier it is known who arrived at them."""


_SHARED_FIRST: Final = 4
"""Where what a thread has seen of mbarriers stands among what a barrier passes on."""


class Arrivals:
    """Who has arrived at one mbarrier of each CTA: for every phase up to now, and for the last complete ones.

    Attributes
    ----------
    now, kept
        uint32 ``[ctas, threads of a cluster]``: accesses with a smaller tick happened before.
    started, kept_started
        uint32 ``[ctas]``: the CTAs that must have started.
    phase
        int64 ``[ctas]``: complete phases.
    """

    def __init__(self, ctas: int, threads: int) -> None:
        self.now: U32 = np.zeros((ctas, threads), np.uint32)
        self.kept: U32 = np.zeros((KEPT, ctas, threads), np.uint32)
        self.started: U32 = np.zeros(ctas, np.uint32)
        self.kept_started: U32 = np.zeros((KEPT, ctas), np.uint32)
        self.phase: I64 = np.zeros(ctas, np.int64)

    def complete(self, ctas: Index) -> None:
        """Note that the phase of these CTAs' mbarrier is complete."""
        slot = self.phase[ctas] % KEPT
        self.kept[slot, ctas] = self.now[ctas]
        self.kept_started[slot, ctas] = self.started[ctas]
        self.phase[ctas] += 1


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
        one = np.uint32(1) << geometry.rank.astype(np.uint32)
        self.started: U32 = one.take(geometry.cta)
        self.all_started = np.uint32((1 << geometry.ctas_per_cluster) - 1)
        self.cluster: Index = geometry.cluster_of.take(geometry.cta)
        # The place of a lane among the threads of its cluster, and the lanes of each cluster by place.
        self.seat: Index = geometry.rank.take(geometry.cta) * geometry.pitch + geometry.lane % geometry.pitch
        self.roster: Index = (
            geometry.members[:, :, None] * geometry.pitch + np.arange(geometry.pitch)
        ).reshape(len(geometry.members), -1)
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
        for parity in (0, 1):
            clusters = np.flatnonzero(done & (self._generation % 2 == parity))
            if not len(clusters):
                continue
            lanes = self.roster[clusters]
            for kept, new in ((self._released, self._releasing), (self._met, self._meeting)):
                last = kept[1 - parity, lanes]
                kept[parity, lanes] = np.where(come[lanes], np.maximum(new[lanes], last), last)
        self._generation[done] += 1

    def cluster_pass(self, lanes: Lanes) -> None:
        """Note that ``barrier.cluster.wait`` has let lanes go."""
        cluster = lanes.take(self.cluster)
        self._fresh = self._fresh or lanes.rows is not None
        self.passed = lanes.put(self.passed, self._generation[cluster])
        self.started = lanes.put(self.started, np.full(lanes.n, self.all_started, np.uint32))
        released, met = self._floors(self._released), self._floors(self._met)
        self.cluster_base = lanes.put(self.cluster_base, released.min(axis=1)[cluster])
        self.met_base = lanes.put(self.met_base, met.min(axis=1)[cluster])
        own = released[cluster, self.geometry.rank[lanes.take(self.geometry.cta)]]
        self.base = lanes.put(self.base, np.maximum(lanes.take(self.base), own))
        self.oldest = int(np.minimum.reduce(self.base)) >> self.bits

    def _floors(self, table: U32) -> U32:
        """Return the stamps before which the cluster's barrier orders all of a CTA, by cluster and rank."""
        ticks = table[((self._generation - 1) % 2)[:, None], self.roster]
        everyone = np.where(self.geometry.exists[self.roster], ticks, np.uint32((1 << self.bits_of_tick) - 1))
        by_cta = everyone.reshape(len(everyone), self.geometry.ctas_per_cluster, -1).min(axis=2)
        return np.asarray(by_cta << np.uint32(self.bits))

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

    def arrive(self, lanes: Lanes, keys: Index) -> None:
        """Note releasing arrivals at mbarriers; a key is place times CTAs, plus CTA."""
        geometry = self.geometry
        source = lanes.take(geometry.cta)
        target, place = keys % geometry.ctas, keys // geometry.ctas
        for number in np.unique(place):
            arrivals = self._arrivals[number]
            mine = np.flatnonzero(place == number)
            np.bitwise_or.at(arrivals.started, target[mine], self.started[lanes.index[mine]])
            for rank in range(geometry.ctas_per_cluster):
                group = mine[geometry.rank[source[mine]] == rank]
                if len(group):
                    self._leave(arrivals, lanes.index[group], source[group], target[group])
            now = arrivals.now.reshape(-1)
            seats = target[mine] * self.roster.shape[1] + self.seat[lanes.index[mine]]
            ticks = (self.stamp[lanes.index[mine]] >> np.uint32(self.bits)) + np.uint32(1)
            now[seats] = np.maximum(now[seats], ticks)
        self._advance(lanes)

    def _leave(self, arrivals: Arrivals, index: Index, source: Index, target: Index) -> None:
        """Leave what lanes know of others; all lanes that arrive at one target are of one CTA."""
        geometry = self.geometry
        targets, group = np.unique(target, return_inverse=True)
        sources = np.zeros(len(targets), np.intp)
        sources[group] = source
        base, passed = np.zeros(len(targets), np.uint32), np.zeros(len(targets), np.int64)
        np.maximum.at(base, group, self.base[index])
        np.maximum.at(passed, group, self.passed[index])
        rows = arrivals.now[targets]
        first = int(geometry.rank[sources[0]]) * geometry.pitch
        part = rows[:, first : first + geometry.pitch]
        np.maximum(part, base[:, None] >> np.uint32(self.bits), out=part)
        self._leave_warps(part, index, group)
        known = self._released[((passed - 1) % 2)[:, None], self.roster[geometry.cluster_of[targets]]]
        rows = np.maximum(rows, np.where(passed[:, None] > 0, known, np.uint32(0)))
        for observed, other in zip(self.observed, self._arrivals, strict=True):
            seen = np.zeros(len(targets), np.int64)
            np.maximum.at(seen, group, observed[index])
            if seen.any():
                heard = other.kept[(seen - 1) % KEPT, sources]
                recent = (seen > 0) & (seen > other.phase[sources] - KEPT)
                rows = np.maximum(rows, np.where(recent[:, None], heard, np.uint32(0)))
        arrivals.now[targets] = rows

    def _leave_warps(self, part: U32, index: Index, group: Index) -> None:
        """Leave what lanes know by barriers of their warps and of part of their CTA: ``part`` by thread."""
        geometry = self.geometry
        pair = np.unique(group * (geometry.size // WARP) + index // WARP)
        row, warp = pair // (geometry.size // WARP), pair % (geometry.size // WARP)
        ticks = self._mate_base.reshape(-1, WARP)[warp].max(axis=1) >> np.uint32(self.bits)
        own = warp % (geometry.pitch // WARP)
        by_warp = part.reshape(len(part), -1, WARP)
        by_warp[row, own] = np.maximum(by_warp[row, own], ticks[:, None])
        if self._known is not None:
            known = self._known[geometry.cta[warp * WARP], own]
            for one, ticks_known in zip(row, known, strict=True):
                late = np.where(ticks_known > 0, ticks_known + 1, 0).astype(np.uint32)
                np.maximum(by_warp[one], late[:, None], out=by_warp[one])

    def contribute(self, lanes: Lanes, keys: Index) -> None:
        """Note asynchronous stores: whoever sees their phase complete knows that the storing CTAs started."""
        target, place = keys % self.geometry.ctas, keys // self.geometry.ctas
        for number in np.unique(place):
            mine = place == number
            np.bitwise_or.at(self._arrivals[number].started, target[mine], lanes.take(self.started)[mine])

    def complete(self, keys: Index) -> None:
        """Note complete phases."""
        target, place = keys % self.geometry.ctas, keys // self.geometry.ctas
        for number in np.unique(place):
            self._arrivals[number].complete(target[place == number])

    def observe(self, lanes: Lanes, keys: Index) -> None:
        """Note that lanes have seen the last phase of their mbarriers complete."""
        target, place = keys % self.geometry.ctas, keys // self.geometry.ctas
        for number in np.unique(place):
            mine = place == number
            index, cta = lanes.index[mine], target[mine]
            arrivals = self._arrivals[number]
            phase = arrivals.phase[cta]
            self.observed[number][index] = phase
            self._saw[number][index] = self.stamp[index]
            started = arrivals.kept_started[(phase - 1) % KEPT, cta]
            self.started[index] |= started
        self._fresh = True

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
            self._share(lanes.index, lanes.take(self.geometry.cta))
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
        cta = lanes.take(self.geometry.cta)
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
            most = join.reduceat(table[index], starts)
            for word in words:
                if len(word) > number:
                    most = join(most, word[number])
            known = most.repeat(sizes)
            if number >= _SHARED_FIRST:
                learnt = index[table[index] != known]
                self._saw[number - _SHARED_FIRST][learnt] = self.stamp[learnt]
            table[index] = known
