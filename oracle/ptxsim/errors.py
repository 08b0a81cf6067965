"""The two ways a simulation ends badly: text it cannot read, and a program that does what no GPU promises."""

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
    ) -> None:
        place = f"launch {launch}, thread {thread}"
        if address is not None:
            place += f", address {address:#x}"
        if buffer is not None:
            place += f" ({buffer})"
        origin = f" ({source})" if source else ""
        super().__init__(f"{kind}: {detail}; {place}; PTX line {line}: {text}{origin}")
        self.kind = kind
        self.detail = detail
        self.launch = launch
        self.thread = thread
        self.address = address
        self.buffer = buffer
        self.line = line
        self.text = text
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        keywords = {
            name: getattr(self, name)
            for name in ("launch", "thread", "line", "text", "address", "buffer", "source")
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
    "division by zero",
    "trap",
    "instruction budget",
)
"""Every ``SimulationError.kind``."""
