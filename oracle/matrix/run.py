"""The run: every cell made, asked and judged, some at a time; its record for ``evidence/``."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oracle.artifacts import locked
from oracle.matrix import inside
from oracle.matrix.cells import Cell
from oracle.matrix.environment import Environment, Processes, StepError
from oracle.progress import Progress

DIFFERENT: Final = "other bits than the specification's"


@dataclass(frozen=True)
class Outcome:
    """What came of one cell.

    found
        What `inside` writes; ``step`` and ``why`` where something is wrong, which may be the installation.
    """

    cell: Cell
    found: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return "why" not in self.found

    @property
    def row(self) -> dict[str, Any]:
        """The cell's entry in the record."""
        head = {
            "compiler": self.cell.compiler.distribution,
            "version": self.cell.version,
            "others": list(self.cell.others),
            "supported": self.cell.supported,
            "required": self.cell.required,
            "passed": self.passed,
        }
        return head | self.found


@dataclass(frozen=True)
class Run:
    """All outcomes, in the order of the cells, and how long it took."""

    outcomes: tuple[Outcome, ...]
    digest: str
    seconds: float

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The required cells where something is wrong."""
        return tuple(one for one in self.outcomes if one.cell.required and not one.passed)

    @property
    def record(self) -> dict[str, Any]:
        """The run as JSON values: totals over the required cells, and a row for every cell."""
        required = [one.found for one in self.outcomes if one.cell.required]
        return {
            "verdict": "fail" if self.failed else "pass",
            "versions_run": len(required),
            "launches": sum(found.get("launches", 0) for found in required),
            "bits_compared": sum(found.get("bits_compared", 0) for found in required),
            "mismatches": sum(found.get("mismatches", 0) for found in required),
            "failed": len(self.failed),
            "digest": self.digest,
            "seconds": round(self.seconds, 1),
            "rows": [one.row for one in self.outcomes],
        }


Ask = Callable[[Cell, Path, Processes], dict[str, Any]]
"""Answers for a cell whose environment is in a folder."""


def run(cells: Sequence[Cell], folder: Path, jobs: int, progress: Progress, ask: Ask | None = None) -> Run:
    """Make the run.

    Parameters
    ----------
    cells
        What to run.
    folder
        Where the environments lie; they are used again.
    jobs
        Cells at a time.
    progress
        Is told of each cell as it is done.
    ask
        `ask_cell` if None.
    """
    start = time.monotonic()
    processes, outcomes = Processes(), {}
    pool = ThreadPoolExecutor(jobs)
    try:
        tasks = {
            pool.submit(ask or ask_cell, cell, folder / str(cell).replace("==", "-"), processes): cell
            for cell in cells
        }
        digest = inside.expected_digest()
        left = set(tasks)
        while left:
            done, left = wait(left, timeout=1, return_when=FIRST_COMPLETED)
            for task in done:
                one = Outcome(tasks[task], judged(task.result(), digest))
                outcomes[one.cell] = one
                progress.note(f"{one.cell}: {'passed' if one.passed else one.found['why']}")
                progress.advance(1)
            progress.tick()
    finally:
        processes.end()
        pool.shutdown(cancel_futures=True)
    return Run(tuple(outcomes[cell] for cell in cells), digest, time.monotonic() - start)


def judged(found: dict[str, Any], digest: str) -> dict[str, Any]:
    """Return what was found, with the complaint if nothing was wrong but the digest."""
    if "why" in found or found["digest"] == digest:
        return found
    return found | {"step": "run", "why": DIFFERENT}


def ask_cell(cell: Cell, folder: Path, processes: Processes) -> dict[str, Any]:
    """Make a cell's environment and return what `inside` finds there, or why it finds nothing."""
    with locked(folder.parent / f"{folder.name}.lock"):
        return _ask(Environment(cell, folder, processes))


def _ask(environment: Environment) -> dict[str, Any]:
    try:
        environment.make()
    except StepError as error:
        return {"step": "install", "why": str(error)}
    file = environment.folder / "found.json"
    file.unlink(missing_ok=True)
    try:
        code, said = environment.ask("oracle.matrix.inside", [environment.cell.backend, str(file)])
    except StepError as error:
        return {"step": "run", "why": str(error)}
    if not file.exists():
        words = [line.strip() for line in said.splitlines() if line.strip()] or ["none"]
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return {"step": "run", "why": environment.shortened(f"ended with {how}; last words: {words[-1]}")}
    found: dict[str, Any] = json.loads(environment.shortened(file.read_text(encoding="utf-8")))
    return found
