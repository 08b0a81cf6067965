"""Writes the Python text of a run of instructions: operands become NumPy expressions, results become locals.

A register lives in one local per NumPy type it is read as (``r5u4``, ``r5i4`` are views of one array); its
home between blocks is the register file ``R``, in its `home` type. Every array is treated as immutable once
assigned.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from oracle.ptxsim.errors import PtxError
from oracle.ptxsim.operands import WIDTHS
from oracle.ptxsim.syntax import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
)

DTYPES = {code: np.dtype(code) for code in ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "u8", "i8", "f8", "?")}
"""The NumPy types of registers, by the code used in generated names (``?`` is written ``b``)."""

UNSIGNED = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}


def code_of(ptx_type: str) -> str:
    """Return the NumPy code of a PTX type: ``i4`` for s32, ``u4`` for b32 and u32, ``?`` for pred."""
    if ptx_type == "pred":
        return "?"
    return {"s": "i", "u": "u", "b": "u", "f": "f"}[ptx_type[0]] + str(WIDTHS[ptx_type])


def width_of(register: Register) -> int:
    """Bytes of a register; 0 for a predicate."""
    return 0 if register.type == "pred" else WIDTHS[register.type]


def encode(immediate: Immediate, code: str) -> np.generic:
    """Return an immediate as a NumPy scalar; integers wrap, a 64-bit float is rounded to 32 bits."""
    dtype = DTYPES[code]
    if code == "?":
        return np.bool_(immediate.bits != 0)
    bits = immediate.bits
    if immediate.kind == "f64" and dtype.itemsize == 4:
        with np.errstate(all="ignore"):
            bits = int(np.uint64(bits).view(np.float64).astype(np.float32).view(np.uint32))
    elif immediate.kind == "f32" and dtype.itemsize == 8:
        bits = int(np.uint32(bits).view(np.float32).astype(np.float64).view(np.uint64))
    masked = bits & ((1 << 8 * dtype.itemsize) - 1)
    scalar: np.generic = np.array([masked], UNSIGNED[dtype.itemsize]).view(dtype)[0]
    return scalar


class Emitter:
    """Collects the lines of one function.

    Parameters
    ----------
    constants
        Values known at compile time, by register index.
    homes
        The NumPy code in which each register rests in ``R``.
    symbols
        Addresses of variables and parameters.
    whole
        The lanes are whole warps, so that a collective needs no rendezvous.
    steady
        The registers that are the same in every tile of a shape.
    """

    def __init__(
        self,
        constants: Mapping[int, Immediate],
        homes: Mapping[int, str],
        symbols: Mapping[str, int],
        whole: bool = True,
        steady: frozenset[int] = frozenset(),
    ) -> None:
        self.constants = constants
        self.homes = homes
        self.symbols = symbols
        self.whole = whole
        self.steady = steady
        self.lines: list[str] = []
        self.globals: dict[str, object] = {}
        self.imported: dict[int, str] = {}
        self.instruction: Instruction | None = None
        self.index = 0
        self._views: dict[int, dict[str, str]] = {}
        self.uses: Counter[tuple[int, str]] = Counter()
        self._written: set[int] = set()
        self._temporaries = 0
        self._held = -1, ""

    # Reading operands.

    def fail(self, message: str) -> PtxError:
        """Return the PtxError for the present instruction."""
        assert self.instruction is not None
        return PtxError(message, self.instruction.line, self.instruction.text)

    def immediate(self, operand: Operand) -> Immediate | None:
        """Return the operand's value if it is known at compile time."""
        if isinstance(operand, Register):
            return self.constants.get(operand.index)
        if isinstance(operand, Symbol):
            if operand.name not in self.symbols:
                raise self.fail(f"unknown name {operand.name}")
            return Immediate(self.symbols[operand.name] + operand.offset)
        return operand if isinstance(operand, Immediate) else None

    def constant(self, immediate: Immediate, code: str) -> str:
        """Return the name of a scalar constant of type ``code``."""
        value = encode(immediate, code)
        bits = int.from_bytes(np.asarray(value).tobytes(), "little")
        name = f"K{code.replace('?', 'b')}_{bits:x}"
        self.globals[name] = value
        return name

    def source(self, operand: Operand, code: str) -> str:
        """Return the expression of a source operand as an array, or a scalar constant, of type ``code``."""
        if (known := self.immediate(operand)) is not None:
            return self.constant(known, code)
        if isinstance(operand, Negated):
            return f"~{self.register(operand.register, code)}"
        if isinstance(operand, Register):
            return self.register(operand, code)
        if isinstance(operand, Special):
            value = f"G.special({operand.name!r})"
            return value if code in ("u4", "i4") else f"{value}.astype({code!r})"
        raise self.fail(f"{operand} cannot be read here")

    def register(self, register: Register, code: str) -> str:
        """Return the local that holds ``register`` as type ``code``; the sizes must agree."""
        if width_of(register) != (0 if code == "?" else DTYPES[code].itemsize):
            raise self.fail(f"register {register.name} is .{register.type}, {code} is needed")
        self.uses[register.index, code] += 1
        views = self._views.get(register.index)
        if views is None:
            home = self.homes.get(register.index, default_home(register))
            name = self._local(register.index, home)
            self.imported[register.index] = name
            views = self._views[register.index] = {home: name}
        if code not in views:
            name = self._local(register.index, code)
            self.lines.append(f"{name} = {next(iter(views.values()))}.view({code!r})")
            views[code] = name
        return views[code]

    def wide(self, operand: Operand, code: str) -> str:
        """Like `source`, but a register wider than ``code`` is truncated to it, as stores and cvt do."""
        if isinstance(operand, Register) and operand.index not in self.constants:
            size = width_of(operand)
            if size > DTYPES[code].itemsize:
                return f"{self.register(operand, UNSIGNED[size])}.astype({code!r})"
        return self.source(operand, code)

    def arrays(self, operands: list[Operand], codes: list[str]) -> list[str]:
        """Return the sources, the first one made a full array if all are constants."""
        expressions = [self.source(operand, code) for operand, code in zip(operands, codes, strict=True)]
        if all(self.immediate(operand) is not None for operand in operands):
            expressions[0] = self.filled(expressions[0])
        return expressions

    def filled(self, scalar: str) -> str:
        """Return a full array of a scalar constant."""
        return f"full(G.n, {scalar})"

    # Writing results.

    def temporary(self, expression: str) -> str:
        """Assign an expression to a fresh local and return its name."""
        self._temporaries += 1
        name = f"t{self._temporaries}"
        self.lines.append(f"{name} = {expression}")
        return name

    def lanes(self) -> str:
        """Return the name of the lanes that the present instruction's guard leaves."""
        guard = self.guard()
        if guard is None:
            return "G"
        assert self.instruction
        assert self.instruction.guard
        name = self.index if self.instruction.guard.register.index in self.steady else None
        return self.temporary(f"G.guarded({guard}, {name})")

    def target(self, operand: Operand, code: str, expression: str, lanes: str = "") -> None:
        """Assign the result: under a guard, only where it holds.

        ``lanes``, from `lanes`, says that the expression has values for those lanes alone.
        """
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise self.fail(f"{operand} cannot be written")
        size = width_of(operand)
        wanted = 0 if code == "?" else DTYPES[code].itemsize
        if size != wanted:
            raise self.fail(f"register {operand.name} is .{operand.type}, the result is {code}")
        guard = self.guard()
        if guard is not None and self.instruction and self._guards(self.instruction, operand):
            # Under `@p`, `p|q` writes both where p held before.
            guard = self.temporary(guard)
            self._held = self.index, guard
        if guard is not None and lanes:
            expression = f"{lanes}.merge({self.register(operand, code)}, {expression})"
        elif guard is not None:
            expression = f"select({guard}, {expression}, {self.register(operand, code)})"
        name = self._local(operand.index, code)
        self.lines.append(f"{name} = {expression}")
        self._views[operand.index] = {code: name}
        self._written.add(operand.index)
        self.uses[operand.index, code] += 1

    @staticmethod
    def _guards(instruction: Instruction, register: Register) -> bool:
        return instruction.guard is not None and instruction.guard.register.index == register.index

    def extended(self, operand: Operand, code: str, expression: str, lanes: str = "") -> None:
        """Like `target`, but for a wider register the value is sign- or zero-extended, as ld and cvt do."""
        if isinstance(operand, Register) and (size := width_of(operand)) > DTYPES[code].itemsize:
            kind = "i" if code.startswith("i") else "u"
            expression, code = f"({expression}).astype('{kind}{size}')", f"{kind}{size}"
        self.target(operand, code, expression, lanes)

    def guard(self) -> str | None:
        """Return the present instruction's guard as a boolean expression; ``None`` if it always holds."""
        assert self.instruction is not None
        guard = self.instruction.guard
        if guard is None:
            return None
        if self._held[0] == self.index:
            return self._held[1]
        name = self.source(guard.register, "?")
        if (known := self.immediate(guard.register)) is not None:
            if bool(known.bits) != guard.negated:
                return None
            name = self.filled(name)
        return f"~{name}" if guard.negated else name

    def local(self, register: int) -> str:
        """Return a local that holds the register, in whatever type."""
        return next(iter(self._views[register].values()))

    def exported(self, register: int) -> str | None:
        """Return the local with the register's last value in its home type; ``None`` if not written."""
        views = self._views.get(register)
        if views is None or register not in self._written:
            return None
        home = self.homes[register]
        if home not in views:
            name = self._local(register, home)
            self.lines.append(f"{name} = {next(iter(views.values()))}.view({home!r})")
            views[home] = name
        return views[home]

    def _local(self, register: int, code: str) -> str:
        return f"r{register}{code.replace('?', 'b')}"

    def address(self, operand: Operand, code: str) -> tuple[str, int]:
        """Return the base of an address as an array, a constant spread out, and its offset."""
        if not isinstance(operand, Address):
            raise self.fail(f"{operand} is no address")
        if (known := self.immediate(operand.base)) is not None:
            return self.filled(self.constant(Immediate(known.bits + operand.offset), code)), 0
        assert isinstance(operand.base, Register)
        if width_of(operand.base) != DTYPES[code].itemsize and code == "u4":
            # A 64-bit register may hold a shared address; only its low half counts.
            return f"{self.register(operand.base, 'u8')}.astype('u4')", operand.offset
        return self.register(operand.base, code), operand.offset


def default_home(register: Register) -> str:
    """Return the NumPy code in which a register rests unless its uses say otherwise."""
    return code_of(register.type) if register.type != "f16x2" else "u4"
