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
from oracle.ptxsim.geometry import WARP, Index
from oracle.ptxsim.lanes import LANES, Lanes, everyone, lanes_of, merged, union
from oracle.ptxsim.machine import CtaLanes, Machine
from oracle.ptxsim.ops_collective import FULL_MASK
from oracle.ptxsim.orders import PRIORITIES
from oracle.ptxsim.program import Program
from oracle.ptxsim.registers import Registers
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

    def registers(self, machine: Machine) -> Registers:
        """Return a register file: what the order fills it with, and what is known before the start."""
        program, geometry = self.program, machine.geometry
        blanks = {code: machine.order.blank(geometry.size, dtype) for code, dtype in DTYPES.items()}
        registers: list[Any] = [blanks[program.homes[r.index]] for r in program.registers]
        run, kept = self._per_cta
        run(registers, CtaLanes(geometry), machine)
        per_cta = {register: np.broadcast_to(registers[register], geometry.ctas) for register in kept}
        lanes = everyone(geometry)
        for register, value in lanes.once("registers", lambda: self._shaped(lanes, machine)).items():
            registers[register] = value
        return Registers(registers, per_cta)

    def _shaped(self, lanes: Lanes, machine: Machine) -> dict[int, Array]:
        """Return the registers that depend on the tile's shape alone."""
        run, kept = self._per_thread
        registers: dict[int, Array] = {}
        run(registers, lanes, machine)
        return {register: registers[register] for register in kept}


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
            self._run(*key, union(geometry, self._ready.pop(key)))
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
            return
        if found.stop == "wait":
            self._arrive(priority, found.end, lanes)
            return
        if held is not None:
            gone, stay = lanes.split(held, self.program.steady_guard(found.end - 1))
            if stay is not None:
                self._push((priority, found.end), stay)
            if gone is None:
                return
            lanes = gone
        if found.stop == "branch":
            self._push((priority, self.program.targets[found.end - 1]), lanes)
        else:
            self._leave(found.end - 1, lanes)

    def _add(self, pc: int, lanes: Lanes) -> None:
        """Let lanes that met go on, each at its priority."""
        if self._priority is None:
            self._push((0, pc), lanes)
            return
        priority = lanes.take(self._priority)
        for which in range(PRIORITIES):
            mine = priority == which
            urgent, _ = lanes.split(mine)
            if urgent is not None:
                self._push((which, pc), urgent)

    def _push(self, key: tuple[int, int], lanes: Lanes) -> None:
        if key in self._ready:
            self._ready[key].append(lanes)
        else:
            self._ready[key] = [lanes]
            heapq.heappush(self._order, key)

    def _leave(self, index: int, lanes: Lanes) -> None:
        self.alive[lanes.index] = False
        for pc, released in self.barriers.left():
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
            come, pass_by = lanes.split(held, self.program.steady_guard(index))
            if pass_by is not None:
                self._push((priority, index + 1), pass_by)
            if come is None:
                return
            lanes = come
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
            if lanes.level > LANES and index in self.program.simple:
                for pc, released in self.barriers.come(index, lanes):
                    self._add(pc, released)
                return
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
        index_of_all = merged(self.geometry, waiting)
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
        done, waiting = lanes.split(self.machine.tested)
        if done is not None:
            self._add(index + 1, done)
        if waiting is not None:
            self._park(index, waiting)

    def _park(self, index: int, lanes: Lanes) -> None:
        """Let lanes wait, or for once not: ``try_wait`` may fail after a time."""
        late = self.machine.order.late
        waiting: Lanes | None = lanes
        if late is not None and ".try_wait" in self.program.code[index].opcode:
            gone, waiting = lanes.split(lanes.take(late & ~self._failed))
            if gone is not None:
                self._failed[gone.index] = True
                self._add(index + 1, gone)
        if waiting is not None:
            self._parked.append((index, waiting))

    def _wake(self) -> None:
        """Test again where a phase has been completed since; if nobody can run, do what can wait no more."""
        while self._parked:
            completions = self.machine.mbarriers.completions
            if completions != self._completions:
                self._completions, self._polls = completions, 0
                parked: dict[int, list[Lanes]] = {}
                for index, lanes in self._parked:
                    parked.setdefault(index, []).append(lanes)
                self._parked = []
                for index, parts in parked.items():
                    self._test(index, union(self.geometry, parts))
            elif self._order:
                return
            elif not self.machine.deliver_late():
                self._give_up()
                return

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
        return self.registers.take(register.index, lanes)

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
