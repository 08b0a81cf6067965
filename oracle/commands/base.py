"""What the parsers of all commands and tools share: help of a readable width, one line on bad arguments."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from oracle.exits import BAD_ARGUMENTS

ENDING: Final = "Exit codes: `python -m oracle --help` has them."
WIDTH: Final = 100
"""Columns of help on a terminal that has more."""

Value = TypeVar("Value")
Example = tuple[str, str]
"""A command line, and what it is for."""


class Words(NamedTuple):
    """What a shell offers for the value of an option, where argparse's choices do not say it.

    make
        Returns the words; called only where a completion script is made.
    many
        Whether the value is a list of them, separated by commas.
    """

    make: Callable[[], Sequence[str]]
    many: bool = True


FILE: Final = Words(tuple)
"""A path; ``metavar`` tells people which."""


class _Help(argparse.HelpFormatter):
    """Fills paragraphs and keeps indented lines as they are."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, WIDTH)
        super().__init__(prog, max_help_position=min(30, width // 3), width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = re.split(r"\n\n+", text.strip("\n"))
        return "\n\n".join(part if "\n  " in f"\n{part}" else _filled(part, width) for part in parts)


def _filled(text: str, width: int) -> str:
    return textwrap.fill(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line, with the word that was probably meant.

    Parameters
    ----------
    examples
        Shown at the end of the help.
    ending
        A paragraph after them.
    """

    def __init__(
        self, *arguments: Any, examples: Sequence[Example] = (), ending: str = "", **options: Any
    ) -> None:
        shown = "\n".join(f"  {line}\n      {what}" for line, what in examples)
        parts = [f"examples:\n{shown}"] if examples else []
        epilog = "\n\n".join([*parts, *([ending] if ending else [])])
        super().__init__(*arguments, **options)
        self.formatter_class, self.epilog = _Help, epilog or None
        self.set_defaults(parser=self)
        self.offered: dict[str, Words] = {}

    def take(self, name: str, offers: Words, **options: Any) -> None:
        """Add an argument for whose value shells offer ``offers``; else as ``add_argument``."""
        self.offered[self.add_argument(name, **options).dest] = offers

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the options, or say what is wrong with them and exit 2; as the command's own parser."""
        options, rest = self.parse_known_args(words)
        if rest:
            parser: Parser = options.parser
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        return options

    def error(self, message: str) -> NoReturn:
        """Exit 2 with one line."""
        self.exit(BAD_ARGUMENTS, f"{self.prog}: {message}{self._meant(message)}\n")

    def _meant(self, message: str) -> str:
        """Guess at what a wrong word was to be."""
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        if unknown is not None:
            wrong, known = unknown[1].partition("=")[0], [*self._option_string_actions]
        else:
            choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
            if choice is None:
                return ""
            wrong, known = choice[1], re.findall(r"[\w-]+", choice[2])
        import difflib

        close = difflib.get_close_matches(wrong, known, 1)
        return f"; did you mean {close[0]}?" if close else ""


def checked(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Let argparse print the message of a ValueError, which it otherwise replaces by its own."""

    def read(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def later(place: str) -> Callable[..., int]:
    """Return the function at ``module:name``, which is imported when it is called."""

    def call(*arguments: object, **options: object) -> int:
        module, name = place.split(":")
        code: int = getattr(import_module(module), name)(*arguments, **options)
        return code

    return call
