"""The instruction table: one entry per opcode with modifiers: its operands, and who emits it.

A form's ``kind`` says what the scheduler must know of it: ``value`` (operands to results, nothing else),
``memory``, ``collective`` (a rendezvous of a warp's lanes), ``barrier`` (of a CTA's threads), ``cluster`` (a
barrier of a cluster's), ``phase`` (of an mbarrier, to wait for), ``branch``, ``exit`` or ``effect``.
"""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from oracle.ptxsim.emitter import Emitter
from oracle.ptxsim.errors import PtxError
from oracle.ptxsim.syntax import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

Emit = Callable[[Emitter, Instruction], None]

_HINT = re.compile(
    r"\.(?:ca|cg|cs|cv|lu|wb|wt|L1::(?:evict_(?:normal|unchanged|first|last)|no_allocate)"
    r"|L2::evict_(?:first|last|normal)|L2::(?:64|128|256)B)(?=\.|$)"
)
_GROUP = re.compile(r"\{(\w+):([^}]*)\}")

HINTS = (
    ".ca",
    ".cg",
    ".cs",
    ".cv",
    ".lu",
    ".wb",
    ".wt",
    ".L1::evict_normal",
    ".L1::evict_unchanged",
    ".L1::evict_first",
    ".L1::evict_last",
    ".L1::no_allocate",
    ".L2::evict_first",
    ".L2::evict_last",
    ".L2::evict_normal",
    ".L2::64B",
    ".L2::128B",
    ".L2::256B",
)
"""Modifiers of loads and stores that change where data is cached, not what is loaded: dropped at look-up."""

_ACCEPTED: dict[str, tuple[type, ...]] = {
    "d": (Register, Sink),
    "q": (Register, Sink, Pair),
    "s": (Register, Immediate),
    "x": (Register, Immediate, Special, Symbol),
    "p": (Register, Negated, Immediate),
    "m": (Address,),
    "n": (Sink,),
    "l": (Symbol,),
    "k": (Register,),
    "K": (Register,),
}


WRITTEN = frozenset("dqDK")
"""Letters of a signature for what an instruction writes."""

CARRIES = frozenset("kK")
"""Letters of a signature for the carry, which the parser adds to the operands."""


@dataclass(frozen=True)
class Form:
    """One instruction form.

    Attributes
    ----------
    name
        The opcode with every modifier that matters.
    signature
        One letter per operand: ``d`` destination, ``q`` destination with an optional ``|p``, ``s`` source,
        ``x`` source or special register or symbol, ``p`` predicate source, ``m`` address, ``n`` nothing but
        the sink ``_``, ``l`` label, ``D<n>`` and ``S<n>`` vectors of n destinations or sources; ``k`` and
        ``K`` the carry read and written, which the text does not name; ``?`` after it: may be left out.
    kind
        See the module's docstring.
    pure
        The results depend on the operands alone, and computing them cannot fail.
    """

    name: str
    signature: tuple[str, ...]
    kind: str
    pure: bool
    emit: Emit

    def check(self, instruction: Instruction) -> None:
        """Raise PtxError unless the operands fit the signature."""
        required = sum(not token.endswith("?") for token in self.signature)
        count = len(instruction.operands)
        if not required <= count <= len(self.signature):
            unnamed = sum(token in CARRIES for token in self.signature)
            raise PtxError(
                f"{self.name} takes {required - unnamed} operands, not {count - unnamed}",
                instruction.line,
                instruction.text,
            )
        for token, operand in zip(self.signature, instruction.operands, strict=False):
            letter = token[0]
            if letter in "DS":
                items = operand.items if isinstance(operand, Vector) else ()
                fits = len(items) == int(token[1]) and all(
                    isinstance(item, _ACCEPTED["d" if letter == "D" else "s"]) for item in items
                )
            else:
                fits = isinstance(operand, _ACCEPTED[letter])
            if not fits:
                raise PtxError(
                    f"{self.name} cannot take the operand {operand}", instruction.line, instruction.text
                )

    def written(self, instruction: Instruction) -> list[Operand]:
        """Return the operands that the instruction writes, vectors and pairs taken apart."""
        found: list[Operand] = []
        for token, operand in zip(self.signature, instruction.operands, strict=False):
            if token[0] in WRITTEN:
                if isinstance(operand, Vector):
                    found.extend(operand.items)
                elif isinstance(operand, Pair):
                    found.extend((operand.first, operand.second))
                else:
                    found.append(operand)
        return found

    def read(self, instruction: Instruction) -> list[Operand]:
        """Return the operands that the instruction reads."""
        return [
            operand
            for token, operand in zip(self.signature, instruction.operands, strict=False)
            if token[0] not in WRITTEN and token[0] != "l"
        ]


TABLE: dict[str, Form] = {}
"""Every form by name."""


def form(
    pattern: str, signature: str, kind: str = "value", *, pure: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as the emitter of every opcode that ``pattern`` expands to.

    ``{name:a,b,}`` stands for one of the alternatives (possibly empty), which the function gets as the
    keyword ``name``.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        groups = _GROUP.findall(pattern)
        template = _GROUP.sub("{}", pattern)
        for choice in itertools.product(*(alternatives.split(",") for _, alternatives in groups)):
            name = template.format(*choice)
            parts = {group: picked for (group, _), picked in zip(groups, choice, strict=True)}
            if name in TABLE:
                raise ValueError(f"{name} is registered twice")
            TABLE[name] = Form(
                name, tuple(signature.split()), kind, pure and kind == "value", _bind(function, parts)
            )
        return function

    return register


def _bind(function: Callable[..., None], parts: dict[str, str]) -> Emit:
    def emit(emitter: Emitter, instruction: Instruction) -> None:
        function(emitter, instruction, **parts)

    return emit


def lookup(instruction: Instruction) -> Form:
    """Return the form of an instruction, its operands checked.

    Raises
    ------
    PtxError
        Unknown opcode or modifier, or operands that do not fit.
    """
    opcode = instruction.opcode
    if opcode in ("mov.b32", "mov.b64"):
        sizes = [len(operand.items) if isinstance(operand, Vector) else 0 for operand in instruction.operands]
        if any(sizes):
            opcode += f".unpack{sizes[0]}" if sizes[0] else f".pack{sizes[-1]}"
    found = TABLE.get(opcode)
    if found is None and opcode.startswith(("ld.", "st.")):
        found = TABLE.get(_HINT.sub("", opcode))
    if found is None:
        raise PtxError(f"unknown instruction {opcode}", instruction.line, instruction.text)
    found.check(instruction)
    return found


def forms() -> tuple[str, ...]:
    """Return the name of every instruction form that the simulator knows, sorted."""
    return tuple(sorted(TABLE))
