"""A tile of clusters: what generated code asks of other CTAs' shared memory, and of mbarriers."""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault
from oracle.ptxsim.cluster_clocks import ClusterClocks
from oracle.ptxsim.distant import DistantShared
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import Index
from oracle.ptxsim.lanes import Lanes, lanes_of
from oracle.ptxsim.mbarriers import BYTES, Mbarriers
from oracle.ptxsim.memory import REGION_BITS
from oracle.ptxsim.program import WINDOWS
from oracle.ptxsim.tile import Tile

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
            relative = address - np.uint32(self.program.shared_start)
            self.shared.check(relative, address, BYTES, fault)
            return lanes.cta, relative.astype(np.intp), address
        offsets, _ = self.distant.elsewhere(lanes, address, BYTES, fault)
        cta = offsets // self.shared.pitch
        return cta, offsets - cta * self.shared.pitch, address

    def _keys(self, index: int, lanes: Lanes, base: Array, offset: int, space: str) -> tuple[Index, Fault]:
        """Return the keys of the lanes' mbarriers, which are there, and the maker of errors naming them."""
        cta, place, address = self._objects(index, lanes, base, offset, space)
        fault = self._named(index, lanes, place, address)
        keys = self.mbarriers.keys(cta, place, fault)
        made, fenced = self.mbarriers.made[keys], self.mbarriers.fenced[keys]
        bad = self.cluster_clocks.unordered_init(lanes.index, made, fenced)
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            maker = self.geometry.thread_in_grid(int(self.mbarriers.maker[keys[position]]))
            detail = f"nothing orders this after the initialisation of the mbarrier by thread {maker}"
            raise fault("mbarrier", detail, position)
        return keys, fault

    def _own(self, lanes: Lanes, cta: Index, fault: Fault) -> None:
        """Raise unless the mbarriers are of the lanes' own CTAs."""
        other = cta != lanes.cta
        if other.any():
            raise fault(
                "mbarrier", "an mbarrier of another CTA only takes arrivals", int(np.flatnonzero(other)[0])
            )

    def _touch(self, lanes: Lanes, keys: Index) -> None:
        """Note uses of mbarriers that may be of other CTAs."""
        self.distant.touch(lanes, keys % self.geometry.ctas * self.shared.pitch)

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
        self._own(lanes, cta, fault)
        keys = self.mbarriers.init(cta, place, self._counts(lanes, count), fault)
        self.distant.own(lanes, cta * self.shared.pitch + place, self._fault(index, lanes))
        self.cluster_clocks.know(len(self.mbarriers.places))
        self.mbarriers.made[keys] = lanes.take(self.clocks.stamp)
        self.mbarriers.maker[keys] = lanes.index
        self.mbarriers.fenced[keys] = False

    def mbarrier_inval(self, index: int, lanes: Lanes, base: Array, offset: int, space: str) -> None:
        """``mbarrier.inval``."""
        if lanes.n:
            keys, fault = self._keys(index, lanes, base, offset, space)
            self._own(lanes, keys % self.geometry.ctas, fault)
            self.mbarriers.invalidate(keys)
            place = np.array(self.mbarriers.places)[keys // self.geometry.ctas]
            self.distant.disown(keys % self.geometry.ctas * self.shared.pitch + place)

    def mbarrier_tx(
        self, index: int, lanes: Lanes, base: Array, offset: int, space: str, size: Array, complete: bool
    ) -> None:
        """``mbarrier.expect_tx`` and ``mbarrier.complete_tx``."""
        if lanes.n:
            keys, fault = self._keys(index, lanes, base, offset, space)
            self._touch(lanes, keys)
            change = self.mbarriers.complete if complete else self.mbarriers.expect
            change(keys, self._counts(lanes, size), fault)
            self._tell()

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
        self._touch(lanes, keys)
        if expect:
            self.mbarriers.expect(keys, counts, fault)
            counts = np.ones(lanes.n, np.int64)
        if relaxed:
            self.cluster_clocks.contribute(lanes, keys)
        else:
            self.cluster_clocks.arrive(lanes, keys)
        states = self.mbarriers.arrive(keys, counts, fault)
        self._tell()
        return states

    def _tell(self) -> None:
        """Tell the clocks of the phases that are complete now."""
        for keys in self.mbarriers.finished:
            self.cluster_clocks.complete(keys)
        self.mbarriers.finished = []

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
        self._own(lanes, keys % self.geometry.ctas, fault)
        wanted = np.broadcast_to(lanes.pick(operand), lanes.n)
        self.tested = self.mbarriers.test(keys, wanted, parity, fault)
        self._waited[lanes.index] = keys
        if self.tested.any() and not relaxed:
            seen = lanes_of(self.geometry, lanes.index[self.tested])
            self.cluster_clocks.observe(seen, keys[self.tested])
        return self.tested

    @cached_property
    def _waited(self) -> Index:
        """The mbarrier that each lane has tested last."""
        return np.zeros(self.geometry.size, np.intp)

    def unfinished(self, index: int, lane: int) -> SimulationError:
        """Return the error of a lane that waits for a phase that nobody will complete."""
        key = int(self._waited[lane])
        place = self.mbarriers.name(key)
        name, address = self.program.shared_name(place), self.program.shared_start + place
        detail = f"waits for an mbarrier whose {self.mbarriers.lacks(key)}"
        return self.error("deadlock", detail, index, lane, address, name)

    # Fences, and the barrier of the cluster.

    def fence_init(self, lanes: Lanes) -> None:
        """``fence.mbarrier_init.release.cluster``."""
        fencing = np.zeros(self.geometry.size, np.bool_)
        fencing[lanes.index] = True
        self.mbarriers.fenced |= fencing[self.mbarriers.maker]

    def fence_cluster(self, lanes: Lanes) -> None:
        """Note a fence of the cluster's scope or a wider one."""
        if self.program.clustered and lanes.n:
            self.cluster_clocks.fence(lanes)

    def cluster_passed(self, lanes: Lanes) -> None:
        """Note that ``barrier.cluster.wait`` has let lanes go."""
        self.cluster_clocks.cluster_pass(lanes)
        if lanes.rows is None:
            self.distant.tracker.cluster_barrier_of_all()
