"""What the parser produces: operands, instructions, variables and parameters, all immutable."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Register:
    """A virtual register: its index in the program, its name and its PTX type (``b32``, ``pred``, ...)."""

    index: int
    name: str
    type: str


@dataclass(frozen=True)
class Immediate:
    """A constant: ``bits`` of kind ``"int"`` (any Python integer), ``"f32"`` or ``"f64"`` (the IEEE bits)."""

    bits: int
    kind: str = "int"


@dataclass(frozen=True)
class Special:
    """A special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """A variable, parameter or label, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """``[base + offset]``; the base is a register, a symbol or an immediate."""

    base: "Register | Symbol | Immediate"
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """``{a, b, ...}``."""

    items: "tuple[Operand, ...]"


@dataclass(frozen=True)
class Negated:
    """``!p``, a predicate operand negated."""

    register: Register


@dataclass(frozen=True)
class Pair:
    """``d|p``, a destination and a predicate destination; either may be a `Sink`."""

    first: "Register | Sink"
    second: "Register | Sink"


@dataclass(frozen=True)
class Sink:
    """``_``, a destination that is not kept."""


Operand = Register | Immediate | Special | Symbol | Address | Vector | Negated | Pair | Sink


def registers_of(operand: Operand) -> list[Register]:
    """Return every register an operand names."""
    if isinstance(operand, Register):
        return [operand]
    if isinstance(operand, Negated):
        return [operand.register]
    if isinstance(operand, Address):
        return registers_of(operand.base)
    if isinstance(operand, Vector):
        return [register for item in operand.items for register in registers_of(item)]
    if isinstance(operand, Pair):
        return [item for item in (operand.first, operand.second) if isinstance(item, Register)]
    return []


@dataclass(frozen=True)
class Guard:
    """``@p`` or ``@!p``."""

    register: Register
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction: where it stands, its guard, its opcode with every modifier, and its operands.

    ``source`` is ``"file:line"`` from the last ``.loc``, or empty.
    """

    line: int
    text: str
    guard: Guard | None
    opcode: str
    operands: tuple[Operand, ...]
    source: str = ""


class Param(NamedTuple):
    """A kernel parameter: its name, and its size and alignment in bytes."""

    name: str
    size: int
    align: int


@dataclass(frozen=True)
class Variable:
    """A variable of a state space (``shared``, ``local``, ...); size 0 means sized at launch."""

    space: str
    name: str
    size: int
    align: int
    extern: bool
    data: bytes | None


@dataclass(frozen=True)
class Bounds:
    """How an entry says it is launched.

    Attributes
    ----------
    block
        ``.reqntid``: threads of a CTA, or ``None``.
    cluster
        ``.reqnctapercluster``: CTAs of a cluster, or ``None``.
    explicit
        ``.explicitcluster``: whoever launches it says how large a cluster is.
    max_rank
        ``.maxclusterrank``: the most CTAs of a cluster, or ``None``.
    """

    block: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None
    explicit: bool = False
    max_rank: int | None = None


@dataclass(frozen=True)
class Kernel:
    """One parsed entry: labels map to instruction indices."""

    name: str
    params: tuple[Param, ...]
    registers: tuple[Register, ...]
    variables: tuple[Variable, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    target: str
    bounds: Bounds
