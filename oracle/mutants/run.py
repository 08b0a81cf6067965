"""The run of `mutants`: which are judged, by how many processes, and what becomes of each."""

import hashlib
import importlib.util
import json
import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.resources import files
from itertools import chain, zip_longest

from oracle.artifacts import missing_compiler
from oracle.errors import CannotRunError
from oracle.mutants import sieve, sources
from oracle.mutants.device import Code
from oracle.mutants.sources import CONTRACT, FILES, Mutant
from oracle.mutants.verdict import CAUGHT, EQUIVALENT, SURVIVED, Verdict
from oracle.mutants.worker import Process, Task, wait
from oracle.report import Reporter


@dataclass(frozen=True)
class Equivalent:
    """Why no input can tell a mutant from the original; ``change`` is the mutant's, so none is mistaken."""

    change: str
    reason: str


@dataclass(frozen=True)
class Judged:
    """A mutant and what became of it."""

    mutant: Mutant
    verdict: Verdict


@dataclass(frozen=True)
class Score:
    """The end of a run.

    mistaken
        What was held for equivalent and was caught.
    seconds, processor_seconds
        From start to end, and of all processes.
    """

    judged: tuple[Judged, ...]
    mistaken: tuple[str, ...]
    seconds: float
    processor_seconds: float

    @property
    def survivors(self) -> tuple[Judged, ...]:
        """Those that nothing caught."""
        return tuple(one for one in self.judged if one.verdict.outcome == SURVIVED)

    @property
    def passed(self) -> bool:
        """Whether every mutant was caught, but for those that are no change."""
        return not self.survivors and not self.mistaken


@cache
def equivalents() -> dict[str, Equivalent]:
    """Return the mutants that are proven equivalent, by id, from ``equivalents.json``."""
    text = (files("oracle.mutants") / "equivalents.json").read_text(encoding="utf-8")
    return {name: Equivalent(**entry) for name, entry in json.loads(text).items()}


def choose(backends: tuple[str, ...], only: str | None, sample: int | None) -> tuple[Mutant, ...]:
    """Return the mutants of a run.

    Parameters
    ----------
    backends
        ``cute`` and ``triton``; the contract's come along.
    only
        A pattern for ids, ``*`` and ``?`` as in file names; None: all.
    sample
        So many of them, a fixed choice over all groups; None: all.

    Raises
    ------
    ValueError
        No id matches ``only``.
    """
    groups = [
        [mutant for mutant in sources.mutants(group) if only is None or fnmatchcase(mutant.id, only)]
        for group in (*backends, CONTRACT)
    ]
    if not any(groups):
        raise ValueError(f"no mutant {only!r}: --list shows them")
    if sample is None:
        return tuple(chain(*groups))
    mixed = [
        sorted(group, key=lambda mutant: hashlib.sha256(mutant.id.encode()).digest()) for group in groups
    ]
    turns = (mutant for turn in zip_longest(*mixed) for mutant in turn if mutant is not None)
    return tuple(mutant for mutant, _ in zip(turns, range(sample), strict=False))


def run(
    mutants: tuple[Mutant, ...], backends: tuple[str, ...], jobs: int, reporter: Reporter, fast: bool = False
) -> Score:
    """Judge mutants.

    Parameters
    ----------
    mutants
        From `choose`.
    backends
        Those whose kernels and hosts take part.
    jobs
        Processes at a time.
    reporter
        Is told of the progress.
    fast
        Put no survivor to the whole run of `check`: the score is that of `check --fast`.

    Raises
    ------
    CannotRunError
        A compiler or torch is missing, or the judges find fault with the unchanged sources.
    """
    start = time.monotonic()
    for backend in backends:
        reason = missing_compiler(backend)
        if reason is not None:
            raise CannotRunError(reason)
    if importlib.util.find_spec("torch") is None:
        raise CannotRunError("torch is not installed: the judges of the host functions need it")
    packages = sources.packages(backends)
    reporter.note(f"loading torch and the compilers of {', '.join(backends)}")
    _warm(backends)
    modules = dict.fromkeys((mutant.group, mutant.module) for mutant in mutants)
    known: dict[str, Code | None] = {}
    controls = [Task(group, module, None, packages, backends) for group, module in _kinds(modules)]
    reporter.note("judging what is unchanged first, which must pass")
    with reporter.over(len(controls), "modules"):
        for task, verdict, made in _judged(controls, jobs, reporter):
            if verdict.outcome != SURVIVED:
                raise CannotRunError(
                    f"the unchanged {task.module} is {verdict.outcome}: {verdict.by}: {verdict.detail}"
                )
            if made is not None:
                known[task.group] = made
            reporter.advance(1)
    tasks = [Task(m.group, m.module, m, packages, backends, known.get(m.group)) for m in mutants]
    verdicts: dict[str, Verdict] = {}
    with reporter.over(len(tasks), "mutants"):
        for mutant, verdict in _with_survivors_in_full(tasks, jobs, reporter, fast):
            verdicts[mutant.id] = verdict
            reporter.advance(1)
    judged, mistaken = [], []
    for mutant in mutants:
        verdict = verdicts[mutant.id]
        held = equivalents().get(mutant.id)
        if held is not None and held.change == change(mutant) and verdict.outcome == SURVIVED:
            verdict = replace(verdict, outcome=EQUIVALENT, by="reason", detail=held.reason)
        elif held is not None:
            mistaken.append(f"{mutant.id} is {verdict.outcome}: {verdict.by} {verdict.detail}")
        judged.append(Judged(mutant, verdict))
    return Score(tuple(judged), tuple(mistaken), time.monotonic() - start, _processor_seconds())


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def change(mutant: Mutant) -> str:
    """Return the change in one line."""
    return " ".join(f"{mutant.before} -> {mutant.after or '(nothing)'}".split())


def _warm(backends: tuple[str, ...]) -> None:
    """Import once what every process needs, and let the compilers set up what a first use sets up."""
    import_module("torch")
    for backend in backends:
        import_module(f"oracle.backends.{backend}")
        import_module(f"impl_{backend}.compiler").compile_kernel(False, True)
    sieve.trials()


def _kinds(modules: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield one module for every way to judge."""
    seen = set()
    for group, module in modules:
        kind = (group, module.rpartition(".")[2] if group != CONTRACT else "")
        kind = (group, "kernel") if kind[1] == "primitives" else kind
        if kind not in seen:
            seen.add(kind)
            yield group, module


def _judged(
    tasks: Iterable[Task], jobs: int, reporter: Reporter
) -> Iterator[tuple[Task, Verdict, Code | None]]:
    """Judge ``jobs`` tasks at a time; yield the verdicts as they come."""
    source = iter(tasks)
    busy: list[Process] = []
    try:
        while True:
            while len(busy) < jobs and (task := next(source, None)) is not None:
                busy.append(Process(task))
            if not busy:
                return
            for process in wait(busy, reporter.tick):
                busy.remove(process)
                yield process.task, *process.verdict()
    finally:
        for process in busy:
            process.end()


def _with_survivors_in_full(
    tasks: list[Task], jobs: int, reporter: Reporter, fast: bool
) -> Iterator[tuple[Mutant, Verdict]]:
    """Judge all; unless ``fast``, put survivors not held for equivalent to the whole run of `check`."""
    again = []
    for task, verdict, _ in _judged(tasks, jobs, reporter):
        assert task.mutant is not None
        if not fast and verdict.outcome == SURVIVED and _runs(task) and task.mutant.id not in equivalents():
            again.append(replace(task, full=True))
        else:
            yield task.mutant, verdict
    for task, verdict, _ in _judged(again, jobs, reporter):
        assert task.mutant is not None
        yield task.mutant, verdict


def _runs(task: Task) -> bool:
    return task.group != CONTRACT and not task.module.endswith("host")


def counts(judged: Iterable[Judged]) -> dict[str, int]:
    """Return how many there are of each outcome, and of what caught them."""
    found: dict[str, int] = {}
    for one in judged:
        outcome, by = one.verdict.outcome, one.verdict.by
        found[outcome] = found.get(outcome, 0) + 1
        if outcome == CAUGHT:
            found[by] = found.get(by, 0) + 1
    return found


def groups(judged: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Return the mutants by group, in order."""
    found: dict[str, list[Judged]] = {group: [] for group in FILES}
    for one in judged:
        found[one.mutant.group].append(one)
    return {group: ones for group, ones in found.items() if ones}
