"""The instruction budget: how many SASS instructions each variant has, in a committed file.

A change of a kernel that moves a count fails the tests until the file is written anew in the same commit:
``python -m oracle.bench.budget --write``. Without ``--write`` this prints every count beside its budget.
Counts belong to one version of one compiler for one architecture; other versions are reported, not judged.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oracle.artifacts import artifact, missing_compiler
from oracle.commands.base import ENDING, Parser
from oracle.commands.examples import TOOLS
from oracle.errors import CannotRunError
from oracle.exits import MISMATCH, PASS, ended
from oracle.files import write_whole
from oracle.inspection import disassemble, sass_listing
from oracle.report import Reporter
from spec.compilers import COMPILERS

FILE: Final = Path(__file__).with_name("budget.json")
ARCHITECTURES: Final = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
VARIANTS: Final = {
    "plain-raw": (False, False),
    "plain-renormalize": (False, True),
    "metadata-raw": (True, False),
    "metadata-renormalize": (True, True),
}
"""What of `metadata` and `renormalize` a variant's name stands for."""

UPDATE: Final = "python -m oracle.bench.budget --write"

Counts = dict[str, int]
"""Instructions by variant."""

Budget = dict[str, dict[str, dict[str, Counts]]]
"""Counts by backend, compiler version and architecture."""


@dataclass(frozen=True)
class Difference:
    """One variant whose count is not its budget."""

    backend: str
    arch: str
    variant: str
    budget: int
    count: int

    def __str__(self) -> str:
        more = self.count - self.budget
        what = f"{more} more" if more > 0 else f"{-more} fewer"
        return (
            f"{self.backend} {self.variant} for {self.arch}: {self.count} instructions, {what} than the "
            f"budget of {self.budget}; if that is meant, run `{UPDATE}` and commit {FILE.name} with it"
        )


def version(backend: str) -> str:
    """Return the installed version of a backend's compiler."""
    return str(COMPILERS[backend].installed())


def instructions(sass: str) -> int:
    """Return how many instructions there are in SASS text, without the NOPs that fill it up."""
    return sum(instruction.opcode != "NOP" for instruction in sass_listing(sass))


def counts(backend: str, arch: str, counted: Callable[[], None] = lambda: None) -> Counts:
    """Compile every variant of a backend, or take it from the disk, and count its instructions.

    ``counted`` is called after each variant.
    """
    found: Counts = {}
    for name, variant in VARIANTS.items():
        found[name] = instructions(disassemble(artifact(backend, *variant, arch).cubin))
        counted()
    return found


def load(file: Path = FILE) -> Budget:
    """Return the budget that is on disk."""
    budget: Budget = json.loads(file.read_text(encoding="utf-8"))
    return budget


def budgeted(budget: Budget, backend: str, arch: str) -> Counts | None:
    """Return the budget for the installed compiler; None where there is none for its version."""
    return budget.get(backend, {}).get(version(backend), {}).get(arch)


def no_budget(budget: Budget, backend: str, arch: str) -> str:
    """Say that there is no budget for the installed compiler, and for which versions there is one."""
    known = ", ".join(budget.get(backend, {})) or "none"
    compiler = f"{COMPILERS[backend].distribution} {version(backend)}"
    return f"no budget for {compiler} on {arch}; there is one for: {known}"


def differences(backend: str, arch: str, budget: Counts, found: Counts) -> list[Difference]:
    """Return the variants that are over or under their budget; a budget names every variant."""
    return [
        Difference(backend, arch, variant, budget[variant], found[variant])
        for variant in VARIANTS
        if budget[variant] != found[variant]
    ]


def updated(budget: Budget, backend: str, found: dict[str, Counts]) -> Budget:
    """Return the budget with a backend's counts, by architecture, for the installed compiler.

    Where they differ from what was there for it, the code has changed, and the counts of other versions are
    dropped: they are no longer true.
    """
    before = budget.get(backend, {})
    known = before.get(version(backend))
    kept = before if known in (None, found) else {}
    return budget | {backend: dict(sorted((kept | {version(backend): found}).items()))}


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="python -m oracle.bench.budget",
        description="Count the SASS instructions of every variant, and compare with the committed budget.",
        examples=TOOLS["oracle.bench.budget"],
        ending=ENDING,
    )
    made.add_argument("--write", action="store_true", help="make the counts the budget")
    made.add_argument("--backend", choices=tuple(COMPILERS), help="this one alone")
    return made


def main(
    arguments: Sequence[str] | None = None,
    count: Callable[[str, str, Callable[[], None]], Counts] = counts,
    file: Path = FILE,
) -> int:
    """Print every count beside its budget, or write the budget, and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return ended("budget", lambda: _run(parser().parse(words), count, file))


def _run(
    options: argparse.Namespace, count: Callable[[str, str, Callable[[], None]], Counts], file: Path
) -> int:
    chosen: Iterable[str] = (options.backend,) if options.backend else tuple(COMPILERS)
    budget = load(file) if file.exists() else {}
    for backend in chosen:
        if (reason := missing_compiler(backend)) is not None:
            raise CannotRunError(f"{backend}: {reason}")
    differs = False
    reporter = Reporter()
    pairs = [(backend, arch) for backend in chosen for arch in ARCHITECTURES]
    all_found: dict[str, dict[str, Counts]] = {}
    with reporter.over(len(pairs) * len(VARIANTS), "kernels"):
        for backend, arch in pairs:
            found = count(backend, arch, lambda: reporter.advance(1))
            all_found.setdefault(backend, {})[arch] = found
            known = budgeted(budget, backend, arch)
            reporter.say(f"{backend} {version(backend)} {arch}: {_line(found)}")
            if known is None and not options.write:
                reporter.say(f"  {no_budget(budget, backend, arch)}")
            for one in differences(backend, arch, known or found, found):
                reporter.say(f"  {one.variant} {one.count} (budget {one.budget})")
                differs = True
    if options.write:
        for backend, counted in all_found.items():
            budget = updated(budget, backend, counted)
        write_whole(file, (json.dumps(budget, indent=1) + "\n").encode())
        return PASS
    return MISMATCH if differs else PASS


def _line(found: Counts) -> str:
    return ", ".join(f"{variant} {number}" for variant, number in found.items())


if __name__ == "__main__":
    sys.exit(main())
