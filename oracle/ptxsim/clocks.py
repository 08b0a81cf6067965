"""Which barriers each thread has passed, and so which accesses happened before its own (`races`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.geometry import WARP, Geometry, Index
from oracle.ptxsim.lanes import Lanes, lanes_of

U32 = npt.NDArray[np.uint32]
Bool = npt.NDArray[np.bool_]


class Word(NamedTuple):
    """What threads that arrive at a barrier without waiting leave to those who wait.

    ``heard`` is the last tick of each warp of the CTA that happened before; ``more`` is what `cluster_clocks`
    adds.
    """

    heard: npt.NDArray[np.int64]
    more: tuple[Any, ...] = ()


class Clocks:
    """Which barrier each thread of a tile passed last.

    Attributes
    ----------
    stamp
        uint32 per lane: what the lane's next access is marked with.
    base
        uint32 per lane: accesses by the lane's CTA with a smaller stamp happened before its last full CTA
        barrier.
    oldest
        The tick of the least ``base``.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        per_launch = geometry.pitch * geometry.ctas_per_launch
        # A code is a thread number, plus `of_warp` for "several threads of this warp" or `atomic` for "an
        # atomic of this thread"; or it is `several`, or `several_atomics`.
        width = (per_launch - 1).bit_length()
        self.bits = width + 2
        self.one = np.uint32((1 << width) - 1)
        self.of_warp = np.uint32(1 << width)
        self.several = np.uint32(2 << width)
        self.several_atomics = self.several | np.uint32(1)
        self.atomic = np.uint32(3 << width)
        self.code_mask = np.uint32((1 << self.bits) - 1)
        self.warp_mask = (self.one & ~np.uint32(WARP - 1)) | self.several
        self.bits_of_tick = 32 - self.bits
        self.tick = self.oldest = 1
        self.thread: U32 = geometry.thread.astype(np.uint32)
        self.stamp: U32 = self.thread | np.uint32(1 << self.bits)
        self.base: U32 = np.full(geometry.size, 1 << self.bits, np.uint32)
        self._known: npt.NDArray[np.int64] | None = None

    def barrier(self, lanes: Lanes, full: bool, words: Sequence[Word] = ()) -> None:
        """Note a barrier of ``lanes``; ``full`` if it was all threads of their CTAs.

        A partial barrier is of one CTA; ``words`` is what threads left that arrived without waiting.
        """
        if full:
            self._advance(lanes)
            start = self.tick << self.bits
            self.base = lanes.put(self.base, np.full(lanes.n, start, np.uint32))
            self.oldest = self.tick if lanes.rows is None else int(np.minimum.reduce(self.base)) >> self.bits
            return
        heard = self._heard(lanes)
        for word in words:
            heard = np.maximum(heard, word.heard)
        assert self._known is not None
        self._known[lanes.index[0] // self.geometry.pitch, self._warps(lanes)] = heard
        self._advance(lanes)

    def leave_word(self, lanes: Lanes) -> dict[int, Word]:
        """Return, for each CTA, what ``lanes`` knew when they arrived without waiting."""
        ctas = lanes.index // self.geometry.pitch
        words = {
            int(cta): Word(self._heard(lanes_of(self.geometry, lanes.index[ctas == cta])))
            for cta in np.unique(ctas)
        }
        self._advance(lanes)
        return words

    def warp_barrier(self, lanes: Lanes) -> None:
        """Note a ``bar.warp.sync`` of whole warps."""
        self._advance(lanes)

    def _advance(self, lanes: Lanes) -> None:
        """Give ``lanes`` a new tick."""
        self.tick += 1
        if self.tick >> self.bits_of_tick:
            raise OverflowError("more barriers than the race detector can tell apart")
        self.stamp = lanes.put(self.stamp, lanes.take(self.thread) | np.uint32(self.tick << self.bits))

    def _warps(self, lanes: Lanes) -> Index:
        """Return the warps, in their CTA, that are there with all 32 lanes: no others count."""
        per_cta = self.geometry.pitch // WARP
        warps, counts = np.unique(lanes.index // WARP, return_counts=True)
        return np.asarray(warps[counts == WARP] % per_cta)

    def _heard(self, lanes: Lanes) -> npt.NDArray[np.int64]:
        """Return, for each warp of the CTA, its last tick that happened before now for any of ``lanes``."""
        geometry = self.geometry
        per_cta = geometry.pitch // WARP
        if self._known is None:
            self._known = np.zeros((geometry.ctas, per_cta, per_cta), np.int64)
        cta, warps = int(lanes.index[0]) // geometry.pitch, self._warps(lanes)
        heard: npt.NDArray[np.int64] = self._known[cta, warps].max(axis=0, initial=0)
        stamps = self.stamp.reshape(-1, WARP)[cta * per_cta + warps].max(axis=1)
        heard[warps] = np.maximum(heard[warps], stamps.astype(np.int64) >> self.bits)
        return np.asarray(heard)

    def mates(self, lanes: Lanes, stamp: U32) -> U32:
        """Return, for lanes with these stamps: what their warps did with a smaller one happened before."""
        return stamp & ~self.code_mask

    def mates_of(self, index: Index) -> U32:
        """Return the same for the lanes at ``index``."""
        return self.stamp[index] & ~self.code_mask

    def unordered(self, index: Index, old: U32) -> Bool:
        """Return which accesses ``old`` (one stamp a lane) are not ordered before the lanes at ``index``."""
        pitch, per_launch = self.geometry.pitch, self.geometry.ctas_per_launch
        code = (old & self.code_mask).astype(np.int64)
        tick = (old >> np.uint32(self.bits)).astype(np.int64)
        me = self.geometry.thread[index]
        own_tick = (self.mates_of(index) >> np.uint32(self.bits)).astype(np.int64)
        owner = code & int(self.one)
        is_atomic = code >= int(self.atomic)
        one_warp = (code < int(self.several)) | is_atomic
        warp = owner // WARP
        same_cta = warp // (pitch // WARP) == me // pitch if per_launch > 1 else np.ones(len(index), np.bool_)
        same_cta &= one_warp | (per_launch == 1)
        ordered = (old == 0) | ((owner == me) & ((code == owner) | is_atomic))
        ordered |= same_cta & (old < self.base[index])
        ordered |= one_warp & (warp == me // WARP) & (tick < own_tick)
        if self._known is not None:
            per_cta = pitch // WARP
            known = self._known[
                self.geometry.cta[index], me // WARP % per_cta, np.where(one_warp, warp % per_cta, 0)
            ]
            ordered |= one_warp & same_cta & (tick <= known)
        return np.asarray(~ordered)

    def atomics(self, old: U32) -> Bool:
        """Return which stamps are of atomics."""
        code = old & self.code_mask
        return np.asarray((code >= self.atomic) | (code == self.several_atomics))

    def name(self, stamp: int) -> str:
        """Say in words who left ``stamp``."""
        code = stamp & int(self.code_mask)
        pitch, threads = self.geometry.pitch, self.geometry.threads
        owner = code & int(self.one)
        thread = f"thread {owner // pitch * threads + owner % pitch}"
        if code < self.of_warp:
            return thread
        if code < self.several:
            return f"several threads of warp {owner // WARP}"
        if code >= self.atomic:
            return f"an atomic of {thread}"
        return "atomics of several threads" if code == self.several_atomics else "several threads"
