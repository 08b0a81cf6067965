"""The command `completion`: all parsers as one table, and for each shell the script that reads it.

A shell completes from the table alone and starts no Python. A row is ``context|kind|word|more|help``. The
contexts are ``oracle`` for `python -m oracle`, its commands by name, the tools by module, and the scripts of
ci/ by path. The kinds:

``option``
    An option; ``more`` is what follows it: ``none``, ``free``, ``file``, ``one`` or ``list`` of its values.
``value``
    A value, ``more``, of the option ``word``.
``word``
    A word that may stand here; ``more`` is the context after it.
``file``
    Files may stand here.
"""

import argparse
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from typing import Final, NamedTuple

from oracle import exits
from oracle.commands import parsers
from oracle.commands.base import FILE, Parser

TOOLS: Final = (
    "oracle.bench.budget",
    "oracle.bench.document",
    "oracle.card.calibrate",
    "oracle.card.sanitize",
    "oracle.card.sweep",
    "oracle.evidence",
    "oracle.peers.__main__",
)
"""Modules with a ``parser``, run as ``python -m``."""

_SCRIPTS: Final = {
    "ci/gpu": {
        "bench": "bench",
        "calibrate": "oracle.card.calibrate",
        "check": "check",
        "sanitize": "oracle.card.sanitize",
        "sweep": "oracle.card.sweep",
        "test": "ci/test",
    },
    "ci/test": {},
    "ci/peers": {},
}
"""The words of the scripts in ci/, and the contexts after them; ci/check is the context ``check``."""

_HELP_WIDTH: Final = 70


class Row(NamedTuple):
    """A row of the table."""

    context: str
    kind: str
    word: str = ""
    more: str = ""
    help: str = ""


def execute(options: argparse.Namespace) -> int:
    """Print the script and return the exit code."""
    print(script(options.shell), end="")
    return exits.PASS


def script(shell: str) -> str:
    """Return the script for ``bash``, ``zsh`` or ``fish``."""
    lines = ["|".join(row) for row in rows()]
    if shell == "fish":  # which has no here-documents
        lines = [
            f"    '{line.replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39))}'"
            for line in lines
        ]
        lines = [f"{line} \\" for line in lines[:-1]] + lines[-1:]
    text = (files("oracle.commands") / f"completion.{shell}").read_text(encoding="utf-8")
    return text.replace("@TABLE@", "\n".join(lines))


def rows() -> Iterator[Row]:
    """Yield the table."""
    top = parsers.parser()
    yield from _of(top, "oracle")
    for name, command in _commands(top).items():
        yield from _of(command, name)
    yield Row("-m", "word", "oracle", "oracle", top.description or "")
    for module in TOOLS:
        tool: Parser = import_module(module).parser()
        name = module.removesuffix(".__main__")
        yield Row("-m", "word", name, name, _short(tool.description))
        yield from _of(tool, name)
    for script_name, words in _SCRIPTS.items():
        for word, context in words.items():
            yield Row(script_name, "word", word, context)
        if not words:
            yield Row(script_name, "file")


def _commands(parser: Parser) -> dict[str, Parser]:
    found: dict[str, Parser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def _of(parser: Parser, context: str) -> Iterator[Row]:
    """Yield the rows of one parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield Row(context, "word", choice.dest, choice.dest, _short(choice.help))
            continue
        offered = parser.offered.get(action.dest)
        values = tuple(action.choices or (offered.make() if offered else ()))
        if not action.option_strings:
            if offered is FILE:
                yield Row(context, "file")
            for value in values:
                yield Row(context, "word", str(value), context)
            continue
        many = offered is not None and offered.many
        takes = "file" if offered is FILE else ("list" if many else "one") if values else "free"
        for name in action.option_strings:
            yield Row(context, "option", name, "none" if action.nargs == 0 else takes, _short(action.help))
            for value in values:
                yield Row(context, "value", name, str(value))


def _short(text: str | None) -> str:
    return textwrap.shorten(text or "", _HELP_WIDTH, placeholder=" ...")
