"""The run of `check --fast`: what the mutants are put to, put to the backends as they stand.

Small mixed batches of every family, the most suspicious first, in the simulator, one of each variant also in
another order of threads; what the compiled code must show whatever its inputs are; how it is launched; the
compile functions, and the functions of the door on a pretended machine.
"""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import numpy as np

from oracle import artifacts, backends, check, ptxsim, replay, report, watch
from oracle.errors import CannotRunError
from oracle.files import write_whole
from oracle.mutants import code, compilers, hosts
from oracle.mutants.sieve import trials
from oracle.outcome import Judged, Result, Tally
from oracle.plan import Target
from oracle.reordered import SCHEDULES
from oracle.report import Reporter
from oracle.workers import Workers

CHOSEN: Final = ("device", "batch", "tile", "range", "family", "cases", "seed", "html")
"""Options of check that leave the run no choice of its own, or ask for what it does not count."""

FAMILY: Final = "mixed"
"""Where the numbers of a run are kept: a batch holds problems of every family."""

_VARIANTS: Final = ((True, True), (True, False), (False, True), (False, False))
_INSTRUCTIONS: Final = 50_000
"""Instructions of a simulator's tile, fifty times what the kernels need: an endless loop is told soon."""


@dataclass(frozen=True)
class Job:
    """A part of the run that one worker answers.

    part
        ``kernel``: one variant, compiled, read and run. ``functions``: those of the door. ``compiler``: the
        compile functions, and how their code is launched.
    variant
        Metadata, renormalize; for ``kernel``.
    """

    backend: str
    part: Literal["kernel", "functions", "compiler"]
    variant: tuple[bool, bool] = (True, True)

    @property
    def weight(self) -> float:
        """About how many seconds it takes."""
        return {"kernel": 1.5, "functions": 2.5, "compiler": 5.0}[self.part]


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a backend apart from its outputs."""

    backend: str
    part: str
    text: str


@dataclass
class Answer:
    """What a job found."""

    job: Job
    judged: Judged = field(default_factory=Judged)
    complaints: list[Complaint] = field(default_factory=list)


@dataclass(frozen=True)
class FastResult:
    """A whole run; ``unasked`` says what could not be asked here, and why."""

    result: Result
    complaints: tuple[Complaint, ...]
    unasked: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return self.result.passed and not self.complaints


def execute(options: argparse.Namespace, replays: Path) -> int:
    """Run ``check --fast`` or ``check --watch`` and return the exit code.

    Parameters
    ----------
    options
        backend (a tuple of names), jobs, json, watch, and `CHOSEN`, which are None where nothing was said.
    replays
        The folder for replay files.

    Returns
    -------
    int
        0: nothing is wrong; 1: something is; 2: bad arguments; 130: interrupted while watching.
    """
    complaint = _refusal(options)
    if complaint is not None:
        print(f"python -m oracle check: {complaint}", file=sys.stderr)
        return 2
    if options.watch:
        try:
            watch.watch(options.backend, () if options.jobs is None else ("--jobs", str(options.jobs)))
        except KeyboardInterrupt:
            return 130
    result = run(options.backend, options.jobs or len(os.sched_getaffinity(0)), Reporter(), replays)
    print(verdict(result), flush=True)
    if options.json is not None:
        write_whole(options.json, as_json(result).encode())
    return 0 if result.passed else 1


def _refusal(options: argparse.Namespace) -> str | None:
    mode = "--watch" if options.watch else "--fast"
    given = [name for name in CHOSEN if getattr(options, name) is not None]
    given += ["json"] if options.watch and options.json is not None else []
    if given:
        return f"{mode} makes its own choice: no --{given[0]}"
    kernels = artifacts.compiled_backends()
    others = [name for name in options.backend if name not in kernels]
    if others:
        return f"{mode} is for {', '.join(kernels)}, not {others[0]}"
    if options.json is not None and not options.json.parent.is_dir():
        return f"--json: no folder {options.json.parent}"
    return None


def run(names: tuple[str, ...], jobs: int, reporter: Reporter, replays: Path) -> FastResult:
    """Make the run.

    Parameters
    ----------
    names
        Of ``cute`` and ``triton``.
    jobs
        Worker processes. With 1 the work is done in this process, whose torch is then patched for good.
    reporter
        Is told of the progress, of every wrong problem of a new kind, and of every complaint.
    replays
        The folder for the replay files.

    Raises
    ------
    CannotRunError
        A backend cannot run here or does not compile, or a worker died.
    """
    for name in names:
        reason = backends.unavailable(name, "sim")
        if reason is not None:
            raise CannotRunError(f"{Target(name, 'sim')}: {reason}")
    start = time.monotonic()
    missing = [name for name in ("torch", "tvm_ffi") if importlib.util.find_spec(name) is None]
    planned = tuple(_jobs(names, without_functions=bool(missing)))
    tallies = {(Target(name, "sim"), FAMILY): Tally() for name in names}
    complaints: list[Complaint] = []
    left = 0
    with Workers(jobs) as workers, reporter.over(sum(job.weight for job in planned)):
        for answer in workers.map(do, planned, reporter.tick):
            for target, tally in answer.judged.tallies.items():
                tallies[target, FAMILY].add(tally)
            for finding in answer.judged.findings:
                if reporter.wants(finding):
                    reporter.finding(finding, replay.save(finding, replays))
            for complaint in answer.complaints:
                if complaint not in complaints:
                    complaints.append(complaint)
                    reporter.say(f"MISMATCH {complaint.backend}: {complaint.part}\n  {complaint.text}\n")
            left += answer.judged.left
            launches = sum(tally.launches for tally in answer.judged.tallies.values())
            reporter.advance(answer.job.weight, launches)
    unasked = tuple(f"the functions of the door, since {name} is not installed" for name in missing[:1])
    result = Result(tallies, left, time.monotonic() - start)
    return FastResult(result, tuple(complaints), unasked)


def _jobs(names: tuple[str, ...], without_functions: bool) -> Iterator[Job]:
    """Yield the kernels first, since outputs are what edits break most; a functions job patches torch."""
    for variant in _VARIANTS:
        for name in names:
            yield Job(name, "kernel", variant)
    for name in names:
        yield Job(name, "compiler")
    for name in names:
        if not without_functions:
            yield Job(name, "functions")


def do(job: Job) -> Answer:
    """Do one job."""
    answer = Answer(job)
    if job.part == "kernel":
        _ask_kernel(job, answer)
    elif job.part == "compiler":
        _ask_compiler(job.backend, answer)
    else:
        _complain(answer, "functions of the door", hosts.noticed(job.backend))
    return answer


def _complain(answer: Answer, part: str, text: str | None) -> None:
    if text is not None:
        answer.complaints.append(Complaint(answer.job.backend, part, text))


def _ask_kernel(job: Job, answer: Answer) -> None:
    target = Target(job.backend, "sim")
    compiled = artifacts.artifact(job.backend, *job.variant)
    _complain(answer, "compiled code", code.fault(job.backend, compiled))
    # The first batch of each variant runs again in another order of threads.
    schedules: tuple[int, ...] = (SCHEDULES[_VARIANTS.index(job.variant)],)
    with _impatient():
        for trial in trials():
            if trial.variant != job.variant:
                continue
            numbered = replace(trial.batch, index=np.arange(len(trial.batch)))
            judged = check.judge(numbered, (target,), schedules)
            schedules = ()
            answer.judged.tallies.setdefault(target, Tally()).add(judged.tallies[target])
            answer.judged.left += judged.left
            for finding in judged.findings:
                assert finding.batch.index is not None
                assert trial.batch.index is not None
                place = int(finding.batch.index[0])
                index = trial.batch.index[place : place + 1]
                alone = replace(finding.batch, family=trial.families[place], index=index)
                answer.judged.findings.append(replace(finding, batch=alone))


def _ask_compiler(backend: str, answer: Answer) -> None:
    import_module(f"impl_{backend}.compiler")
    # One check is that nothing is left in the current folder; the caller's is not still enough to tell.
    with TemporaryDirectory(prefix="musespark-", ignore_cleanup_errors=True) as folder, chdir(folder):
        _complain(answer, "compile functions", compilers.noticed(backend))
        early = artifacts.artifact(backend, True, True, early_dependents=True)
        _complain(answer, "compiled code", code.fault(backend, early, early_dependents=True))
        if backend != "cute" or importlib.util.find_spec("tvm_ffi") is not None:
            _complain(answer, "launch", compilers.launch_noticed(backend))


@contextmanager
def _impatient() -> Iterator[None]:
    """Stop endless kernels soon."""
    patient = ptxsim.launch

    def launch(*arguments: object, **options: object) -> object:
        return patient(*arguments, **{"instruction_budget": _INSTRUCTIONS, **options})  # type: ignore[arg-type]

    setattr(ptxsim, "launch", launch)  # noqa: B010
    try:
        yield
    finally:
        setattr(ptxsim, "launch", patient)  # noqa: B010


def verdict(fast: FastResult) -> str:
    """Return the last words of a run."""
    lines = [f"not asked: {text}" for text in fast.unasked]
    if fast.passed:
        lines.append(f"{report.verdict(fast.result)}; the whole run is without --fast")
        return "\n".join(lines)
    parts = dict.fromkeys(f"{complaint.backend}: {complaint.part}" for complaint in fast.complaints)
    if fast.result.passed:
        lines.append(f"FAIL: {'; '.join(parts)} ({fast.result.seconds:.0f} s)")
    else:
        lines.append("; ".join([report.verdict(fast.result), *parts]))
    return "\n".join(lines)


def as_json(fast: FastResult) -> str:
    """Return the run as JSON, as `check` without --fast has it, and what was found apart from outputs."""
    complaints = [vars(complaint) for complaint in fast.complaints]
    verdict = "pass" if fast.passed else "fail"
    return report.as_json(fast.result, verdict=verdict, complaints=complaints, not_asked=fast.unasked)
