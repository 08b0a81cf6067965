"""Reads what a module and an entry declare: variables, parameters, and how the kernel is to be launched."""

import re

from oracle.ptxsim.errors import PtxError
from oracle.ptxsim.lexer import Statement
from oracle.ptxsim.operands import WIDTHS, parse_immediate, split_operands
from oracle.ptxsim.syntax import Bounds, Param, Variable

_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?"
    r"([\w$]+)(?:\[(\d+)\])?$"
)
_VARIABLE = re.compile(
    r"((?:\.(?:visible|extern|weak|common)\s+)*)\.(shared|global|const|local)\s+"
    r"(?:\.attribute\([^)]*\)\s+)?(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$%]+)"
    r"((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.DOTALL,
)
_BOUNDS = frozenset(["reqntid", "reqnctapercluster", "explicitcluster", "maxclusterrank"])
_IGNORED_DIRECTIVES = frozenset(["maxntid", "minnctapersm", "maxnreg", "maxnctapersm", "noreturn"])


def parse_variable(statement: Statement) -> Variable:
    """Parse a ``.shared``, ``.global``, ``.const`` or ``.local`` declaration."""
    match = _VARIABLE.match(statement.text)
    if not match or match[4] not in WIDTHS:
        raise PtxError("an unknown declaration", statement.line, statement.text)
    width = WIDTHS[match[4]]
    count = 1
    for extent in re.findall(r"\[(\d*)\]", match[6]):
        count *= int(extent or 0)
    data = None
    if match[7] is not None:
        values = [parse_immediate(item) for item in split_operands(match[7].strip().strip("{}").strip())]
        if any(value is None for value in values):
            raise PtxError("an initialiser that is not a list of numbers", statement.line, statement.text)
        packed = b"".join(
            (value.bits & ((1 << 8 * width) - 1)).to_bytes(width, "little") for value in values if value
        )
        data = packed.ljust(width * count, b"\0")
    elif match[2] in ("global", "const"):
        data = bytes(width * count)
    return Variable(match[2], match[5], width * count, int(match[3] or width), "extern" in match[1], data)


def parse_params(text: str, line: int) -> tuple[Param, ...]:
    """Parse the parameter list between the parentheses of an entry."""
    params = []
    for piece in split_operands(text) if text.strip() else []:
        match = _PARAM.match(" ".join(piece.split()))
        if not match or match[2] not in WIDTHS:
            raise PtxError("an unknown parameter", line, piece)
        width = WIDTHS[match[2]]
        params.append(Param(match[3], width * int(match[4] or 1), int(match[1] or width)))
    return tuple(params)


def launch_bounds(text: str, statement: Statement) -> Bounds:
    """Read the directives between an entry's parameters and its body.

    Raises
    ------
    PtxError
        One of them is unknown.
    """
    unknown = set(re.findall(r"\.(\w+)", text)) - _IGNORED_DIRECTIVES - _BOUNDS
    if unknown:
        raise PtxError(f"unknown directives {sorted(unknown)}", statement.line, statement.text)
    rank = _numbers("maxclusterrank", text)
    return Bounds(
        _numbers("reqntid", text),
        _numbers("reqnctapercluster", text),
        ".explicitcluster" in text,
        rank[0] if rank else None,
    )


def _numbers(name: str, text: str) -> tuple[int, ...] | None:
    found = re.search(rf"\.{name}\s+(\d+(?:\s*,\s*\d+)*)", text)
    return tuple(int(number) for number in found[1].split(",")) if found else None
