"""What an output stream takes: lines that are rewritten, colours, how many columns."""

import os
from typing import Final, TextIO

_WIDTH: Final = 80


def rewrites(stream: TextIO) -> bool:
    """Whether control characters may go to ``stream``: a terminal, and nothing in the environment objects.

    ``NO_COLOR`` with any value, and ``TERM=dumb``, ask for none: what is printed then reads like a log.
    """
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def colours(stream: TextIO) -> bool:
    """Whether colours may go to ``stream``; ``FORCE_COLOR`` sends them also where there is no terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or rewrites(stream)


def width(stream: TextIO) -> int:
    """Return the columns of a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH
    except (OSError, ValueError):  # no terminal, or no file at all
        return _WIDTH
