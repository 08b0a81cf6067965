"""Judges what the compilers make: compile, read the code, run it in the simulator, see how it is launched.

Runs in a process of its own, in which the changed package is the one that is imported.
"""

from functools import cache
from typing import Any, Final

import numpy as np

from oracle import artifacts, backends, check, ptxsim
from oracle.artifacts import Compiled
from oracle.compare import compare, explain
from oracle.errors import CannotRunError
from oracle.mutants import code, compilers
from oracle.mutants.sieve import Trial, trials
from oracle.mutants.verdict import CAUGHT, EQUIVALENT, REJECTED, SURVIVED, Verdict
from oracle.plan import Plan, Target
from oracle.ptxsim import PtxError, SimulationError

VARIANTS: Final = (
    *((metadata, renormalize, False) for metadata in (True, False) for renormalize in (True, False)),
    (True, True, True),
)
"""Metadata, renormalize, early dependents: of the early variants, the one with all of the code."""

_BUDGET: Final = 20_000
"""Instructions of a simulator's tile: twenty times what the kernels need."""

Variant = tuple[bool, bool, bool]
Code = dict[Variant, str]
"""The instructions of every variant."""


def judge(backend: str, module: str, unchanged: Code | None) -> Verdict:
    """Put the package as it is imported here to every judge until one catches it.

    Parameters
    ----------
    backend
        ``cute`` or ``triton``.
    module
        The one that was changed.
    unchanged
        The instructions without the change; None: this is the package without a change.
    """
    makes_code = not module.endswith("compiler")
    if not makes_code:
        noticed = compilers.noticed(backend)
        if noticed is not None:
            return Verdict(CAUGHT, "compiler", noticed)
        noticed = compilers.launch_noticed(backend)
        if noticed is not None:
            return Verdict(CAUGHT, "launch", noticed)
    made: dict[Variant, Compiled] = {}
    same = set()
    asked: list[tuple[Variant, Trial | None]] = [((*trial.variant, False), trial) for trial in trials()]
    for variant, trial in [*asked, *((variant, None) for variant in VARIANTS)]:
        if variant not in made:
            try:
                made[variant] = _compiled(backend, variant)
            except CannotRunError as error:
                return Verdict(REJECTED if makes_code else CAUGHT, "compiler", str(error))
            if unchanged is not None and code.instructions(made[variant].ptx) == unchanged[variant]:
                same.add(variant)
        if trial is not None and variant not in same:
            verdict = _run(backend, trial)
            if verdict is not None:
                return verdict
    for variant, compiled in made.items():
        fault = code.fault(backend, compiled, early_dependents=variant[2])
        if fault is not None:
            return Verdict(CAUGHT, "code", fault)
    noticed = compilers.launch_noticed(backend) if makes_code else None
    if noticed is not None:
        return Verdict(CAUGHT, "launch", noticed)
    if makes_code and len(same) == len(VARIANTS):
        return Verdict(EQUIVALENT, "same code", "the compiler makes the same instructions of every variant")
    return Verdict(SURVIVED)


def _run(backend: str, trial: Trial) -> Verdict | None:
    outputs = trial.expected.blank(len(trial.batch))
    try:
        backends.get(backend).run(trial.batch, outputs, "sim")
    except StoppedError as stop:
        return Verdict(CAUGHT, "simulator", stop.error.kind, trial.families[stop.error.launch])
    except PtxError as error:
        return Verdict(CAUGHT, "simulator", f"unknown instruction: {error.text}")
    except ValueError as error:
        return Verdict(CAUGHT, "simulator", str(error))
    differing = compare(trial.expected, outputs)
    if not differing.any():
        return None
    first = np.nonzero(differing)[0][:1]
    difference = explain(trial.batch.take(first), trial.expected.take(first), outputs.take(first))
    return Verdict(CAUGHT, "bits", ", ".join(difference.clauses), trial.families[int(first[0])])


def judge_in_full(backend: str) -> Verdict:
    """Put the package as it is imported here to the whole of `check`, until something differs."""
    for chunk in Plan((Target(backend, "sim"),)).chunks():
        result = check.execute(chunk)
        for finding in result.findings:
            return Verdict(CAUGHT, "check", ", ".join(finding.kind), chunk.family)
    return Verdict(SURVIVED)


@cache
def instructions(backend: str) -> Code:
    """Return the instructions of every variant of the package as it is imported here."""
    return {variant: code.instructions(_compiled(backend, variant).ptx) for variant in VARIANTS}


def _compiled(backend: str, variant: Variant) -> Compiled:
    metadata, renormalize, early_dependents = variant
    return artifacts.artifact(backend, metadata, renormalize, early_dependents=early_dependents)


def forget() -> None:
    """Forget kernels that this process knows from before a change."""
    artifacts.artifact.cache_clear()
    instructions.cache_clear()


class StoppedError(Exception):
    """The simulator's error, under a name that no adapter knows: none then looks for the source's line."""

    def __init__(self, error: SimulationError) -> None:
        super().__init__(str(error))
        self.error = error


def limit() -> None:
    """Stop endless kernels soon in this process, and say no more of an error than its kind."""
    launch = ptxsim.launch

    def limited(*arguments: Any, **options: Any) -> Any:
        try:
            return launch(*arguments, **options, instruction_budget=_BUDGET)
        except SimulationError as error:
            raise StoppedError(error) from error

    setattr(ptxsim, "launch", limited)  # noqa: B010
