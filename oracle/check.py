"""The run of `check`: every chunk through every target, each answer against the specification."""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from oracle import artifacts, backends, cases, defaults, replay
from oracle.compare import PERMITTED, WORD_BITS, agreement, compare, expect, explain, words
from oracle.errors import CannotRunError
from oracle.outcome import ChunkResult, Finding, Judged, Result, Tally
from oracle.plan import Chunk, Plan, Target
from oracle.problem import I64, Batch, Outputs
from oracle.ptxsim import SimulationError
from oracle.reordered import can_reorder, differences, schedule_of
from oracle.report import Reporter
from oracle.workers import Workers

_SIMULATOR_ERRORS: Final = 2
"""Simulator errors after which the rest of a chunk is left: a missing barrier fails every launch alike."""

_LOOKED_AT: Final = 16
"""Wrong problems of a chunk that are explained, in search of ones that break other clauses."""


@dataclass(frozen=True)
class _Variant:
    """A kernel that the run needs, compiled ahead so that no rate includes a compiler."""

    backend: str
    metadata: bool
    renormalize: bool


@dataclass(frozen=True)
class _Task:
    """A chunk, and the other order of threads in which it runs again; 0: it does not."""

    chunk: Chunk
    schedule: int


@dataclass(frozen=True)
class Answer:
    """What a target made of a batch.

    failures
        What the simulator said, by the problem that it stopped, or that depends on the order of threads.
    left
        The problems that were not run after the simulator stopped others.
    seconds
        Spent in the backend, the runs in other orders left out.
    reordered
        Launches that ran again in another order of threads.
    """

    outputs: Outputs
    failures: dict[int, str]
    left: npt.NDArray[np.intp]
    seconds: float
    reordered: int = 0


def run(
    plan: Plan,
    jobs: int,
    reporter: Reporter,
    replays: Path,
    watch: Callable[[ChunkResult], None] | None = None,
    reorder: int = defaults.SCHEDULE_EVERY,
) -> Result:
    """Make the run.

    Parameters
    ----------
    plan
        What to run.
    jobs
        Worker processes.
    reporter
        Is told of the progress, and of every wrong problem of a new kind.
    replays
        The folder for the replay files of those problems.
    watch
        Is given the result of every chunk.
    reorder
        One of how many chunks runs again in another order of threads, where the simulator runs it; 1 or more.

    Raises
    ------
    CannotRunError
        A target cannot run here, or a worker died.
    """
    for target in plan.targets:
        reason = backends.unavailable(target.backend, target.device)
        if reason is not None:
            raise CannotRunError(f"{target}: {reason}")
    start = time.monotonic()
    tallies: dict[tuple[Target, str], Tally] = {}
    left = 0
    reported: list[tuple[Finding, Path]] = []
    with Workers(jobs) as workers:
        _prepare(plan, workers, reporter)
        tasks = (_Task(chunk, schedule_of(turn, reorder)) for turn, chunk in enumerate(plan.chunks()))
        with reporter.over(sum(chunk.weight for chunk in plan.chunks()), "launches"):
            for result in workers.map(_execute, tasks, reporter.tick):
                left += result.left
                for target, tally in result.tallies.items():
                    tallies.setdefault((target, result.chunk.family), Tally()).add(tally)
                for finding in result.findings:
                    if reporter.wants(finding):
                        reported.append((finding, replay.save(finding, replays)))
                        reporter.finding(*reported[-1])
                if watch is not None:
                    watch(result)
                launches = sum(tally.launches for tally in result.tallies.values())
                reporter.advance(result.chunk.weight, launches)
    order = {key: place for place, key in enumerate(product(plan.targets, cases.FAMILIES))}
    rows = {key: tallies[key] for key in sorted(tallies, key=order.__getitem__)}
    return Result(rows, left, time.monotonic() - start, tuple(reported))


def _prepare(plan: Plan, workers: Workers, reporter: Reporter) -> None:
    simulated = {target.backend for target in plan.targets if target.device == "sim"}
    needed = {
        _Variant(backend, chunk.ranges is not None, chunk.renormalize)
        for chunk in plan.chunks()
        for backend in simulated.intersection(artifacts.compiled_backends())
    }
    missing = [
        variant
        for variant in sorted(needed, key=str)
        if not artifacts.entry_path(variant.backend, variant.metadata, variant.renormalize).exists()
    ]
    if missing:
        reporter.note(f"compiling {len(missing)} kernels")
        with reporter.over(len(missing), "kernels"):
            for _ in workers.map(_compile, missing, reporter.tick):
                reporter.advance(1)


def _compile(variant: _Variant) -> None:
    artifacts.artifact(variant.backend, variant.metadata, variant.renormalize)


def _execute(task: _Task) -> ChunkResult:
    return execute(task.chunk, (task.schedule,) if task.schedule else ())


def execute(chunk: Chunk, schedules: Sequence[int] = ()) -> ChunkResult:
    """Put one chunk to all of its targets and judge the answers, also those in other orders of threads."""
    return ChunkResult(chunk=chunk, **vars(judge(chunk.make(), chunk.targets, schedules)))


def judge(batch: Batch, targets: tuple[Target, ...], schedules: Sequence[int] = ()) -> Judged:
    """Put one batch to all targets and judge the answers, also those in other orders of threads."""
    expected = expect(batch)
    answers = {target: answer(target, batch, expected, schedules) for target in targets}
    return judge_answers(batch, expected, answers)


def judge_answers(batch: Batch, expected: Outputs, answers: dict[Target, Answer]) -> Judged:
    """Judge what targets made of a batch."""
    result = Judged()
    rights: dict[Target, Outputs] = {}
    wrong: dict[Target, I64] = {}
    for target, given in answers.items():
        rights[target] = PERMITTED[target.backend].right(batch, expected, given.outputs)
        differing = compare(rights[target], given.outputs)
        unanswered = [*given.failures, *given.left]
        differing[unanswered] = 0
        wrong[target] = differing
        compared = int(np.delete(words(batch), unanswered).sum()) * WORD_BITS
        launches = len(batch) - len(given.left)
        mismatches = int(differing.sum()) + len(given.failures)
        result.tallies[target] = Tally(launches, compared, mismatches, given.seconds, given.reordered)
        result.left += len(given.left)
        result.wrong[target] = differing.copy()
        result.wrong[target][[*given.failures]] = 1
        result.wrong[target][given.left] = -1
    for target in answers:
        result.findings += _findings(target, batch, expected, rights[target], answers, wrong)
    return result


def answer(target: Target, batch: Batch, like: Outputs, schedules: Sequence[int] = ()) -> Answer:
    """Run a batch on a target, into buffers as large as those of ``like``.

    A launch that the simulator stops is set aside, and the others run again. Then all that were answered run
    in the other orders of threads, where the target has any.
    """
    backend = backends.get(target.backend)
    outputs = like.blank(len(batch))
    rest = np.arange(len(batch))
    failures: dict[int, str] = {}
    start = time.perf_counter()
    while len(rest) and len(failures) < _SIMULATOR_ERRORS:
        part = outputs.blank(len(rest))
        try:
            backend.run(batch.take(rest), part, target.device)
        except SimulationError as error:
            failures[int(rest[error.launch])] = error.told()
            rest = np.delete(rest, error.launch)
        except CannotRunError:
            raise
        except Exception as error:
            raise CannotRunError(f"{target}: {_told_in_full(error, batch)}") from error
        else:
            outputs.put(rest, part)
            rest = rest[:0]
    seconds = time.perf_counter() - start
    reordered = 0
    for schedule in schedules if can_reorder(target) else ():
        where = np.setdiff1d(np.arange(len(batch)), [*failures, *rest])
        if len(where):
            failures |= differences(target, batch, outputs, where, schedule)
            reordered += len(where)
    return Answer(outputs, failures, rest, seconds, reordered)


def _told_in_full(error: Exception, batch: Batch) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return f"{type(error).__name__} at {place.filename}:{place.lineno} (family {batch.family}): {message}"


def _findings(
    target: Target,
    batch: Batch,
    expected: Outputs,
    rights: Outputs,
    answers: dict[Target, Answer],
    wrong: dict[Target, I64],
) -> Iterator[Finding]:
    """Yield the target's wrong problems, one for each set of clauses."""
    mine = answers[target]
    seen = set()
    for problem in [*mine.failures, *np.nonzero(wrong[target])[0][:_LOOKED_AT]]:
        where = np.array([problem])
        alone, right = batch.take(where), rights.take(where)
        failure = mine.failures.get(int(problem))
        actual = None if failure is not None else mine.outputs.take(where)
        difference = None if actual is None else explain(alone, right, actual)
        others = tuple(
            _other(name, problem, other, wrong[name], mine)
            for name, other in answers.items()
            if name is not target and problem not in other.left
        )
        finding = Finding(target, alone, expected.take(where), difference, failure, others, actual)
        if finding.kind not in seen:
            seen.add(finding.kind)
            yield finding


def _other(name: Target, problem: int, other: Answer, wrong: I64, mine: Answer) -> str:
    if problem in other.failures:
        return f"{name} was stopped by the simulator too"
    if not wrong[problem]:
        return f"{name} is right here"
    if problem not in mine.failures and agreement(other.outputs, mine.outputs, problem):
        return f"{name} writes the same wrong bits"
    return f"{name} is wrong too, with other bits"
