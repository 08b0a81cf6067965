"""The run of `search`: draw, judge, shrink; in worker processes, until time or examples are used up."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from hypothesis import Phase, configuration, find, settings
from hypothesis.errors import NoSuchExample

from oracle import backends, check, replay
from oracle.compare import PERMITTED
from oracle.errors import CannotRunError
from oracle.outcome import Finding
from oracle.plan import Target
from oracle.report import Reporter
from oracle.search.keep import Kept, add, described
from oracle.search.smaller import shrink
from oracle.search.strategies import groups
from oracle.search.whole import FAMILY, Whole, batch_of, first_wrong
from oracle.workers import Workers
from spec.folders import cache_folder

_EXAMPLES: Final = 16
"""Batches that a worker draws at a time."""

_KINDS: Final = ((False, "selection"), (True, "permutation"))


class _Found(BaseException):
    """Ends the drawing at once; Hypothesis would take an Exception for its own, run it again and print it."""

    def __init__(self, whole: Whole) -> None:
        super().__init__()
        self.whole = whole


@dataclass(frozen=True)
class Task:
    """So many batches for one target, from one seed; the other targets are asked about what it gets wrong."""

    target: Target
    others: tuple[Target, ...]
    seed: int
    number: int
    examples: int


@dataclass(frozen=True)
class Hunt:
    """What became of a task: batches and problems judged, and the smallest problem found wrong."""

    task: Task
    examples: int
    problems: int
    finding: Finding | None = None
    whole: Whole | None = None


@dataclass
class Searched:
    """The numbers of a run; ``kept`` is where a problem was kept, ``not_kept`` says whether none could be."""

    targets: tuple[Target, ...]
    wrong: list[Target]
    examples: int = 0
    problems: int = 0
    seconds: float = 0.0
    kept: Kept | None = None
    not_kept: bool = False


def variants(target: Target) -> tuple[tuple[bool, bool], ...]:
    """Return the variants (metadata, renormalize) that the target is asked, those without metadata first."""
    permitted = PERMITTED[target.backend]
    return tuple(
        (metadata, renormalize)
        for metadata, kind in _KINDS
        for renormalize in (True, False)
        if permitted.asks(FAMILY, kind, renormalize)
    )


def run(
    targets: tuple[Target, ...],
    seconds: float | None,
    examples: int | None,
    seed: int,
    jobs: int,
    reporter: Reporter,
    replays: Path,
    keep: str | None = None,
) -> Searched:
    """Search until every target was found wrong, or the time or the examples are used up.

    Parameters
    ----------
    targets
        What to search; each is searched alone.
    seconds, examples
        How long, or how many batches a target; one of the two is None.
    seed
        Of everything that is drawn. With ``examples`` the same seed finds the same.
    jobs
        Worker processes.
    reporter
        Is told of the progress, and of what is found.
    replays
        The folder for replay files.
    keep
        The name under which the first problem found becomes a known case.

    Raises
    ------
    CannotRunError
        A target cannot run here, or a worker died.
    """
    for target in targets:
        reason = backends.unavailable(target.backend, target.device)
        if reason is not None:
            raise CannotRunError(f"{target}: {reason}")
    result = Searched(targets, [])
    start = last = time.monotonic()
    deadline = None if seconds is None else start + seconds
    tasks = _tasks(targets, seed, examples, deadline, result.wrong)
    total = len(targets) * examples if examples is not None else seconds or 0.0
    with Workers(jobs) as workers, reporter.over(total):
        for hunt in workers.map(execute, tasks, reporter.tick):
            result.examples += hunt.examples
            result.problems += hunt.problems
            now = time.monotonic()
            reporter.advance(hunt.task.examples if examples is not None else now - last, hunt.problems)
            last = now
            finding, whole = hunt.finding, hunt.whole
            if finding is None or whole is None or hunt.task.target in result.wrong:
                continue
            result.wrong.append(hunt.task.target)
            reporter.finding(finding, replay.save(finding, replays))
            reporter.say("\n".join([*(f"  {line}" for line in described(whole)), ""]))
            if keep is not None and result.kept is None:
                result.kept = add(keep, finding, whole, partial(first_wrong, hunt.task.target))
                result.not_kept = result.kept is None
    result.seconds = time.monotonic() - start
    return result


def _tasks(
    targets: tuple[Target, ...],
    seed: int,
    examples: int | None,
    deadline: float | None,
    wrong: Sequence[Target],
) -> Iterator[Task]:
    """Yield tasks for every target in turn; ``wrong`` grows meanwhile, and its targets get no more."""
    number = 0
    while True:
        done = number * _EXAMPLES
        some = _EXAMPLES if examples is None else min(_EXAMPLES, examples - done)
        if some <= 0:
            return
        for target in targets:
            if deadline is not None and time.monotonic() >= deadline:
                return
            if target not in wrong:
                others = tuple(other for other in targets if other != target)
                yield Task(target, others, seed, number, some)
        if all(target in wrong for target in targets):
            return
        number += 1


def execute(task: Task) -> Hunt:
    """Draw the task's batches; shrink the first problem that the target gets wrong."""
    # Hypothesis keeps what it reads from sources in a folder, which is the current one otherwise.
    configuration.set_hypothesis_home_dir(cache_folder() / "hypothesis")
    judge = partial(first_wrong, task.target)
    examples = problems = 0

    def look(drawn: list[Whole]) -> bool:
        nonlocal examples, problems
        examples += 1
        problems += len(drawn)
        place = judge(drawn)
        if place is not None:
            raise _Found(drawn[place])
        return False

    drawing = settings(
        max_examples=task.examples, database=None, deadline=None, phases=(Phase.generate,), derandomize=False
    )
    random = Random(f"{task.seed}, {task.target}, {task.number}")
    try:
        find(groups(variants(task.target)), look, settings=drawing, random=random)
    except NoSuchExample:
        return Hunt(task, examples, problems)
    except _Found as found:
        smallest = shrink(found.whole, judge)
    for finding in check.judge(batch_of([smallest]), (task.target, *_askable(task, smallest))).findings:
        if finding.target == task.target:
            return Hunt(task, examples, problems, finding, smallest)
    raise CannotRunError(f"{task.target} fails a problem only now and then (seed {task.seed}, {task.number})")


def _askable(task: Task, whole: Whole) -> Iterator[Target]:
    """Yield the other targets that are asked problems of this one's kind."""
    for other in task.others:
        if (whole.ranges is not None, whole.renormalize) in variants(other):
            yield other
