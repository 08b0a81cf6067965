"""CTA barriers: sixteen a CTA, each counting threads; for all that does not arrive at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.lanes import WARP, Index, Lanes, lanes_of
from oracle.ptxsim.machine import Machine

Array = npt.NDArray[Any]

BARRIERS = 16


@dataclass
class _Arrival:
    """Lanes that arrived at one instruction: ``key`` is CTA * 16 + barrier; ``sync`` if they wait."""

    index: int
    lanes: Index
    key: npt.NDArray[np.int64]
    sync: bool
    heard: dict[int, npt.NDArray[np.int64]]


class Barriers:
    """The barriers of a tile.

    Parameters
    ----------
    machine
        The tile.
    alive
        bool per lane, kept by the scheduler: the threads that have not exited. A barrier without a thread
        count waits for those.
    """

    def __init__(self, machine: Machine, alive: npt.NDArray[np.bool_]) -> None:
        self.machine = machine
        self.geometry = machine.geometry
        self.alive = alive
        self.waiting: list[_Arrival] = []
        self._expected = np.zeros(self.geometry.ctas * BARRIERS, np.int64)

    def waiting_lanes(self) -> list[tuple[int, Lanes]]:
        """Return who waits, by instruction."""
        return [(a.index, lanes_of(self.geometry, a.lanes)) for a in self.waiting if a.sync and len(a.lanes)]

    def arrive(self, index: int, lanes: Lanes, operands: list[Array]) -> list[tuple[int, Lanes]]:
        """Note an arrival; return who goes on, and where.

        ``operands`` are the barrier numbers and, if given, the thread counts, one a lane.
        """
        machine = self.machine
        numbers = operands[0].astype(np.int64)
        if (numbers >= BARRIERS).any():
            position = int(np.flatnonzero(numbers >= BARRIERS)[0])
            raise machine.error(
                "barrier", f"barrier {numbers[position]} of {BARRIERS}", index, int(lanes.index[position])
            )
        key = self.geometry.cta[lanes.index] * BARRIERS + numbers
        counts = operands[1].astype(np.int64) if len(operands) > 1 else np.zeros(lanes.n, np.int64)
        known = self._expected[key]
        busy = np.isin(key, np.concatenate([np.zeros(0, np.int64), *(a.key for a in self.waiting)]))
        bad = (counts % WARP != 0) | (busy & (known != counts))
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            raise machine.error(
                "barrier",
                f"the thread count {counts[position]} is no multiple of 32, or differs from "
                f"the {known[position]} that others gave",
                index,
                int(lanes.index[position]),
            )
        self._expected[key] = counts
        sync = "sync" in machine.program.code[index].opcode
        heard = {} if sync else machine.clocks.leave_word(lanes)
        self.waiting.append(_Arrival(index, lanes.index, key, sync, heard))
        released = self.complete()
        if not sync:
            released.append((index + 1, lanes))
        return released

    def complete(self) -> list[tuple[int, Lanes]]:
        """Let go the barriers that all their threads have reached; return who goes on, and where."""
        if not self.waiting:
            return []
        keys = np.concatenate([a.key for a in self.waiting])
        arrived = np.bincount(keys, minlength=len(self._expected))
        living = np.bincount(self.geometry.cta[self.alive], minlength=self.geometry.ctas).repeat(BARRIERS)
        expected = np.where(self._expected == 0, living, self._expected)
        done = np.flatnonzero((arrived > 0) & (arrived >= expected))
        released: list[tuple[int, Lanes]] = []
        if not len(done):
            return released
        lanes_by_index: dict[int, list[Index]] = {}
        for key in done:
            for index, lanes in self._release(int(key), int(arrived[key]), int(expected[key])):
                lanes_by_index.setdefault(index, []).append(lanes)
        self.waiting = [a for a in self.waiting if len(a.lanes)]
        for index, parts in lanes_by_index.items():
            released.append((index + 1, lanes_of(self.geometry, np.sort(np.concatenate(parts)))))
        return released

    def _release(self, key: int, arrived: int, expected: int) -> list[tuple[int, Index]]:
        """Take the lanes of one barrier out of the waiting; they have met."""
        machine = self.machine
        parts: dict[int, list[Index]] = {}
        words = []
        for arrival in self.waiting:
            mine = arrival.key == key
            lanes = arrival.lanes[mine]
            if not len(lanes):
                continue
            if arrived > expected:
                raise machine.error(
                    "barrier",
                    f"{arrived} threads arrived at a barrier of {expected}",
                    arrival.index,
                    int(lanes[0]),
                )
            arrival.lanes, arrival.key = arrival.lanes[~mine], arrival.key[~mine]
            if arrival.sync:
                parts.setdefault(arrival.index, []).append(lanes)
            else:
                words.append(arrival.heard[key // BARRIERS])
        found = [(index, np.sort(np.concatenate(lanes))) for index, lanes in parts.items()]
        for index, lanes in found:
            opcode = machine.program.code[index].opcode
            if ".aligned" in opcode or opcode.startswith("bar."):
                self._aligned(index, lanes)
        if found:
            together = np.sort(np.concatenate([lanes for _, lanes in found]))
            cta = key // BARRIERS
            living = self.alive[cta * self.geometry.pitch : (cta + 1) * self.geometry.pitch].sum()
            machine.clocks.barrier(
                lanes_of(self.geometry, together), not words and len(together) == living, words
            )
        return found

    def _aligned(self, index: int, lanes: Index) -> None:
        """Raise unless each warp came with all its living threads, as ``.aligned`` asks."""
        warps, counts = np.unique(lanes // WARP, return_counts=True)
        living = self.alive.reshape(-1, WARP)[warps].sum(axis=1)
        if (counts != living).any():
            warp = int(warps[np.flatnonzero(counts != living)[0]])
            missing = np.setdiff1d(
                np.flatnonzero(self.alive[warp * WARP : (warp + 1) * WARP]) + warp * WARP, lanes
            )
            raise self.machine.error(
                "divergent barrier",
                "thread "
                f"{self.geometry.thread_in_grid(int(missing[0]))} of the same warp is not at this barrier",
                index,
                int(lanes[lanes // WARP == warp][0]),
            )
