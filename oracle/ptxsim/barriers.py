"""CTA barriers: sixteen a CTA, each counting threads; for all that does not arrive at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.clocks import Word
from oracle.ptxsim.geometry import WARP, Index
from oracle.ptxsim.lanes import Lanes, lanes_of, union
from oracle.ptxsim.machine import Machine
from oracle.ptxsim.syntax import Immediate

Array = npt.NDArray[Any]

BARRIERS = 16


@dataclass
class _Arrival:
    """Lanes that arrived at one instruction: ``key`` is CTA * 16 + barrier; ``sync`` if they wait."""

    index: int
    lanes: Index
    key: npt.NDArray[np.int64]
    sync: bool
    heard: dict[int, Word]


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
        # Whole warps at barriers of all threads of their CTAs, the usual case: instruction, lanes, barrier.
        # They become part of ``waiting`` once anyone waits otherwise.
        self._warps: list[tuple[int, Lanes, int]] = []
        self._living = self._count_living()
        slots = self.geometry.ctas * BARRIERS
        self._expected = np.zeros(slots, np.int64)
        self._arrived = np.zeros(slots, np.int64)
        self._told = np.zeros(slots, np.bool_)

    def waiting_lanes(self) -> list[tuple[int, Lanes]]:
        """Return who waits, by instruction."""
        self._spread()
        return [(a.index, lanes_of(self.geometry, a.lanes)) for a in self.waiting if a.sync and len(a.lanes)]

    def _count_living(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.geometry.cta[self.alive], minlength=self.geometry.ctas)

    def left(self) -> list[tuple[int, Lanes]]:
        """Note that threads have exited; return who goes on, and where."""
        self._living = self._count_living()
        self._spread()
        return self.complete()

    def come(self, index: int, lanes: Lanes) -> list[tuple[int, Lanes]]:
        """Note whole warps at a `simple` barrier; return who goes on, and where."""
        number = self.machine.program.code[index].operands[0]
        assert isinstance(number, Immediate)
        if self.waiting or number.bits >= BARRIERS or any(other != number.bits for *_, other in self._warps):
            return self.arrive(index, lanes, [np.full(lanes.n, number.bits, np.uint32)])
        self._warps.append((index, lanes, number.bits))
        arrived = self._arrived[number.bits :: BARRIERS]
        arrived += lanes.per_cta()
        self._expected[number.bits :: BARRIERS] = 0
        done = arrived == self._living
        if not done.any():
            return []
        if ((arrived > 0) & ~done).any():
            self._spread()
            return self.complete()
        groups: dict[int, list[Lanes]] = {}
        for at, come, _ in self._warps:
            groups.setdefault(at, []).append(come)
        self._warps = []
        arrived[:] = 0
        released = [(at, union(self.geometry, come)) for at, come in groups.items()]
        self.machine.clocks.barrier(union(self.geometry, [come for _, come in released]), full=True)
        return [(at + 1, come) for at, come in released]

    def _spread(self) -> None:
        """Let warps wait as lanes do."""
        for index, lanes, number in self._warps:
            key = self.geometry.cta[lanes.index] * BARRIERS + number
            self.waiting.append(_Arrival(index, lanes.index, key, True, {}))
        self._warps = []

    def arrive(self, index: int, lanes: Lanes, operands: list[Array]) -> list[tuple[int, Lanes]]:
        """Note an arrival; return who goes on, and where.

        ``operands`` are the barrier numbers and, if given, the thread counts, one a lane.
        """
        machine = self.machine
        self._spread()
        numbers = operands[0].astype(np.int64)
        if (numbers >= BARRIERS).any():
            position = int(np.flatnonzero(numbers >= BARRIERS)[0])
            raise machine.error(
                "barrier", f"barrier {numbers[position]} of {BARRIERS}", index, int(lanes.index[position])
            )
        key = self.geometry.cta[lanes.index] * BARRIERS + numbers
        counts = operands[1].astype(np.int64) if len(operands) > 1 else np.zeros(lanes.n, np.int64)
        known = self._expected[key]
        bad = (counts % WARP != 0) | ((self._arrived[key] > 0) & (known != counts))
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
        self._arrived += np.bincount(key, minlength=len(self._arrived))
        sync = "sync" in machine.program.code[index].opcode
        heard = {} if sync else machine.clocks.leave_word(lanes)
        if not sync:
            self._told[key] = True
        self.waiting.append(_Arrival(index, lanes.index, key, sync, heard))
        released = self.complete()
        if not sync:
            released.append((index + 1, lanes))
        return released

    def complete(self) -> list[tuple[int, Lanes]]:
        """Let go the barriers that all their threads have reached; return who goes on, and where."""
        if not self.waiting:
            return []
        living = self._living.repeat(BARRIERS)
        arrived = self._arrived
        expected = np.where(self._expected == 0, living, self._expected)
        done = (arrived > 0) & (arrived >= expected)
        if not done.any():
            return []
        released: dict[int, list[Index]] = {}
        # Barriers of all threads, nobody only arriving, are let go together: most are of that kind.
        whole = done & (arrived == living) & (arrived == expected) & ~self._told
        if whole.any():
            self._let_go(whole, released)
        for key in np.flatnonzero(done & ~whole):
            self._release(int(key), int(arrived[key]), int(expected[key]), released)
        self.waiting = [a for a in self.waiting if len(a.lanes)]
        arrived[done] = 0
        self._told[done] = False
        return [
            (index + 1, lanes_of(self.geometry, np.sort(np.concatenate(parts))))
            for index, parts in released.items()
        ]

    def _let_go(self, whole: npt.NDArray[np.bool_], released: dict[int, list[Index]]) -> None:
        """Take the lanes of some barriers of all their threads out of the waiting; they have met."""
        parts: dict[int, list[tuple[Index, npt.NDArray[np.int64]]]] = {}
        for arrival in self.waiting:
            mine = whole[arrival.key]
            parts.setdefault(arrival.index, []).append((arrival.lanes[mine], arrival.key[mine]))
            arrival.lanes, arrival.key = arrival.lanes[~mine], arrival.key[~mine]
        for index, found in parts.items():
            lanes, keys = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
            if len(lanes):
                self._aligned(index, lanes, keys)
                released.setdefault(index, []).append(lanes)
        together = np.sort(np.concatenate([lanes for found in parts.values() for lanes, _ in found]))
        self.machine.clocks.barrier(lanes_of(self.geometry, together), full=True)

    def _release(self, key: int, arrived: int, expected: int, released: dict[int, list[Index]]) -> None:
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
        for index, found in parts.items():
            lanes = np.concatenate(found)
            self._aligned(index, lanes, np.full(len(lanes), key))
            released.setdefault(index, []).append(lanes)
        if parts:
            together = np.sort(np.concatenate([lanes for found in parts.values() for lanes in found]))
            cta = key // BARRIERS
            living = self.alive[cta * self.geometry.pitch : (cta + 1) * self.geometry.pitch].sum()
            machine.clocks.barrier(
                lanes_of(self.geometry, together), not words and len(together) == living, words
            )

    def _aligned(self, index: int, lanes: Index, keys: npt.NDArray[np.int64]) -> None:
        """Raise unless each warp came with all its living threads, where ``.aligned`` asks for it."""
        opcode = self.machine.program.code[index].opcode
        if ".aligned" not in opcode and not opcode.startswith("bar."):
            return
        groups = lanes // WARP * BARRIERS + keys % BARRIERS
        counts = np.bincount(groups, minlength=self.geometry.size // WARP * BARRIERS)
        living = np.count_nonzero(self.alive.reshape(-1, WARP), axis=1).repeat(BARRIERS)
        bad = np.flatnonzero((counts > 0) & (counts != living))
        if len(bad):
            group = int(bad[0])
            warp, mine = group // BARRIERS, lanes[groups == group]
            first = warp * WARP
            missing = np.setdiff1d(np.flatnonzero(self.alive[first : first + WARP]) + first, mine)
            thread = self.geometry.thread_in_grid(int(missing[0]))
            raise self.machine.error(
                "divergent barrier",
                f"thread {thread} of the same warp is not at this barrier",
                index,
                int(mine.min()),
            )
