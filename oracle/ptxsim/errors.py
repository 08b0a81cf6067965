"""The two ways a simulation ends badly: text it cannot read, and a program that does what no GPU promises."""

from dataclasses import dataclass
from typing import Any


class PtxError(ValueError):
    """PTX that the simulator does not know: names the line, its text and what is unknown.

    Attributes
    ----------
    line
        1-based line in the PTX text; 0 where no line is to blame.
    text
        The statement.
    """

    def __init__(self, message: str, line: int = 0, text: str = "") -> None:
        where = f"PTX line {line}: {text}: " if line else ""
        super().__init__(where + message)
        self.line = line
        self.text = text


@dataclass
class Place:
    """Where a thread was: index in the grid, PTX line, statement, line of Python (or nothing)."""

    thread: int
    line: int
    text: str
    source: str

    def __str__(self) -> str:
        origin = f" ({self.source})" if self.source else ""
        return f"PTX line {self.line}: {self.text}{origin}"


class SimulationError(RuntimeError):
    """A launch did what the PTX ISA leaves undefined, or what its caller forbade.

    Attributes
    ----------
    kind
        One of ``ERROR_KINDS``.
    launch, thread
        The launch's index and the thread's index in its grid (CTA times block size, plus thread).
    address
        The address accessed, or ``None``.
    buffer
        ``"name+offset"`` in bytes of the buffer concerned, or ``None``.
    line, text
        The PTX line and its statement.
    source
        The line of Python it comes from, where the text has ``.loc``: ``impl_triton/kernel.py:63, called at
        impl_triton/kernel.py:116``; else empty.
    other
        For a race, where the other thread was, if that is known.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        launch: int,
        thread: int,
        line: int,
        text: str,
        address: int | None = None,
        buffer: str | None = None,
        source: str = "",
        other: Place | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.detail = detail
        self.launch = launch
        self.thread = thread
        self.address = address
        self.buffer = buffer
        self.line = line
        self.text = text
        self.source = source
        self.other = other

    def __str__(self) -> str:
        return self.told(f"launch {self.launch}, ")

    def told(self, whose: str = "") -> str:
        """Return the whole message; ``whose`` stands ahead of the thread."""
        place = f"{whose}thread {self.thread}"
        if self.address is not None:
            place += f", address {self.address:#x}"
        if self.buffer is not None:
            place += f" ({self.buffer})"
        here = Place(self.thread, self.line, self.text, self.source)
        there = f"; thread {self.other.thread} was at {self.other}" if self.other else ""
        return f"{self.kind}: {self.detail}; {place}; {here}{there}"

    def __reduce__(self) -> tuple[Any, ...]:
        keywords = {
            name: getattr(self, name)
            for name in ("launch", "thread", "line", "text", "address", "buffer", "source", "other")
        }
        return _rebuild, (self.kind, self.detail, keywords)


def _rebuild(kind: str, detail: str, keywords: dict[str, Any]) -> SimulationError:
    return SimulationError(kind, detail, **keywords)


ERROR_KINDS = (
    "out of bounds",
    "misaligned",
    "uninitialised",
    "read-only",
    "before the wait",
    "race",
    "deadlock",
    "member mask",
    "divergent barrier",
    "barrier",
    "mbarrier",
    "absent CTA",
    "mbarrier",
    "absent CTA",
    "division by zero",
    "trap",
    "instruction budget",
)
"""Every ``SimulationError.kind``."""
