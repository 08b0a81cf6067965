"""Splits PTX text into statements: comments blanked, strings kept, every statement with its line."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from oracle.ptxsim.errors import PtxError

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"', re.DOTALL)
_INLINE = re.compile(r"// begin inline asm\n.*?// end inline asm", re.DOTALL)
_LOCATION = re.compile(r"^[ \t]*\.loc\b[^\n]*", re.MULTILINE)
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_LINE_DIRECTIVE = re.compile(r"\.(loc|file|version|target|address_size)\b[^\n]*")
_SECTION = re.compile(r"\.section\b[^{]*\{[^}]*\}")


class Statement(NamedTuple):
    """A piece of PTX: ``kind`` is ``open``, ``close``, ``label``, ``directive``, ``header`` or ``code``."""

    kind: str
    text: str
    line: int


def strip_comments(text: str) -> str:
    """Replace every comment by spaces, keeping newlines and quoted strings."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else "\n" * found.count("\n") or " "

    return _COMMENT.sub(blank, text)


def keep_first_locations(text: str) -> str:
    """Blank every ``.loc`` but the first of a piece of inline assembly.

    For line k of such a piece LLVM names source line n + k, where n is the statement's. Only n exists.
    """

    def first(match: re.Match[str]) -> str:
        head, dot, rest = match.group().partition(".loc")
        return head + dot + _LOCATION.sub("", rest)

    return _INLINE.sub(first, text)


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a PTX module in order.

    ``header`` is what stands between the end of a statement and a ``{`` that opens a function body;
    ``directive`` is a line directive such as ``.loc``.
    """
    text = strip_comments(keep_first_locations(text))
    position, line, depth = 0, 1, 0
    size = len(text)
    while True:
        while position < size and text[position].isspace():
            line += text[position] == "\n"
            position += 1
        if position >= size:
            break
        kind, end = _next(text, position, depth, line)
        piece = text[position:end]
        yield Statement(kind, " ".join(piece.rstrip(";").split()), line)
        line += piece.count("\n")
        depth += (kind == "open") - (kind == "close")
        position = end
    if depth:
        raise PtxError("a block is not closed", line, "(end of text)")


def _next(text: str, position: int, depth: int, line: int) -> tuple[str, int]:
    """Return the kind and the end of the statement that starts at ``position``."""
    first = text[position]
    if first == "{":
        return "open", position + 1
    if first == "}":
        if depth == 0:
            raise PtxError("a block is closed that was never opened", line, "}")
        return "close", position + 1
    for kind, pattern in (("directive", _LINE_DIRECTIVE), ("section", _SECTION), ("label", _LABEL)):
        if match := pattern.match(text, position):
            return kind, match.end()
    end = text.find(";", position)
    if depth == 0:
        brace = text.find("{", position)
        equals = text.find("=", position, max(brace, 0))
        if brace >= 0 and (end < 0 or brace < end) and equals < 0:
            return "header", brace
    if end < 0:
        raise PtxError("a statement does not end", line, " ".join(text[position : position + 60].split()))
    return "code", end + 1
