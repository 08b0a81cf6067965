"""A parsed kernel and what is known of it before it runs: what never varies, what is live, where it may stop.

Three kinds of registers need no work in the main run. A register written once, by an unguarded pure
instruction, is

- *constant* if its operands are: it is folded into the code;
- *per CTA* if its operands are parameters, ``%ctaid`` or such: computed once a CTA and spread over its lanes;
- *per thread* if its operands are ``%tid`` or such: computed once for a tile's shape and kept between tiles.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

from oracle.ptxsim import ops_carry, ops_cluster, ops_collective, ops_float, ops_integer, ops_memory, ops_move
from oracle.ptxsim.codegen import fold
from oracle.ptxsim.emitter import Emitter, default_home
from oracle.ptxsim.errors import PtxError
from oracle.ptxsim.forms import Form, lookup
from oracle.ptxsim.lanes import CTAS, LANES
from oracle.ptxsim.parser import parse_kernel
from oracle.ptxsim.syntax import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    Special,
    Symbol,
    registers_of,
)
from oracle.ptxsim.webs import split_registers

MODULES: Final = (ops_integer, ops_carry, ops_float, ops_move, ops_memory, ops_collective, ops_cluster)
"""Importing these fills the instruction table."""

SHARED_START: Final = 1024
"""The first byte of shared memory: sm_90 keeps 1 KiB for itself."""

WINDOWS: Final = {"global": 0, "const": 0, "shared": 0xF0 << 40, "local": 0xF1 << 40, "param": 0xF2 << 40}
"""Where each state space lies in the generic address space."""

_PER_THREAD: Final = frozenset(
    ["tid", "laneid", "warpid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt"]
)


class Program:
    """One kernel, ready to run; made by `parse`.

    Attributes
    ----------
    name, target
        The entry and the architecture in the text.
    params
        The parameters, in order.
    bounds
        What the text says of how it is launched.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.name, self.target, self.params = kernel.name, kernel.target, kernel.params
        self.bounds = kernel.bounds
        self.code: tuple[Instruction, ...] = kernel.instructions
        self.forms: tuple[Form, ...] = tuple(lookup(instruction) for instruction in self.code)
        if not self.code:
            raise PtxError(f"{kernel.name} has no instructions")
        self._lay_out()
        self.targets = self._targets()
        self.code, self.registers = split_registers(self.code, self.forms, self.targets, kernel.registers)
        self.granules = {"shared": 16, "global": 16}
        for instruction in self.code:
            for space, size in ops_memory.narrowest(instruction.opcode).items():
                self.granules[space] = min(self.granules[space], size)
        self._classify()
        self.homes = self._choose_homes()

    @cached_property
    def clustered(self) -> bool:
        """Whether anything here concerns clusters or mbarriers."""
        return any(ops_cluster.concerns(instruction.opcode) for instruction in self.code)

    def _lay_out(self) -> None:
        """Give every parameter and variable an address."""
        symbols = {f"window:{space}": base for space, base in WINDOWS.items()}
        symbols["window:param"] = 0
        symbols["window:shared::cta"] = symbols["window:shared::cluster"] = WINDOWS["shared"]
        offset = 0
        self.param_offsets: list[int] = []
        for param in self.kernel.params:
            offset = -(-offset // param.align) * param.align
            self.param_offsets.append(offset)
            symbols[param.name] = offset
            offset += param.size
        self.param_bytes = offset
        ends = {"shared": SHARED_START, "local": 0}
        self.variables: list[tuple[str, int, int]] = []
        used = {
            name for instruction in self.code for operand in instruction.operands for name in _names(operand)
        }
        chosen = [v for v in self.kernel.variables if v.name in used]
        for variable in sorted(chosen, key=lambda v: v.extern):
            if variable.space not in ends:
                raise PtxError(f".{variable.space} variable {variable.name} is not supported")
            start = -(-ends[variable.space] // variable.align) * variable.align
            if variable.space == "shared" and not variable.extern and start % (2 * variable.align) == 0:
                start += variable.align  # aligned as the text asks, and no better
            symbols[variable.name] = start
            if variable.space == "shared":
                self.variables.append((variable.name, start, variable.size))
            if not variable.extern:
                ends[variable.space] = start + variable.size
        dynamic = [symbols[v.name] for v in chosen if v.extern]
        self.symbols = symbols
        self.dynamic_start = min(dynamic, default=ends["shared"])
        first = min((start for _, start, _ in self.variables), default=SHARED_START)
        self.shared_start = first // 16 * 16
        self.shared_end, self.local_bytes = ends["shared"], ends["local"]

    def shared_bytes(self, dynamic: int) -> int:
        """Return the bytes of shared memory of a CTA, counted from `shared_start`."""
        return max(self.shared_end, self.dynamic_start + dynamic) - self.shared_start

    def shared_gaps(self) -> list[tuple[int, int]]:
        """Return what lies before a variable and belongs to none: first byte and end, from `shared_start`."""
        base = self.shared_start
        spans = sorted((start - base, start + size - base) for _, start, size in self.variables)
        return [(end, start) for (_, end), (start, _) in pairwise([(0, 0), *spans]) if end < start]

    def shared_name(self, offset: int) -> str:
        """Name a byte of shared memory, given from `shared_start`: variable and offset in it."""
        address = offset + self.shared_start
        best = max((v for v in self.variables if v[1] <= address), key=lambda v: v[1], default=None)
        return f"{best[0]}{address - best[1]:+#x}" if best else f"shared memory{offset:+#x}"

    def _targets(self) -> dict[int, int]:
        """Return where each branch goes, by instruction index."""
        targets = {}
        for index, (instruction, form) in enumerate(zip(self.code, self.forms, strict=True)):
            if form.kind == "branch":
                label = instruction.operands[0]
                assert isinstance(label, Symbol)
                if label.name not in self.kernel.labels:
                    raise PtxError(f"unknown label {label.name}", instruction.line, instruction.text)
                targets[index] = self.kernel.labels[label.name]
        return targets

    # What varies.

    def emitter(self, whole: bool = True) -> Emitter:
        """Return an empty emitter that knows the program's constants, homes and symbols."""
        steady: frozenset[int] = getattr(self, "steady", frozenset())
        return Emitter(self.constants, getattr(self, "homes", {}), self.symbols, whole, steady)

    def _classify(self) -> None:
        """Find the registers that are constant, per CTA or per thread."""
        writes: Counter[int] = Counter()
        for instruction, form in zip(self.code, self.forms, strict=True):
            for operand in form.written(instruction):
                if isinstance(operand, Register):
                    writes[operand.index] += 1
        self.constants: dict[int, Immediate] = {}
        self.per_cta: list[int] = []
        self.per_thread: list[int] = []
        self.invariant: set[int] = set()
        kind: dict[int, str] = {}
        for index, (instruction, form) in enumerate(zip(self.code, self.forms, strict=True)):
            written = [o for o in form.written(instruction) if isinstance(o, Register)]
            if instruction.guard or any(writes[r.index] != 1 for r in written):
                continue
            if not form.pure:
                self._shuffled_constant(index)
                continue
            classes = self._operand_classes(instruction, form, kind)
            if classes is None or classes == {"cta", "thread"}:
                continue
            if not classes:
                self.constants.update(fold(self, index))
            else:
                found = classes.pop()
                kind.update((register.index, found) for register in written)
                (self.per_cta if found == "cta" else self.per_thread).append(index)
            self.invariant.add(index)
        self.steady = frozenset(register for register, found in kind.items() if found == "thread")
        self.fixed = frozenset(kind) - self.steady

    def steady_guard(self, index: int) -> int | None:
        """Return ``index`` if its guard is the same in every tile of a shape, else ``None``."""
        guard = self.code[index].guard
        known = guard is not None and (
            guard.register.index in self.steady or guard.register.index in self.constants
        )
        return index if known else None

    def _shuffled_constant(self, index: int) -> None:
        """Note that a shuffle of a constant gives that constant: only the rendezvous stays."""
        instruction = self.code[index]
        if not instruction.opcode.startswith("shfl.sync.") or not isinstance(
            instruction.operands[0], Register
        ):
            return
        known = self.emitter().immediate(instruction.operands[1])
        if known is not None and self._full_mask(index):
            self.constants[instruction.operands[0].index] = known
            self.invariant.add(index)

    def _full_mask(self, index: int) -> bool:
        """Return whether a collective's member mask is known to be the whole warp."""
        mask = self.emitter().immediate(self.member_mask(index))
        return mask is not None and mask.bits & ops_collective.FULL_MASK == ops_collective.FULL_MASK

    def _operand_classes(self, instruction: Instruction, form: Form, kind: dict[int, str]) -> set[str] | None:
        """Return which of cta and thread an instruction's operands depend on; ``None`` if on more."""
        if form.name.startswith("ld.param"):
            address = instruction.operands[1]
            known = isinstance(address, Address) and self.emitter().immediate(address.base) is not None
            return {"cta"} if known else None
        classes = set()
        for operand in form.read(instruction):
            if isinstance(operand, Special):
                classes.add("thread" if operand.name[1:].partition(".")[0] in _PER_THREAD else "cta")
            for register in registers_of(operand):
                if register.index not in self.constants:
                    if register.index not in kind:
                        return None
                    classes.add(kind[register.index])
        return classes

    def _choose_homes(self) -> dict[int, str]:
        """Pick each register's commonest NumPy type; emitting all code for it checks every instruction."""
        emitter = self.emitter()
        for index, instruction in enumerate(self.code):
            if self.forms[index].kind == "barrier":
                for operand in instruction.operands:
                    if self.emitter().immediate(operand) is None and not isinstance(operand, Register):
                        raise PtxError(
                            "a barrier's operands are registers or constants",
                            instruction.line,
                            instruction.text,
                        )
                continue
            emitter.instruction, emitter.index = instruction, index
            self.forms[index].emit(emitter, instruction)
        homes = {register.index: default_home(register) for register in self.registers}
        most: dict[int, int] = {}
        for (register, code), count in emitter.uses.items():
            if count > most.get(register, 0):
                most[register], homes[register] = count, code
        return homes

    # What is live, and where code may stop.

    def reads(self, index: int) -> int:
        """Return the registers that instruction ``index`` reads, as a bit set; without constants."""
        instruction, form = self.code[index], self.forms[index]
        operands: list[Operand] = list(form.read(instruction))
        if instruction.guard:
            operands.append(instruction.guard.register)
            operands.extend(form.written(instruction))
        if index in self.invariant:
            return 0
        return _bits(r.index for o in operands for r in registers_of(o) if r.index not in self.constants)

    def writes(self, index: int) -> int:
        """Return the registers that instruction ``index`` surely writes, as a bit set."""
        instruction = self.code[index]
        if instruction.guard or index in self.invariant:
            return 0
        return _bits(r.index for o in self.forms[index].written(instruction) for r in registers_of(o))

    @cached_property
    def live(self) -> list[int]:
        """Return the registers needed at each instruction (before it runs), as bit sets."""
        count = len(self.code)
        reads, writes = [self.reads(i) for i in range(count)], [self.writes(i) for i in range(count)]
        live = [0] * (count + 1)
        changed = True
        while changed:
            changed = False
            for index in range(count - 1, -1, -1):
                form, guarded = self.forms[index], self.code[index].guard is not None
                after = live[index + 1] if form.kind not in ("branch", "exit") or guarded else 0
                if index in self.targets:
                    after |= live[self.targets[index]]
                before = reads[index] | (after & ~writes[index])
                if before != live[index]:
                    live[index] = before
                    changed = True
        return live

    @cached_property
    def leaders(self) -> frozenset[int]:
        """Return the instructions that a branch goes to: lanes may join there."""
        return frozenset(self.targets.values())

    def member_mask(self, index: int) -> Operand:
        """Return the member mask operand of a collective; matrix moves take the whole warp."""
        instruction = self.code[index]
        if "matrix" in instruction.opcode:
            return Immediate(ops_collective.FULL_MASK)
        return instruction.operands[-1]

    @cached_property
    def simple(self) -> frozenset[int]:
        """Return the collectives and barriers that whole warps, or CTAs, pass without asking."""
        found = set()
        for index, (instruction, form) in enumerate(zip(self.code, self.forms, strict=True)):
            if instruction.guard:
                continue
            if form.kind == "collective":
                if self._full_mask(index):
                    found.add(index)
            elif (
                form.kind == "barrier"
                and "sync" in instruction.opcode
                and len(instruction.operands) == 1
                and self.emitter().immediate(instruction.operands[0]) is not None
            ):
                found.add(index)
        return frozenset(found)

    def waits(self, index: int, level: int) -> bool:
        """Return whether lanes at ``level`` must ask the scheduler before instruction ``index``."""
        kind = self.forms[index].kind
        if kind in ("cluster", "phase"):
            return True
        if kind == "collective":
            return level == LANES or index not in self.simple
        return kind == "barrier" and (level < CTAS or index not in self.simple)


def _names(operand: Operand) -> list[str]:
    if isinstance(operand, Symbol):
        return [operand.name]
    return [operand.base.name] if isinstance(operand, Address) and isinstance(operand.base, Symbol) else []


def _bits(indices: Iterable[int]) -> int:
    result = 0
    for index in indices:
        result |= 1 << index
    return result


@lru_cache(maxsize=32)
def parse(ptx: str, entry: str = "") -> Program:
    """Read one kernel of a PTX module.

    Parameters
    ----------
    ptx
        The text of the module.
    entry
        The kernel's name; an empty string takes the first entry.

    Returns
    -------
    Program
        The kernel; the same text gives the same object, with the code generated so far.

    Raises
    ------
    PtxError
        Names the line and text of anything unknown: directive, opcode, modifier, operand.
    """
    return Program(parse_kernel(ptx, entry))
