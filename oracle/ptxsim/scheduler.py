"""Decides which lanes run next, and holds the lanes that wait for others.

In the canonical order, of all lanes that can run, those at the lowest instruction go next, together; in
another (`orders`), those of the most urgent priority.
"""

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.barriers import Barriers
from oracle.ptxsim.cluster_barriers import ClusterBarriers
from oracle.ptxsim.codegen import Run, Segment, prologue, segment, single
from oracle.ptxsim.deadlocks import deadlock
from oracle.ptxsim.emitter import DTYPES
from oracle.ptxsim.geometry import WARP, Geometry, Index
from oracle.ptxsim.lanes import LANES, Lanes, lanes_of
from oracle.ptxsim.machine import CtaLanes, Machine
from oracle.ptxsim.ops_collective import FULL_MASK
from oracle.ptxsim.orders import PRIORITIES
from oracle.ptxsim.program import Program
from oracle.ptxsim.syntax import Immediate, Register

Array = npt.NDArray[Any]


_POLLS = 1000
"""How often threads may ask for a phase while nobody else can run."""


class Code:
    """The functions generated for a program so far, and what only depends on the tile's shape."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._segments: dict[tuple[int, int, bool], Segment] = {}
        self._singles: dict[int, Run] = {}
        self._per_cta = prologue(program, program.per_cta)
        self._per_thread = prologue(program, program.per_thread)
        self._shaped: dict[Geometry, dict[int, Array]] = {}

    def segment(self, start: int, lanes: Lanes) -> Segment:
        """Return the code that ``lanes`` run from ``start``."""
        key = start, lanes.level, lanes.rows is None
        found = self._segments.get(key)
        if found is None:
            found = self._segments[key] = segment(self.program, *key)
        return found

    def single(self, index: int) -> Run:
        """Return the code of one collective for lanes that met."""
        if index not in self._singles:
            self._singles[index] = single(self.program, index)
        return self._singles[index]

    def registers(self, machine: Machine) -> list[Any]:
        """Return a register file: what the order fills it with, and what is known before the start."""
        program, geometry = self.program, machine.geometry
        blanks = {code: machine.order.blank(geometry.size, dtype) for code, dtype in DTYPES.items()}
        registers: list[Any] = [blanks[program.homes[r.index]] for r in program.registers]
        run, kept = self._per_cta
        run(registers, CtaLanes(geometry), machine)
        for register in kept:
            registers[register] = np.repeat(
                np.broadcast_to(registers[register], geometry.ctas), geometry.pitch
            )
        if geometry not in self._shaped:
            run, kept = self._per_thread
            run(registers, Lanes(geometry, None, geometry.pitch), machine)
            self._shaped[geometry] = {register: registers[register] for register in kept}
        for register, value in self._shaped[geometry].items():
            registers[register] = value
        return registers


class Scheduler:
    """Runs one tile to its end.

    Parameters
    ----------
    code, machine
        The program and the tile.
    budget
        Instructions that may be issued before the run counts as endless.
    """

    def __init__(self, code: Code, machine: Machine, budget: int) -> None:
        self.code = code
        self.program = code.program
        self.machine = machine
        self.geometry = machine.geometry
        self.budget = budget
        self.instructions = 0
        self.lane_instructions = 0
        self.registers = code.registers(machine)
        self.alive = self.geometry.exists.copy()
        self.barriers = Barriers(machine, self.alive)
        self.clusters = ClusterBarriers(machine, self.alive) if self.program.clustered else None
        self._parked: list[tuple[int, Lanes]] = []
        self._completions = self._polls = 0
        self._failed = np.zeros(self.geometry.size if self.clusters else 0, np.bool_)
        self._ready: dict[tuple[int, int], list[Lanes]] = {}
        self._order: list[tuple[int, int]] = []
        self._meeting: dict[int, list[Lanes]] = {}
        self._priority = machine.order.priority

    def run(self) -> None:
        """Run until every lane has ended."""
        geometry = self.geometry
        self._add(0, lanes_of(geometry, np.flatnonzero(geometry.exists)))
        while self._order:
            key = heapq.heappop(self._order)
            self._run(*key, self._union(self._ready.pop(key)))
            if self._parked:
                self._wake()
        waiting = [(index, part) for index, parts in self._meeting.items() for part in parts]
        waiting += self.barriers.waiting_lanes() + self._parked
        if self.clusters:
            waiting += self.clusters.waiting_lanes()
        if waiting:
            raise deadlock(self.machine, waiting, self._operand, self.clusters)

    def _run(self, priority: int, start: int, lanes: Lanes) -> None:
        found = self.code.segment(start, lanes)
        count = found.end - found.start
        self.instructions += count
        self.lane_instructions += count * lanes.n
        if self.instructions > self.budget:
            raise self.machine.error(
                "instruction budget",
                f"more than {self.budget} instructions were issued",
                start,
                int(lanes.index[0]),
            )
        held = found.run(self.registers, lanes, self.machine) if found.run else None
        if found.stop == "fall":
            self._push((priority, found.end), lanes)
        elif found.stop == "wait":
            self._arrive(priority, found.end, lanes)
        else:
            if held is not None:
                some = int(np.count_nonzero(held))
                if some < lanes.n:
                    self._push((priority, found.end), self._part(lanes, ~held) if some else lanes)
                    if not some:
                        return
                    lanes = self._part(lanes, held)
            if found.stop == "branch":
                self._push((priority, self.program.targets[found.end - 1]), lanes)
            else:
                self._leave(found.end - 1, lanes)

    def _part(self, lanes: Lanes, held: Array) -> Lanes:
        return lanes_of(self.geometry, lanes.index[held])

    def _add(self, pc: int, lanes: Lanes) -> None:
        """Let lanes that met go on, each at its priority."""
        if self._priority is None:
            self._push((0, pc), lanes)
            return
        priority = lanes.take(self._priority)
        for which in range(PRIORITIES):
            mine = priority == which
            some = np.count_nonzero(mine)
            if some:
                self._push((which, pc), lanes if some == lanes.n else self._part(lanes, mine))

    def _push(self, key: tuple[int, int], lanes: Lanes) -> None:
        if key in self._ready:
            self._ready[key].append(lanes)
        else:
            self._ready[key] = [lanes]
            heapq.heappush(self._order, key)

    def _union(self, parts: list[Lanes]) -> Lanes:
        if len(parts) == 1:
            return parts[0]
        if sum(part.n for part in parts) == self.geometry.size:
            return Lanes(self.geometry, None, self.geometry.pitch)
        return lanes_of(self.geometry, _sorted(parts, self.geometry.size))

    def _leave(self, index: int, lanes: Lanes) -> None:
        self.alive[lanes.index] = False
        for pc, released in self.barriers.complete():
            self._add(pc, released)
        if self.clusters:
            self.machine.leave(index, lanes, self.alive)
            for pc, released in self.clusters.left():
                self._add(pc, released)

    # Rendezvous.

    def _arrive(self, priority: int, index: int, lanes: Lanes) -> None:
        """Lanes stand before a collective or barrier: let them wait, and let go whoever is complete."""
        guard = self.program.code[index].guard
        if guard is not None:
            held = self._value(guard.register, lanes) != guard.negated
            if not held.all():
                self._push((priority, index + 1), self._part(lanes, ~held))
                if not held.any():
                    return
                lanes = self._part(lanes, held)
        kind = self.program.forms[index].kind
        if kind == "cluster":
            assert self.clusters
            for pc, released in self.clusters.come(index, lanes):
                self._add(pc, released)
            return
        if kind == "phase":
            self._test(index, lanes)
            return
        if kind == "barrier":
            operands = [self._operand(operand, lanes) for operand in self.program.code[index].operands]
            for pc, released in self.barriers.arrive(index, lanes, operands):
                self._add(pc, released)
            return
        if lanes.level > LANES and index not in self._meeting:
            mask = self._operand(self.program.member_mask(index), lanes)
            if (mask == FULL_MASK).all():
                self._together(index, lanes)
                self._push((priority, index + 1), lanes)
                return
        waiting = self._meeting.setdefault(index, [])
        waiting.append(lanes)
        index_of_all = _sorted(waiting, self.geometry.size)
        ready = self._met(index, index_of_all)
        if not ready.any():
            return
        rest = index_of_all[~ready]
        if len(rest):
            self._meeting[index] = [lanes_of(self.geometry, rest)]
        else:
            del self._meeting[index]
        met = lanes_of(self.geometry, index_of_all[ready])
        self._together(index, met)
        self._add(index + 1, met)

    def _test(self, index: int, lanes: Lanes) -> None:
        """Let lanes go on whose mbarrier's phase is complete, and park the others."""
        self._together(index, lanes)
        done = self.machine.tested
        some = int(np.count_nonzero(done))
        if some:
            self._add(index + 1, self._part(lanes, done))
        if some < lanes.n:
            self._park(index, self._part(lanes, ~done))

    def _park(self, index: int, lanes: Lanes) -> None:
        """Let lanes wait, or for once not: ``try_wait`` may fail after a time."""
        late = self.machine.order.late
        if late is not None and ".try_wait" in self.program.code[index].opcode:
            failing = lanes.take(late & ~self._failed)
            if failing.any():
                gone = self._part(lanes, failing)
                self._failed[gone.index] = True
                self._add(index + 1, gone)
                lanes = self._part(lanes, ~failing)
        if lanes.n:
            self._parked.append((index, lanes))

    def _wake(self) -> None:
        """Test again where a phase has been completed since; if nobody can run, do what can wait no more."""
        completions = self.machine.mbarriers.completions
        while completions == self._completions and not self._order:
            if not self.machine.deliver_late():
                self._give_up()
                return
            completions = self.machine.mbarriers.completions
        if completions == self._completions:
            return
        self._completions, self._polls = completions, 0
        parked: dict[int, list[Lanes]] = {}
        for index, lanes in self._parked:
            parked.setdefault(index, []).append(lanes)
        self._parked = []
        for index, parts in parked.items():
            self._test(index, self._union(parts))

    def _give_up(self) -> None:
        """Let those go on who only asked, and were told no; at some time that counts as endless."""
        self._polls += 1
        if self._polls > _POLLS:
            return
        asking = [(i, part) for i, part in self._parked if ".test_wait" in self.program.code[i].opcode]
        self._parked = [
            (i, part) for i, part in self._parked if ".test_wait" not in self.program.code[i].opcode
        ]
        for index, lanes in asking:
            self._add(index + 1, lanes)

    def _together(self, index: int, lanes: Lanes) -> None:
        """Run a collective for lanes that met."""
        self.instructions += 1
        self.lane_instructions += lanes.n
        self.code.single(index)(self.registers, lanes, self.machine)

    def _value(self, register: Register, lanes: Lanes) -> Array:
        known = self.program.constants.get(register.index)
        if known is not None:
            return np.full(lanes.n, known.bits, np.uint32)
        return lanes.take(self.registers[register.index])

    def _operand(self, operand: object, lanes: Lanes) -> Array:
        if isinstance(operand, Register):
            value = self._value(operand, lanes)
            return value if value.dtype == np.uint32 else value.view(np.uint32)
        assert isinstance(operand, Immediate)
        return np.full(lanes.n, operand.bits & 0xFFFFFFFF, np.uint32)

    def _met(self, index: int, waiting: Index) -> Array:
        """Return which of the waiting lanes have all members of their mask waiting with them."""
        present = np.zeros(self.geometry.size, np.bool_)
        present[waiting] = True
        mask = np.zeros(self.geometry.size, np.uint32)
        mask[waiting] = self._operand(self.program.member_mask(index), Lanes(self.geometry, waiting, 1))
        here, masks = present.reshape(-1, WARP), mask.reshape(-1, WARP)
        if (masks[here] == FULL_MASK).all():
            return np.asarray(here.all(axis=1).repeat(WARP)[waiting])
        bits = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
        alone = here & (masks & bits == 0)
        if alone.any():
            row, lane = np.argwhere(alone)[0]
            raise self.machine.error(
                "member mask",
                f"the mask {masks[row, lane]:#x} leaves out the lane itself",
                index,
                int(row * WARP + lane),
            )
        # The lanes of a warp that wait with the same mask as each one must be the members of that mask.
        alike = (masks[:, :, None] == masks[:, None, :]) & here[:, None, :]
        return np.asarray((np.packbits(alike, axis=2, bitorder="little").view("<u4")[..., 0] == masks)[here])


def _sorted(parts: list[Lanes], size: int) -> Index:
    if len(parts) == 1:
        return parts[0].index
    present = np.zeros(size, np.bool_)
    for part in parts:
        present[part.index] = True
    return np.flatnonzero(present)
