"""A tile of clusters: what generated code asks of other CTAs' shared memory, and of mbarriers."""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault
from oracle.ptxsim.atomics import accumulate
from oracle.ptxsim.cluster_clocks import ClusterClocks
from oracle.ptxsim.distant import DistantShared
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import Index
from oracle.ptxsim.lanes import Lanes, lanes_of
from oracle.ptxsim.mbarriers import BYTES, Mbarriers
from oracle.ptxsim.memory import REGION_BITS
from oracle.ptxsim.program import WINDOWS
from oracle.ptxsim.tile import Tile
from oracle.ptxsim.vectors import interleaved, part, scatter

Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]


class Distributed(Tile):
    """A tile whose program may use clusters and mbarriers.

    Attributes
    ----------
    tested
        What the last `mbarrier_test` found, by lane.
    """

    tested: npt.NDArray[np.bool_]

    @cached_property
    def mbarriers(self) -> Mbarriers:
        """The mbarriers."""
        return Mbarriers(self.geometry.ctas)

    @property
    def distant(self) -> DistantShared:
        """The shared memory, as a cluster sees it."""
        assert isinstance(self.shared, DistantShared)
        return self.shared

    @property
    def cluster_clocks(self) -> ClusterClocks:
        """The clocks, as a cluster has them."""
        assert isinstance(self.clocks, ClusterClocks)
        return self.clocks

    def _window(self, index: int, lanes: Lanes, base: Array, offset: int, space: str) -> Array:
        """Return 32-bit addresses; generic ones must be of shared memory."""
        if space != "generic":
            return self._narrow(lanes, base, offset)
        address = self._broad(lanes, base, offset)
        outside = address >> np.uint64(REGION_BITS) != WINDOWS["shared"] >> REGION_BITS
        if outside.any():
            position = int(np.flatnonzero(outside)[0])
            at = int(address[position])
            raise self._fault(index, lanes)("out of bounds", "an address not in shared memory", position, at)
        return address.astype(np.uint32)

    # Addresses.

    def map_address(self, index: int, lanes: Lanes, base: Array, rank: Array, generic: bool) -> Array:
        """``mapa``: the same place in the CTA of a rank."""
        space = "generic" if generic else "shared"
        address = self._window(index, lanes, base, 0, space)
        ranks = np.broadcast_to(lanes.pick(rank), lanes.n)
        found = self.distant.mapped(address, ranks, self._fault(index, lanes))
        return found.astype(np.uint64) + np.uint64(WINDOWS["shared"]) if generic else found

    def address_rank(self, index: int, lanes: Lanes, base: Array, generic: bool) -> Array:
        """``getctarank``: the rank of the CTA that an address belongs to."""
        space = "generic" if generic else "shared"
        address = self._window(index, lanes, base, 0, space)
        return self.distant.ranks(lanes, address)

    # Loads and stores of .shared::cluster.

    def load_cluster(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, count: int
    ) -> list[Array]:
        """``ld.shared::cluster``."""
        if not lanes.n:
            return [np.empty(0, code)] * count
        place = self._narrow(lanes, address, offset)
        return self.distant.load_distant(lanes, place, code, count, self._fault(index, lanes))

    def store_cluster(
        self, index: int, lanes: Lanes, address: Array, offset: int, code: str, values: tuple[Array, ...]
    ) -> None:
        """``st.shared::cluster``."""
        if lanes.n:
            place = self._narrow(lanes, address, offset)
            picked = [lanes.pick(v) for v in values]
            self.distant.store_distant(lanes, place, code, picked, self._fault(index, lanes))

    # Mbarriers.

    def _objects(
        self, index: int, lanes: Lanes, base: Array, offset: int, space: str
    ) -> tuple[Index, Index, Array]:
        """Return the CTA and the place of each lane's mbarrier, and the addresses."""
        address = self._window(index, lanes, base, offset, space)
        fault = self._fault(index, lanes)
        if space == "shared":
            offsets = self.shared.offsets(lanes, address, BYTES, fault)
        else:
            offsets = self.distant.elsewhere(lanes, address, BYTES, fault)
        cta = offsets // self.shared.pitch
        return cta, offsets - cta * self.shared.pitch, address

    def _keys(self, index: int, lanes: Lanes, base: Array, offset: int, space: str) -> tuple[Index, Fault]:
        """Return the keys of the lanes' mbarriers, and how to make an error that names them."""
        cta, place, address = self._objects(index, lanes, base, offset, space)
        fault = self._named(index, lanes, place, address)
        return self.mbarriers.keys(cta, place, fault), fault

    def _named(self, index: int, lanes: Lanes, place: Index, where: Array) -> Fault:
        """Return the maker of errors that name the lanes' mbarriers."""
        plain = self._fault(index, lanes)

        def fault(
            kind: str, detail: str, position: int, address: int | None = None, buffer: str | None = None
        ) -> SimulationError:
            name = self.program.shared_name(int(place[position]))
            return plain(kind, detail, position, int(where[position]), name)

        return fault

    def _counts(self, lanes: Lanes, value: Array) -> I64:
        return np.broadcast_to(lanes.pick(value), lanes.n).astype(np.int64)

    def mbarrier_init(
        self, index: int, lanes: Lanes, base: Array, offset: int, space: str, count: Array
    ) -> None:
        """``mbarrier.init``."""
        if not lanes.n:
            return
        cta, place, address = self._objects(index, lanes, base, offset, space)
        fault = self._named(index, lanes, place, address)
        self.mbarriers.init(cta, place, self._counts(lanes, count), fault)

    def mbarrier_inval(self, index: int, lanes: Lanes, base: Array, offset: int, space: str) -> None:
        """``mbarrier.inval``."""
        if lanes.n:
            self.mbarriers.invalidate(self._keys(index, lanes, base, offset, space)[0])

    def mbarrier_tx(
        self, index: int, lanes: Lanes, base: Array, offset: int, space: str, size: Array, complete: bool
    ) -> None:
        """``mbarrier.expect_tx`` and ``mbarrier.complete_tx``."""
        if lanes.n:
            keys, fault = self._keys(index, lanes, base, offset, space)
            change = self.mbarriers.complete if complete else self.mbarriers.expect
            change(keys, self._counts(lanes, size), fault)

    def mbarrier_arrive(
        self,
        index: int,
        lanes: Lanes,
        base: Array,
        offset: int,
        space: str,
        count: Array,
        expect: bool,
        relaxed: bool,
    ) -> Array:
        """``mbarrier.arrive``, with ``.expect_tx`` of ``count`` bytes if ``expect``; the states."""
        if not lanes.n:
            return np.empty(0, np.uint64)
        keys, fault = self._keys(index, lanes, base, offset, space)
        counts = self._counts(lanes, count)
        if expect:
            self.mbarriers.expect(keys, counts, fault)
            counts = np.ones(lanes.n, np.int64)
        return self.mbarriers.arrive(keys, counts, fault)

    def mbarrier_test(
        self,
        index: int,
        lanes: Lanes,
        base: Array,
        offset: int,
        space: str,
        operand: Array,
        parity: bool,
        relaxed: bool,
    ) -> Array:
        """``mbarrier.test_wait`` and ``.try_wait``: whether each lane's phase is complete."""
        keys, fault = self._keys(index, lanes, base, offset, space)
        wanted = np.broadcast_to(lanes.pick(operand), lanes.n)
        self.tested = self.mbarriers.test(keys, wanted, parity, fault)
        if self.tested.any() and not relaxed:
            self.cluster_clocks.observe(lanes_of(self.geometry, lanes.index[self.tested]))
        for lane, key in zip(lanes.index[~self.tested], keys[~self.tested], strict=True):
            self._waiting_for[int(lane)] = int(key)
        return self.tested

    def unfinished(self, index: int, lane: int) -> SimulationError:
        """Return the error of a lane that waits for a phase that nobody will complete."""
        key = self._waiting_for[lane]
        place = self.mbarriers.name(key)
        name, address = self.program.shared_name(place), self.program.shared_start + place
        detail = f"waits for an mbarrier whose {self.mbarriers.lacks(key)}"
        return self.error("deadlock", detail, index, lane, address, name)

    # Asynchronous stores.

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
        address = self._window(index, lanes, base, offset, space)
        size = np.dtype(code).itemsize * len(values)
        offsets = self.distant.elsewhere(lanes, address, size, self._fault(index, lanes))
        keys, fault = self._keys(index, lanes, bar, bar_offset, space)
        apart = offsets // self.shared.pitch != keys % self.geometry.ctas
        if apart.any():
            position = int(np.flatnonzero(apart)[0])
            raise fault("mbarrier", "the mbarrier is in another CTA than the destination", position)
        picked = [np.broadcast_to(lanes.pick(v), lanes.n) for v in values]
        if name:
            self.distant.atomic_distant(lanes, address, code, self._fault(index, lanes))
        else:
            self.distant.mark(offsets, size)
        self._deliver(offsets, keys, code, picked, name, fault)

    def _deliver(
        self, offsets: Index, keys: Index, code: str, values: list[Array], name: str, fault: Fault
    ) -> None:
        """Write what stores have brought, and tell their mbarriers."""
        size = np.dtype(code).itemsize
        view, first = self.shared.view(code), part(offsets, size)
        if name:
            accumulate(name, view, first, values[0])
        else:
            scatter(view, first, len(values), True, interleaved(values, len(offsets), code))
        self.mbarriers.complete(keys, np.full(len(keys), size * len(values), np.int64), fault)

    @cached_property
    def _waiting_for(self) -> dict[int, int]:
        """The mbarrier that each lane has found unfinished, by lane."""
        return {}

    def fence_init(self, lanes: Lanes) -> None:
        """``fence.mbarrier_init.release.cluster``."""

    def leave(self, cta: Index) -> None:
        """Note that all threads of CTAs have exited."""
        self.distant.gone[cta] = True
