"""Splits a register written in several places into one for each group of writes that belong together.

Compilers reuse a register once its value is dead. Writes belong together if some read may see either of them;
a register with one write can then be found constant, or the same for all threads (`program`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from oracle.ptxsim.forms import WRITTEN, Form
from oracle.ptxsim.syntax import (
    Address,
    Guard,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Vector,
    registers_of,
)


class _Groups:
    """Disjoint sets of writes."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def find(self, item: int) -> int:
        """Return the set's representative."""
        while self.parent[item] != item:
            self.parent[item] = self.parent[self.parent[item]]
            item = self.parent[item]
        return item

    def join(self, items: Sequence[int]) -> None:
        """Put items into one set."""
        for item in items[1:]:
            self.parent[self.find(item)] = self.find(items[0])


def split_registers(
    code: Sequence[Instruction], forms: Sequence[Form], targets: dict[int, int], registers: Sequence[Register]
) -> tuple[tuple[Instruction, ...], tuple[Register, ...]]:
    """Return the code with registers split, and all registers.

    Parameters
    ----------
    code, forms
        The instructions and their forms.
    targets
        Where each branch goes, by instruction index.
    registers
        The registers so far; new ones are appended.
    """
    sites: dict[int, list[tuple[int, int]]] = defaultdict(list)
    writes: list[list[tuple[int, int]]] = [[] for _ in code]
    count = 0
    for index, (instruction, form) in enumerate(zip(code, forms, strict=True)):
        for operand in form.written(instruction):
            for register in registers_of(operand):
                sites[register.index].append((count, index))
                writes[index].append((register.index, count))
                count += 1
    several = {number for number, found in sites.items() if len(found) > 1}
    masks = {number: sum(1 << site for site, _ in sites[number]) for number in several}
    reaching = _reaching(code, forms, targets, writes, masks)
    groups = _Groups(count)
    for index, (instruction, form) in enumerate(zip(code, forms, strict=True)):
        read = {r.index for operand in form.read(instruction) for r in registers_of(operand)}
        if instruction.guard:
            read.add(instruction.guard.register.index)
        for number in read & several:
            groups.join(_members(reaching[index] & masks[number]))
        if instruction.guard:
            # The old value stays where the guard does not hold.
            for number, site in writes[index]:
                if number in several:
                    groups.join([site, *_members(reaching[index] & masks[number])])
    names = list(registers)
    renamed: dict[int, Register] = {}
    for number in sorted(several):
        roots = sorted({groups.find(site) for site, _ in sites[number]})
        for root in roots[1:]:
            renamed[root] = Register(len(names), registers[number].name, registers[number].type)
            names.append(renamed[root])
    result = []
    for index, (instruction, form) in enumerate(zip(code, forms, strict=True)):

        def read_as(register: Register, index: int = index) -> Register:
            found = _members(reaching[index] & masks.get(register.index, 0))
            return renamed.get(groups.find(found[0]), register) if found else register

        written_as = {
            number: renamed.get(groups.find(site), registers[number]) for number, site in writes[index]
        }
        result.append(_rename(instruction, form, read_as, written_as))
    return tuple(result), tuple(names)


def _members(bits: int) -> list[int]:
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def _reaching(
    code: Sequence[Instruction],
    forms: Sequence[Form],
    targets: dict[int, int],
    writes: list[list[tuple[int, int]]],
    masks: dict[int, int],
) -> list[int]:
    """Return the writes that may be the last ones before each instruction, as bit sets."""
    reaching = [0] * (len(code) + 1)
    changed = True
    while changed:
        changed = False
        for index, (instruction, form) in enumerate(zip(code, forms, strict=True)):
            after = reaching[index]
            for register, site in writes[index]:
                if register in masks:
                    if not instruction.guard:
                        after &= ~masks[register]
                    after |= 1 << site
            following = [targets[index]] if index in targets else []
            if form.kind not in ("branch", "exit") or instruction.guard:
                following.append(index + 1)
            for successor in following:
                if after & ~reaching[successor]:
                    reaching[successor] |= after
                    changed = True
    return reaching


def _rename(
    instruction: Instruction,
    form: Form,
    read_as: Callable[[Register], Register],
    written_as: dict[int, Register],
) -> Instruction:
    def change(operand: Operand, pick: Callable[[Register], Register]) -> Operand:
        if isinstance(operand, Register):
            return pick(operand)
        if isinstance(operand, Negated):
            return Negated(pick(operand.register))
        if isinstance(operand, Address):
            base = operand.base
            return Address(pick(base) if isinstance(base, Register) else base, operand.offset)
        if isinstance(operand, Vector):
            return Vector(tuple(change(item, pick) for item in operand.items))
        if isinstance(operand, Pair):
            first, second = operand.first, operand.second
            return Pair(
                pick(first) if isinstance(first, Register) else first,
                pick(second) if isinstance(second, Register) else second,
            )
        return operand

    operands = tuple(
        change(operand, (lambda r: written_as[r.index]) if token[0] in WRITTEN else read_as)
        for token, operand in zip(form.signature, instruction.operands, strict=False)
    )
    guard = instruction.guard
    if guard:
        guard = Guard(read_as(guard.register), guard.negated)
    return replace(instruction, operands=operands, guard=guard)
