"""Turns runs of instructions into Python functions ``f(R, G, M)``: registers, lanes that run, machine.

``R`` is the register file (`registers`): a run takes out of it what it reads and puts back what is live
afterwards. Arrays are never changed in place.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.ptxsim import alu, collective
from oracle.ptxsim.emitter import Emitter
from oracle.ptxsim.syntax import Immediate, Register
from spec import arithmetic

if TYPE_CHECKING:
    from oracle.ptxsim.program import Program

Run = Callable[[Any, Any, Any], Any]

_LOCAL = re.compile(r"\b(?:r\d+[a-z]\d?|t\d+)\b")

GLOBALS: dict[str, object] = {
    "alu": alu,
    "collective": collective,
    "select": alu.select,
    "full": np.full,
    "one": np.uint32(1),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "absolute": np.abs,
    "multiply": np.multiply,
    "copysign": np.copysign,
    "add_rn": arithmetic.add_rn,
    "mul_rn": arithmetic.mul_rn,
    "fma_rn": arithmetic.fma_rn,
    "ex2_approx": arithmetic.ex2_approx,
    "ex2_approx_ftz": arithmetic.ex2_approx_ftz,
    "rcp_approx": arithmetic.rcp_approx,
    "div_full": arithmetic.div_full,
}
"""What generated code may call."""


@dataclass(frozen=True)
class Segment:
    """A generated run of instructions ``start`` up to ``end``.

    ``stop`` says what comes at its end: ``fall`` (go on at ``end``), ``branch`` and ``exit`` (the last
    instruction is one; the function returns where its guard holds, or ``None`` for everywhere), ``wait`` (ask
    the scheduler at ``end``).
    """

    start: int
    end: int
    stop: str
    run: Run | None


def bits_of(registers: int) -> list[int]:
    """Return the members of a bit set, ascending."""
    found = []
    while registers:
        low = registers & -registers
        found.append(low.bit_length() - 1)
        registers ^= low
    return found


def segment(program: "Program", start: int, level: int, everyone: bool) -> Segment:
    """Generate the code from ``start`` to where lanes of this ``level`` must stop."""
    end, stop = start, "fall"
    while end < len(program.code):
        if end > start and end in program.leaders:
            break
        if program.waits(end, level):
            stop = "wait"
            break
        kind = program.forms[end].kind
        end += 1
        if kind in ("branch", "exit"):
            stop = kind
            break
    else:
        stop = "exit" if stop == "fall" and end == start else stop
    if end == start:
        return Segment(start, end, stop, None)
    after = program.live[end]
    if stop == "branch":
        after = program.live[program.targets[end - 1]]
        if program.code[end - 1].guard:
            after |= program.live[end]
    elif stop == "exit" and not program.code[end - 1].guard:
        after = 0
    return Segment(start, end, stop, generate(program, range(start, end), after, everyone, whole=True))


def single(program: "Program", index: int) -> Run:
    """Generate one collective for lanes that met at a rendezvous."""
    return generate(program, range(index, index + 1), program.live[index + 1], everyone=False, whole=False)


def generate(program: "Program", indices: range, after: int, everyone: bool, whole: bool) -> Run:
    """Generate a function for the given instructions, keeping the registers in ``after``."""
    emitter = program.emitter(whole)
    for index in indices:
        if index not in program.invariant:
            emit(emitter, program, index)
    tail = emitter.lines.pop() if emitter.lines and emitter.lines[-1].startswith("return") else None
    body = emitter.lines
    exports = []
    for register in bits_of(after):
        name = emitter.exported(register)
        if name is not None:
            exports.append((register, name))
    imports = [
        f"{name} = R.{_taking(program, register, everyone)}" for register, name in emitter.imported.items()
    ]
    if everyone:
        stores = [f"R.replace({register}, {name})" for register, name in exports]
    else:
        stores = [f"R.put({register}, G, {name})" for register, name in exports]
    return compile_lines(
        imports + body + stores + ([tail] if tail else []),
        emitter.globals,
        f"{program.name}:{indices.start}-{indices.stop}",
    )


def _taking(program: "Program", register: int, everyone: bool) -> str:
    """Return the call of `registers` that gives a register of the lanes that run."""
    if register in program.fixed:
        return f"fixed({register}, G)"
    if everyone:
        return f"whole({register})"
    return f"steady({register}, G)" if register in program.steady else f"take({register}, G)"


def emit(emitter: Emitter, program: "Program", index: int) -> None:
    """Append the code of one instruction."""
    emitter.instruction, emitter.index = program.code[index], index
    program.forms[index].emit(emitter, program.code[index])


def compile_lines(lines: list[str], constants: dict[str, object], title: str) -> Run:
    """Compile a function body; locals are dropped after their last use, and their memory used again."""
    last: dict[str, int] = {}
    for number, line in enumerate(lines):
        for name in _LOCAL.findall(line):
            last[name] = number
    dying: dict[int, list[str]] = {}
    for name, number in last.items():
        if not lines[number].startswith("return"):
            dying.setdefault(number, []).append(name)
    text = ["def run(R, G, M):"]
    for number, line in enumerate(lines):
        text.append(f"    {line}")
        if number in dying:
            text.append(f"    del {', '.join(dying[number])}")
    text.append("    return None")
    source = "\n".join(text)
    code: CodeType = compile(source, f"<ptxsim {title}>", "exec")
    namespace = {**GLOBALS, **constants}
    exec(code, namespace)
    function: Run = namespace["run"]  # type: ignore[assignment]
    return function


def prologue(program: "Program", indices: list[int]) -> tuple[Run, list[int]]:
    """Generate code that is the same for a CTA or a thread; return it and the registers it sets."""
    emitter = program.emitter()
    for index in indices:
        emit(emitter, program, index)
    needed = 0
    for index in range(len(program.code)):
        needed |= program.reads(index)
    written = {
        operand.index
        for index in indices
        for operand in program.forms[index].written(program.code[index])
        if isinstance(operand, Register)
    }
    kept = [register for register in sorted(written) if needed >> register & 1]
    stores = [f"R[{register}] = {emitter.exported(register)}" for register in kept]
    return compile_lines(emitter.lines + stores, emitter.globals, f"{program.name}:prologue"), kept


class _One:
    """The only lane of a constant's computation."""

    n = 1


def fold(program: "Program", index: int) -> dict[int, Immediate]:
    """Compute an instruction whose operands are all constant; return the registers it sets."""
    emitter = program.emitter()
    emit(emitter, program, index)
    written = [o.index for o in program.forms[index].written(program.code[index]) if isinstance(o, Register)]
    names = [emitter.local(register) for register in written]
    registers: list[Any] = []
    lines = [*emitter.lines, f"R.extend([{', '.join(names)}])"]
    compile_lines(lines, emitter.globals, "constant")(registers, _One(), None)
    found = {}
    for register, value in zip(written, registers, strict=True):
        array = np.atleast_1d(value)[:1]
        found[register] = Immediate(int.from_bytes(array.tobytes(), "little"))
    return found
