"""Stores that arrive some time after they are issued, and the end of CTAs, which must not come earlier."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.atomics import accumulate
from oracle.ptxsim.distributed import Distributed
from oracle.ptxsim.geometry import Index
from oracle.ptxsim.lanes import Lanes
from oracle.ptxsim.vectors import interleaved, part, scatter

Array = npt.NDArray[Any]


@dataclass
class Store:
    """Asynchronous stores of one instruction: lanes, and first byte, mbarrier and values of each."""

    index: int
    lanes: Lanes
    offsets: Index
    keys: Index
    code: str
    values: list[Array]
    name: str

    @property
    def size(self) -> int:
        """Bytes of each store."""
        return np.dtype(self.code).itemsize * len(self.values)

    def part(self, which: npt.NDArray[np.bool_]) -> "Store":
        """Return the stores of some of the lanes."""
        lanes = Lanes(self.lanes.geometry, self.lanes.index[which], 1)
        values = [value[which] for value in self.values]
        return Store(self.index, lanes, self.offsets[which], self.keys[which], self.code, values, self.name)


class Asynchronous(Distributed):
    """A tile whose program may store asynchronously."""

    def store_async(
        self,
        index: int,
        lanes: Lanes,
        base: Array,
        offset: int,
        bar: Array,
        bar_offset: int,
        space: str,
        code: str,
        values: tuple[Array, ...],
        name: str = "",
    ) -> None:
        """``st.async``, or ``red.async`` of operation ``name``."""
        if not lanes.n:
            return
        fault = self._fault(index, lanes)
        address = self._window(index, lanes, base, offset, space)
        size = np.dtype(code).itemsize * len(values)
        offsets, span = self.distant.elsewhere(lanes, address, size, fault)
        keys, named = self._keys(index, lanes, bar, bar_offset, space)
        apart = offsets // self.shared.pitch != keys % self.geometry.ctas
        if apart.any():
            position = int(np.flatnonzero(apart)[0])
            raise named("mbarrier", "the mbarrier is in another CTA than the destination", position)
        self.distant.bring(lanes, offsets, size, span, keys, bool(name), fault)
        self.cluster_clocks.contribute(lanes, keys)
        picked = [np.broadcast_to(lanes.pick(v), lanes.n) for v in values]
        late = None if self.order.late is None else lanes.take(self.order.late)
        store = Store(index, lanes, offsets, keys, code, picked, name)
        if late is None:
            self._deliver(store)
        else:
            self._deliver(store.part(~late))
            self.under_way.append(store.part(late))

    @cached_property
    def under_way(self) -> list[Store]:
        """Stores that are issued but have not arrived."""
        return []

    def deliver_late(self) -> bool:
        """Let the last of the stores under way arrive; return whether there was one."""
        while self.under_way:
            store = self.under_way.pop()
            if len(store.keys):
                self.distant.remark(store.offsets, store.size, store.keys, bool(store.name))
                self._deliver(store)
                return True
        return False

    def _deliver(self, store: Store) -> None:
        """Write what stores have brought, and tell their mbarriers."""
        if not len(store.keys):
            return
        view = self.shared.view(store.code)
        first = part(store.offsets, np.dtype(store.code).itemsize)
        if store.name:
            accumulate(store.name, view, first, store.values[0])
        else:
            values = interleaved(store.values, len(first), store.code)
            scatter(view, first, len(store.values), True, values)
        place = np.array(self.mbarriers.places)[store.keys // self.geometry.ctas]
        fault = self._named(store.index, store.lanes, place, place + self.program.shared_start)
        self.mbarriers.complete(store.keys, np.full(len(store.keys), store.size, np.int64), fault)
        self._tell()

    def leave(self, index: int, lanes: Lanes, alive: npt.NDArray[np.bool_]) -> None:
        """Note that lanes have exited; whole CTAs may have by that."""
        alive_in = alive.reshape(-1, self.geometry.pitch).any(axis=1)
        exiting = np.zeros(self.geometry.ctas, np.bool_)
        exiting[lanes.cta] = True
        ctas = np.flatnonzero(exiting & ~alive_in)
        if not len(ctas):
            return
        while self.deliver_late():
            pass
        if problem := self.distant.leave(ctas):
            raise self.error("absent CTA", problem[1], index, self._last(lanes, problem[0]))
        key = self.mbarriers.unfinished(exiting & ~alive_in)
        if key is not None:
            place = self.mbarriers.name(key)
            name, address = self.program.shared_name(place), self.program.shared_start + place
            detail = f"a CTA exits with an mbarrier whose {self.mbarriers.lacks(key)}"
            lane = self._last(lanes, key % self.geometry.ctas)
            raise self.error("mbarrier", detail, index, lane, address, name)

    def _last(self, lanes: Lanes, cta: int) -> int:
        """Return the last of some lanes that is of a CTA."""
        return int(lanes.index[lanes.cta == cta][-1])
