"""What becomes of a mutant."""

from dataclasses import dataclass
from typing import Final

CAUGHT: Final = "caught"
REJECTED: Final = "rejected"
EQUIVALENT: Final = "equivalent"
SURVIVED: Final = "survived"
OUTCOMES: Final = (CAUGHT, REJECTED, EQUIVALENT, SURVIVED)


@dataclass(frozen=True)
class Verdict:
    """The end of one mutant.

    outcome
        ``caught``; ``rejected``: no code came of it; ``equivalent``: no input can tell; ``survived``.
    by
        What caught it: ``bits``, ``simulator``, ``code``, ``launch``, ``compiler``, ``calls``, ``time``, or
        the whole of ``check``.
    detail
        The clauses that differ, the simulator's kind of error, the check that failed, or the reason.
    family
        The family of the problem that told.
    seconds
        Of the process that judged it.
    """

    outcome: str
    by: str = ""
    detail: str = ""
    family: str = ""
    seconds: float = 0.0
