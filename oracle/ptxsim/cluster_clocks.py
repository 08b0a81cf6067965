"""The clocks of programs that use clusters or mbarriers: which accesses happened before a thread's own.

A stamp of `races` whose highest bit is set needs a closer look than the barriers of a CTA. It is of an
access through ``.shared::cluster``; or of an asynchronous store, and names mbarrier, CTA and phase instead of
a tick; or it says that the cell is part of an mbarrier.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np

from oracle.ptxsim.arrivals import I64, KEPT
from oracle.ptxsim.clocks import U32, Bool
from oracle.ptxsim.geometry import WARP, Geometry, Index
from oracle.ptxsim.knowledge import MBARRIERS, Knowledge
from oracle.ptxsim.lanes import Lanes

CLOSER: Final = np.uint32(1 << 31)
_OF_CTA: Final = 8
"""Where the codes of "several threads of the CTA of a rank" begin, after those of `Clocks` and of this."""
_THREAD, _WARP, _CTA, _CLUSTER = range(4)
"""How many threads a stamp is of."""

PLACE_BITS: Final = (MBARRIERS - 1).bit_length()
RANK_BITS: Final = 3


class ClusterClocks(Knowledge):
    """Clocks of a program that uses clusters or mbarriers."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.bits_of_phase = self.bits_of_tick - PLACE_BITS - RANK_BITS
        self.asynchronous = self.several | np.uint32(2)
        self.reduction = self.several | np.uint32(3)
        self.mbarrier = self.several | np.uint32(4)
        # For each place, the stamps of asynchronous stores in the last phase that each lane has seen.
        self._newest: dict[int, U32] = {}

    def mark(self, keys: Index, reduction: bool) -> U32:
        """Return the stamps of asynchronous stores that the present phases of mbarriers count."""
        target, place = keys % self.geometry.ctas, keys // self.geometry.ctas
        phase = np.zeros(len(keys), np.int64)
        for number in np.unique(place):
            phase[place == number] = self._arrivals[number].phase[target[place == number]]
        rank = self.geometry.rank[target]
        number = self._number(phase, rank, place)
        code = self.reduction if reduction else self.asynchronous
        return CLOSER | (number.astype(np.uint32) << np.uint32(self.bits)) | code

    def distant(self, lanes: Lanes, atomic: bool = False) -> U32:
        """Return the stamps of writes through ``.shared::cluster``."""
        stamp: U32 = lanes.take(self.stamp) | CLOSER
        return stamp | self.atomic if atomic else stamp

    def alike(self, old: U32, new: U32) -> Bool:
        """Return where both stamps are of atomics, or both of asynchronous reductions."""
        reductions = (old & self.code_mask == self.reduction) & (new & self.code_mask == self.reduction)
        return np.asarray((self.atomics(old) & self.atomics(new)) | reductions)

    def several_of(self, mark: U32) -> U32:
        """Return the stamps of atomics by several threads; of asynchronous reductions the last one's."""
        several = (mark & ~self.code_mask) | self.several_atomics
        return np.where(mark & self.code_mask == self.reduction, mark, several)

    def several_in(self, cta: Index) -> U32:
        """Return the codes of "several threads of a CTA"."""
        return self.several | (_OF_CTA + self.geometry.rank[cta]).astype(np.uint32)

    def is_asynchronous(self, old: U32) -> Bool:
        """Return which stamps are of asynchronous stores or reductions."""
        code = old & self.code_mask
        special = (code == self.asynchronous) | (code == self.reduction)
        return np.asarray(special & (old >= CLOSER))

    def is_mbarrier(self, old: U32) -> Bool:
        """Return which stamps are of the memory of mbarriers."""
        return np.asarray((old & self.code_mask == self.mbarrier) & (old >= CLOSER))

    def parts(self, old: U32) -> tuple[Index, Index, I64]:
        """Return the place, the rank and the phase in stamps of asynchronous stores."""
        number = ((old & ~CLOSER) >> np.uint32(self.bits)).astype(np.int64)
        rank = number >> PLACE_BITS & ((1 << RANK_BITS) - 1)
        return number & (MBARRIERS - 1), rank, number >> (PLACE_BITS + RANK_BITS)

    def name(self, stamp: int) -> str:
        """Say in words who left ``stamp``."""
        if stamp < CLOSER:
            return super().name(stamp)
        code = stamp & int(self.code_mask)
        if code in (self.asynchronous, self.reduction):
            return f"an asynchronous {'store' if code == self.asynchronous else 'reduction'}"
        return super().name(stamp & ~int(CLOSER))

    def unordered(self, index: Index, old: U32) -> Bool:
        """Return which accesses ``old`` are not ordered before the lanes at ``index``, as `Clocks` does."""
        closer = old >= CLOSER
        plain = old & ~CLOSER
        bad = super().unordered(index, plain)
        asynchronous = self.is_asynchronous(old)
        where = np.flatnonzero(bad & ~asynchronous)
        if len(where):
            bad[where] = self._unheard(index[where], plain[where], self._released)
        if closer.any():
            if asynchronous.any():
                bad[asynchronous] = self._unseen(index[asynchronous], old[asynchronous])
            bad |= self.is_mbarrier(old)
        return bad

    def learnt(self) -> None:
        """Note that `observed` has changed."""
        self._newest.clear()

    def obviously(self, lanes: Lanes, count: int, old: U32) -> Bool:
        """Return which stamps are of asynchronous stores to the own CTA in the last phase a lane has seen."""
        found = np.zeros(len(old), np.bool_)
        for place, observed in enumerate(self.observed):
            if place not in self._newest:
                own = self._number(observed - 1, self.geometry.seat // self.geometry.pitch, place)
                stamps = CLOSER | (own.astype(np.uint32) << np.uint32(self.bits)) | self.asynchronous
                self._newest[place] = np.where(observed > 0, stamps, np.uint32(0))
            newest = lanes.take(self._newest[place])
            found |= old == (newest.repeat(count) if count > 1 else newest)
        return found

    def _number(self, phase: I64, rank: Index, place: Index | int) -> I64:
        """Return what stands for a tick in the stamps of asynchronous stores."""
        wrapped = phase & ((1 << self.bits_of_phase) - 1)
        return (wrapped << RANK_BITS | rank) << PLACE_BITS | place

    def seen_by_all(self, lanes: Lanes, cta: Index, old: U32) -> bool:
        """Return whether stamps, of cells of CTAs, are of asynchronous stores that are there for all lanes.

        So it is if all lanes of each CTA have seen as many phases, and those of the stores among them.
        """
        place, rank, phase = self.parts(old)
        if not self.is_asynchronous(old).all() or (rank != self.geometry.rank.take(cta)).any():
            return False
        starts = lanes.once("first of CTAs", lambda: np.flatnonzero(np.diff(lanes.cta, prepend=-1)))
        for number in range(len(self.observed)):
            mine = place == number
            if not mine.any():
                continue
            observed = lanes.take(self.observed[number])
            least, most = np.minimum.reduceat(observed, starts), np.maximum.reduceat(observed, starts)
            seen = np.zeros(self.geometry.ctas, np.int64)
            seen[lanes.cta.take(starts)] = least
            if (least != most).any() or not self._after(seen.take(cta[mine]), phase[mine]).all():
                return False
        return True

    def unordered_init(self, index: Index, stamp: U32, fenced: Bool) -> Bool:
        """Return which initialisations of mbarriers are not ordered before the lanes' use of them."""
        base = np.where(fenced, self.met_base[index], self.cluster_base[index])
        bad = stamp >= base
        if not bad.any():
            return bad
        bad &= (stamp & self.code_mask) != self.thread[index]
        left = np.flatnonzero(bad)
        bad[left] = self.unordered(index[left], stamp[left])
        where = np.flatnonzero(bad & fenced)
        if len(where):
            bad[where] = self._unheard(index[where], stamp[where], self._met)
        return bad

    def _unheard(self, index: Index, old: U32, released: U32) -> Bool:
        """Return which accesses neither the cluster's barrier nor an mbarrier orders before the lanes."""
        geometry = self.geometry
        tick = (old >> np.uint32(self.bits)).astype(np.int64)
        lane, extent = self._owners(index, (old & self.code_mask).astype(np.int64))
        passed = self.passed[index]
        parity = (passed - 1) % 2
        by_lane = _least(released, self._exists, extent, geometry.pitch, self.geometry.members)
        heard = (passed > 0) & (tick < by_lane(parity, lane))
        cta = geometry.cta[index]
        for observed, arrivals in zip(self.observed, self._arrivals, strict=True):
            seen = observed[index]
            recent = (seen > 0) & (seen > arrivals.phase[cta] - KEPT)
            if recent.any():
                table = arrivals.kept.reshape(-1, self.roster.shape[1])
                row = (seen - 1) % KEPT * geometry.ctas + cta
                by_seat = _least(table, self._seats, extent, geometry.pitch, self._all_seats)
                heard |= recent & (tick < by_seat(row, self.seat[lane]))
        same = self.cluster[lane] == self.cluster[index]
        same &= (extent < _CLUSTER) | (len(geometry.members) == geometry.launches)
        return np.asarray(~(heard & same))

    def _owners(self, index: Index, code: I64) -> tuple[Index, I64]:
        """Return, for whoever asks, a lane of those that codes name, and for how many it stands."""
        geometry = self.geometry
        owner = code & int(self.one)
        extent = np.full(len(code), _CLUSTER)
        extent[(code < int(self.of_warp)) | (code >= int(self.atomic))] = _THREAD
        extent[(code >= int(self.of_warp)) & (code < int(self.several))] = _WARP
        extent[(extent == _CLUSTER) & (owner >= _OF_CTA) & (owner < _OF_CTA + (1 << RANK_BITS))] = _CTA
        lane = geometry.launch[index] * (geometry.pitch * geometry.ctas_per_launch) + owner
        lane = np.where(extent < _CTA, lane, index)
        of_cta = extent == _CTA
        ranks = owner[of_cta] - _OF_CTA
        lane[of_cta] = geometry.members[self.cluster[index[of_cta]], ranks] * geometry.pitch
        return lane, extent

    @cached_property
    def _exists(self) -> Bool:
        return self.geometry.exists

    @cached_property
    def _seats(self) -> Bool:
        """Which seats of a cluster are threads."""
        return np.arange(self.roster.shape[1]) % self.geometry.pitch < self.geometry.threads

    @cached_property
    def _all_seats(self) -> Index:
        """The CTAs of a row of seats: one cluster."""
        return np.arange(self.geometry.ctas_per_cluster)[None]

    def _unseen(self, index: Index, old: U32) -> Bool:
        """Return which asynchronous stores have a phase that the lanes have not seen complete."""
        geometry = self.geometry
        place, rank, phase = self.parts(old)
        cta = geometry.members[self.cluster[index], rank]
        bad = np.ones(len(index), np.bool_)
        for number in np.unique(place):
            mine = np.flatnonzero((place == number) & (cta == geometry.cta[index]))
            bad[mine] = ~self._after(self.observed[number][index[mine]], phase[mine])
        # Seen by another thread of that CTA, which then told this one.
        for at in np.flatnonzero(bad):
            first = int(cta[at]) * geometry.pitch
            lanes = np.arange(first, first + geometry.pitch)
            seen = lanes[self._after(self.observed[place[at]][lanes], np.full(len(lanes), phase[at]))]
            stamps = self._saw[place[at]][seen]
            bad[at] = self.unordered(np.full(len(seen), index[at]), stamps).all()
        return bad

    def _after(self, observed: I64, phase: I64) -> Bool:
        """Return whether as many phases are complete as a store of phase number ``phase``, cut off, needs."""
        half = 1 << (self.bits_of_phase - 1)
        ahead = (observed - phase) & (2 * half - 1)
        return np.asarray((observed > 0) & (ahead > 0) & (ahead <= half))


def _least(
    table: U32, exists: Bool, extent: I64, pitch: int, members: Index
) -> Callable[[Index, Index], I64]:
    """Return what looks up, by row and place, the least entry of what each extent says the place stands for.

    ``table`` is ``[rows, places]``; places are threads, of CTAs of ``pitch``, of clusters of ``members``.
    """
    kinds = [np.flatnonzero(extent == kind) for kind in (_WARP, _CTA, _CLUSTER)]

    def look_up(row: Index, place: Index) -> I64:
        found: I64 = table[row, place].astype(np.int64)
        if not any(len(kind) for kind in kinds):
            return found
        masked = np.where(exists, table, np.uint32(0xFFFFFFFF)).reshape(len(table), -1, WARP).min(axis=2)
        by_cta = masked.reshape(len(table), -1, pitch // WARP).min(axis=2)
        warps, ctas, clusters = kinds
        found[warps] = masked[row[warps], place[warps] // WARP]
        found[ctas] = by_cta[row[ctas], place[ctas] // pitch]
        if len(clusters):
            cluster_of = np.zeros(by_cta.shape[1], np.intp)
            cluster_of[members] = np.arange(len(members))[:, None]
            least = by_cta[:, members].min(axis=2)
            found[clusters] = least[row[clusters], cluster_of[place[clusters] // pitch]]
        return found

    return look_up
