"""``barrier.cluster``: one barrier a cluster, whose arrival and wait are two instructions."""

from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.geometry import WARP, Index
from oracle.ptxsim.lanes import LANES, Lanes, lanes_of, union
from oracle.ptxsim.machine import Machine

Array = npt.NDArray[Any]


class ClusterBarriers:
    """The barriers of a tile's clusters.

    Parameters
    ----------
    machine
        The tile.
    alive
        bool per lane, kept by the scheduler: a barrier waits for the threads that have not exited.
    """

    def __init__(self, machine: Machine, alive: npt.NDArray[np.bool_]) -> None:
        self.machine = machine
        self.geometry = machine.geometry
        self.alive = alive
        geometry = self.geometry
        self._cluster = geometry.cluster_of.take(geometry.cta)
        # How often each thread has arrived and waited, and how often each cluster's barrier was complete.
        self._arrived = np.zeros(geometry.size, np.int32)
        self._waited = np.zeros(geometry.size, np.int32)
        self._complete = np.zeros(len(geometry.members), np.int32)
        # How many threads of each cluster live, and of them have still to arrive; how many have arrived.
        self._living = self._missing = self._count(alive)
        self._come = np.zeros(len(geometry.members), np.intp)
        # Who waits for the rest of its warp, and who for the cluster: the lanes, by instruction.
        self._gathering: dict[int, Index] = {}
        self._waiting: dict[int, Lanes] = {}

    def waiting_lanes(self) -> list[tuple[int, Lanes]]:
        """Return who waits, by instruction."""
        gathering = [(index, lanes_of(self.geometry, lanes)) for index, lanes in self._gathering.items()]
        return gathering + list(self._waiting.items())

    def _count(self, which: npt.NDArray[np.bool_]) -> Index:
        """Return how many lanes of each cluster are among ``which``."""
        return np.bincount(self._cluster[which], minlength=len(self.geometry.members))

    def come(self, index: int, lanes: Lanes) -> list[tuple[int, Lanes]]:
        """Note lanes at an arrival or a wait; return who goes on, and where."""
        if lanes.level > LANES and not self._gathering:
            return self._pass(index, lanes)
        self._gathering[index] = _merged(self._gathering.get(index), lanes.index)
        return self._gather()

    def left(self) -> list[tuple[int, Lanes]]:
        """Note that threads have exited; return who goes on, and where."""
        self._living = self._count(self.alive)
        behind = self._arrived == self._complete.take(self._cluster)
        self._missing = self._count(self.alive & behind)
        return self._gather() + self._release()

    def _gather(self) -> list[tuple[int, Lanes]]:
        """Let the warps pass that are there with all their living threads: aligned, at one instruction."""
        living = np.count_nonzero(self.alive.reshape(-1, WARP), axis=1)
        groups: dict[object, list[int]] = {}
        for index in self._gathering:
            opcode = self.machine.program.code[index].opcode
            groups.setdefault(index if "aligned" in opcode else ".wait" in opcode, []).append(index)
        found = []
        for indices in groups.values():
            come = np.zeros(len(living), np.int64)
            for index in indices:
                come += np.bincount(self._gathering[index] // WARP, minlength=len(living))
            for index in indices:
                lanes = self._gathering[index]
                whole = (come == living)[lanes // WARP]
                if whole.any():
                    self._gathering[index] = lanes[~whole]
                    found += self._pass(index, lanes_of(self.geometry, lanes[whole]))
        self._gathering = {index: lanes for index, lanes in self._gathering.items() if len(lanes)}
        return found

    def _pass(self, index: int, lanes: Lanes) -> list[tuple[int, Lanes]]:
        """Let whole warps arrive or wait."""
        arrived, waited = lanes.take(self._arrived), lanes.take(self._waited)
        opcode = self.machine.program.code[index].opcode
        if ".wait" in opcode:
            self._refuse(arrived == waited, index, lanes, "a wait without an arrival")
            waiting = [self._waiting[index], lanes] if index in self._waiting else [lanes]
            self._waiting[index] = union(self.geometry, waiting)
            return self._release()
        self._refuse(arrived > waited, index, lanes, "a second arrival without a wait between")
        self._arrived = lanes.put(self._arrived, arrived + np.int32(1))
        here = lanes.once("per cluster", lambda: self._of_clusters(lanes))
        self._missing = self._missing - here
        self._come = self._come + here
        self.machine.cluster_clocks.cluster_arrive(lanes, relaxed=".relaxed" in opcode)
        return [(index + 1, lanes), *self._release()]

    def _refuse(self, bad: Array, index: int, lanes: Lanes, problem: str) -> None:
        if bad.any():
            lane = int(lanes.index[np.flatnonzero(bad)[0]])
            raise self.machine.error("barrier", f"{problem} at the cluster's barrier", index, lane)

    def _release(self) -> list[tuple[int, Lanes]]:
        """Complete the barriers that all living threads have reached; return who goes on, and where."""
        done = (self._missing == 0) & (self._come > 0)
        if done.any():
            come = self._arrived > self._complete.take(self._cluster)
            self._complete = self._complete + done
            self._missing = np.where(done, self._living, self._missing)
            self._come = np.where(done, 0, self._come)
            self.machine.cluster_clocks.cluster_complete(done, come & done.take(self._cluster))
        released = []
        for index, lanes in list(self._waiting.items()):
            arrived = lanes.take(self._arrived)
            go = self._complete.take(lanes.take(self._cluster)) >= arrived
            gone, stay = lanes.split(go)
            if gone is not None:
                self._waited = gone.put(self._waited, gone.take(self._arrived))
                self.machine.cluster_passed(gone)
                released.append((index + 1, gone))
            if stay is None:
                del self._waiting[index]
            else:
                self._waiting[index] = stay
        return released

    def _of_clusters(self, lanes: Lanes) -> Index:
        """Return how many of the lanes each cluster has."""
        return np.bincount(lanes.take(self._cluster), minlength=len(self.geometry.members))

    def missing(self, index: int, lane: int) -> list[int]:
        """Return the threads that a lane waits for: of its warp, or of its cluster."""
        if lane in self._gathering.get(index, ()):
            first = lane // WARP * WARP
            mates = np.flatnonzero(self.alive[first : first + WARP]) + first
            return [int(other) for other in np.setdiff1d(mates, self._gathering[index])]
        cluster = self._cluster[lane]
        here = (self._cluster == cluster) & self.alive
        return [int(other) for other in np.flatnonzero(here & (self._arrived == self._complete[cluster]))]


def _merged(lanes: Index | None, more: Index) -> Index:
    return more if lanes is None else np.sort(np.concatenate([lanes, more]))
