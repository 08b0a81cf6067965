"""How far a run is: on a terminal one line that is rewritten, elsewhere a plain line now and then."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from oracle import streams

_BAR: Final = 24
_SHORTEST_BAR: Final = 8
_TERMINAL_SECONDS: Final = 0.2
_PLAIN_SECONDS: Final = 10.0


class Progress:
    """The progress of a run, on one stream; also says between what is going on.

    Parameters
    ----------
    stream
        Standard error if None.
    unit
        What is counted.
    """

    def __init__(self, stream: TextIO | None = None, unit: str = "launches") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._unit = unit
        self._rewrites = streams.rewrites(self._stream)
        self._open = self._running = False
        self._begin(1.0)

    def note(self, text: str) -> None:
        """Say what is going on, in a line that stays."""
        self.clear()
        print(text, file=self._stream, flush=True)

    @contextmanager
    def over(self, total: float, unit: str | None = None) -> Iterator[None]:
        """Show the progress of so much work until the block ends; ``unit`` is what is counted."""
        self._unit = unit or self._unit
        self._begin(total)
        self._running = True
        if self._rewrites:
            self._show(self._start)
        try:
            yield
        finally:
            self._running = False
            self.clear()

    def advance(self, work: float, count: int = 1) -> None:
        """Tell that some of the work is done: ``count`` more of the unit."""
        self._done += work
        self._count += count
        self.tick()

    def tick(self) -> None:
        """Tell that time has passed; for loops that wait."""
        now = time.monotonic()
        if self._running and now - self._shown >= (_TERMINAL_SECONDS if self._rewrites else _PLAIN_SECONDS):
            self._show(now)

    def clear(self) -> None:
        """Take the line off the terminal, so that something else can be printed."""
        if self._open:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._open = False

    def _begin(self, total: float) -> None:
        self._total = max(total, 1e-9)
        self._done = 0.0
        self._count = 0
        self._start = self._shown = time.monotonic()

    def _show(self, now: float) -> None:
        self._shown = now
        if not self._rewrites:
            print("  ".join(self._facts(now)), file=self._stream, flush=True)
            return
        line = self._fitted(self._facts(now), streams.width(self._stream) - 1)
        print(f"\r{line}\x1b[K", end="", file=self._stream, flush=True)
        self._open = True

    def _facts(self, now: float) -> list[str]:
        """Return the share, the number, the rate and the time left."""
        spent, share = now - self._start, min(self._done / self._total, 1.0)
        facts = [f"{share:4.0%}", f"{self._count:,} {self._unit}"]
        if share and spent:
            rate = self._count / spent
            facts += [f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s", _time(spent / share - spent)]
        return facts

    def _fitted(self, facts: list[str], columns: int) -> str:
        """Return as many of the facts as fit, those that matter most, and a bar where there is room."""
        share, *rest = facts
        for kept in ([share, *rest], [share, *rest[1:]], [share, *rest[2:]], [share]):
            text = "  ".join(kept)
            if len(text) <= columns:
                break
        bar = min(_BAR, columns - len(text) - 3)
        if bar < _SHORTEST_BAR:
            return text
        filled = round(min(self._done / self._total, 1.0) * bar)
        return f"[{'#' * filled}{'.' * (bar - filled)}] {text}"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s left"
    minutes = seconds / 60
    return f"{minutes:.0f} min left" if minutes < 100 else f"{minutes / 60:.0f} h left"
