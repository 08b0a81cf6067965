"""The clocks of programs that use clusters or mbarriers: which accesses happened before a thread's own.

A stamp of `races` whose highest bit is set needs a closer look than the barriers of a CTA. It is of an
access through ``.shared::cluster``; or of an asynchronous store, and names mbarrier, CTA and phase instead of
a tick; or it says that the cell is part of an mbarrier.
"""

from typing import Final

import numpy as np

from oracle.ptxsim.clocks import U32, Bool
from oracle.ptxsim.geometry import WARP, Geometry, Index
from oracle.ptxsim.knowledge import I64, KEPT, MBARRIERS, Knowledge
from oracle.ptxsim.lanes import Lanes

CLOSER: Final = np.uint32(1 << 31)
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

    def mark(self, keys: Index, reduction: bool) -> U32:
        """Return the stamps of asynchronous stores that the present phases of mbarriers count."""
        target, place = keys % self.geometry.ctas, keys // self.geometry.ctas
        phase = np.zeros(len(keys), np.int64)
        for number in np.unique(place):
            phase[place == number] = self._arrivals[number].phase[target[place == number]]
        rank = self.geometry.rank[target]
        number = ((phase & ((1 << self.bits_of_phase) - 1)) << RANK_BITS | rank) << PLACE_BITS | place
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

    def unordered_init(self, index: Index, stamp: U32, fenced: Bool) -> Bool:
        """Return which initialisations of mbarriers are not ordered before the lanes' use of them."""
        bad = stamp >= self.cluster_base[index]
        bad &= ~fenced | (stamp >= self.met_base[index])
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
        code = (old & self.code_mask).astype(np.int64)
        tick = (old >> np.uint32(self.bits)).astype(np.int64)
        owner = code & int(self.one)
        single = (code < int(self.of_warp)) | (code >= int(self.atomic))
        warp = ~single & (code < int(self.several))
        launch = geometry.launch[index] * (geometry.pitch * geometry.ctas_per_launch)
        lane = np.where(single | warp, launch + owner, index)
        lane = np.minimum(lane, geometry.size - 1)
        same = (self.cluster[lane] == self.cluster[index]) & (
            single | warp | (len(geometry.members) == geometry.launches)
        )
        heard = np.zeros(len(index), np.bool_)
        passed = self.passed[index]
        at = self._bound(released.reshape(-1), ((passed - 1) % 2) * geometry.size, lane, single, warp)
        heard |= (passed > 0) & (tick < at)
        cta = geometry.cta[index]
        for number, arrivals in enumerate(self._arrivals):
            seen = self.observed[number][index]
            recent = (seen > 0) & (seen > arrivals.phase[cta] - KEPT)
            if recent.any():
                rows = arrivals.kept[(seen - 1) % KEPT, cta]
                heard |= recent & (tick < self._row_bound(rows, lane, single, warp))
        return np.asarray(~(heard & same))

    def _bound(self, table: U32, offset: Index, lane: Index, single: Bool, warp: Bool) -> I64:
        """Return the ticks before which the owners of stamps are ordered: a thread, a warp, a cluster."""
        found: I64 = table[offset + lane].astype(np.int64)
        for kind, lanes in ((warp, self._warp_lanes), (~single & ~warp, self._cluster_lanes)):
            for at in np.flatnonzero(kind):
                found[at] = table[offset[at] + lanes(int(lane[at]))].min()
        return found

    def _row_bound(self, rows: U32, lane: Index, single: Bool, warp: Bool) -> I64:
        """Return the same from a table with a row for each place."""
        found: I64 = rows[np.arange(len(lane)), self.seat[lane]].astype(np.int64)
        for kind, lanes in ((warp, self._warp_lanes), (~single & ~warp, self._cluster_lanes)):
            for at in np.flatnonzero(kind):
                found[at] = rows[at, self.seat[lanes(int(lane[at]))]].min()
        return found

    def _warp_lanes(self, lane: int) -> Index:
        first = lane // WARP * WARP
        return first + np.flatnonzero(self.geometry.exists[first : first + WARP])

    def _cluster_lanes(self, lane: int) -> Index:
        lanes: Index = self.roster[self.cluster[lane]]
        return lanes[self.geometry.exists[lanes]]

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
