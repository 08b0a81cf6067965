"""What a run finds: numbers a line of the table, and problems that an answer gets wrong."""

from dataclasses import dataclass, field
from pathlib import Path

from oracle.compare import Difference
from oracle.plan import Chunk, Target
from oracle.problem import I64, Batch, Outputs


@dataclass
class Tally:
    """The numbers of one line of the table.

    launches
        Problems answered, also wrongly; each is one launch of a kernel.
    bits
        Output bits compared, those that must stay untouched included.
    mismatches
        Output words that differ, and launches that the simulator stopped.
    seconds
        Spent in the backend, added up over workers.
    reordered
        Launches that ran again in another order of threads.
    """

    launches: int = 0
    bits: int = 0
    mismatches: int = 0
    seconds: float = 0.0
    reordered: int = 0

    def add(self, other: "Tally") -> None:
        """Add the numbers of ``other``."""
        self.launches += other.launches
        self.bits += other.bits
        self.mismatches += other.mismatches
        self.seconds += other.seconds
        self.reordered += other.reordered

    @property
    def rate(self) -> float:
        """Launches a second of one worker."""
        return self.launches / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Finding:
    """One problem that one target gets wrong.

    batch, expected
        The problem alone, and what the specification writes.
    difference
        What differs; None where the simulator stopped the launch.
    failure
        What the simulator said, else None.
    others
        A sentence on every other target of the run.
    actual
        What the target wrote, for a picture of it; None where that was not kept.
    """

    target: Target
    batch: Batch
    expected: Outputs
    difference: Difference | None
    failure: str | None = None
    others: tuple[str, ...] = ()
    actual: Outputs | None = None

    @property
    def kind(self) -> tuple[str, ...]:
        """What findings of one cause have in common: the clauses, or the simulator's kind of error."""
        if self.difference is not None:
            return self.difference.clauses
        return ("simulator", str(self.failure).split(":", 1)[0])


@dataclass
class Judged:
    """A batch's numbers and findings; ``left`` launches were not run after simulator errors.

    wrong
        Of every problem the output words that differ; 1 where the simulator stopped the launch, -1 where it
        was not run after that.
    """

    tallies: dict[Target, Tally] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    left: int = 0
    wrong: dict[Target, I64] = field(default_factory=dict)


@dataclass
class ChunkResult(Judged):
    """A chunk's numbers and findings."""

    chunk: Chunk = field(kw_only=True)


@dataclass(frozen=True)
class Result:
    """The numbers of a whole run, by target and family in table order; ``left`` launches were not run.

    findings
        What was reported, with the file that replays it.
    """

    tallies: dict[tuple[Target, str], Tally]
    left: int
    seconds: float
    findings: tuple[tuple[Finding, Path], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no bit differed and no launch was stopped."""
        return all(tally.mismatches == 0 for tally in self.tallies.values())

    @property
    def total(self) -> Tally:
        """All numbers added up."""
        total = Tally()
        for tally in self.tallies.values():
            total.add(tally)
        return total
