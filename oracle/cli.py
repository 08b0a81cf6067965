"""The command line: `python -m oracle COMMAND`; what it takes is in `oracle.commands`."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oracle.commands import parsers
from oracle.exits import ended

if TYPE_CHECKING:
    import argparse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code, one of `oracle.exits.MEANING`."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    return ended(parsers.PROGRAM, lambda: _run(words))


def _run(words: list[str]) -> int:
    options = parsers.parser().parse(words)
    options.words = words
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)
