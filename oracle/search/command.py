"""The command `search`: what it checks before, and what it says after."""

import argparse
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from oracle import backends, defaults
from oracle.errors import CannotRunError
from oracle.plan import Target
from oracle.report import Reporter

if TYPE_CHECKING:
    from oracle.search.run import Searched


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    options
        backend (a tuple of names), device, seconds, examples, seed, jobs, keep: as the command line has them;
        replays: the folder for replay files.

    Returns
    -------
    int
        0: nothing was found; 1: a problem that a backend gets wrong; 2: bad arguments.
    """
    if importlib.util.find_spec("hypothesis") is None:
        raise CannotRunError("hypothesis is not installed; the extra `test` has it")
    from oracle.search import keep, run

    targets = tuple(Target(name, options.device or backends.get(name).devices[0]) for name in options.backend)
    unasked = [target.backend for target in targets if not run.variants(target)]
    if unasked:
        print(
            f"python -m oracle search: {unasked[0]} is asked no problems but its own family's",
            file=sys.stderr,
        )
        return 2
    if options.keep is not None:
        try:
            keep.check_name(options.keep)
        except ValueError as error:
            print(f"python -m oracle search: --keep: {error}", file=sys.stderr)
            return 2
    on_card = any(target.device == "cuda" for target in targets)
    jobs = options.jobs or (1 if on_card else len(os.sched_getaffinity(0)))
    seconds = None if options.examples is not None else options.seconds or defaults.SEARCH_SECONDS
    reporter = Reporter(unit="problems")
    result = run.run(
        targets, seconds, options.examples, options.seed, jobs, reporter, options.replays, options.keep
    )
    if result.kept is not None:
        print(
            f"kept as case {options.keep!r}, number {result.kept.number} of {result.kept.path}: edit its why"
        )
    elif result.not_kept:
        print(f"not kept: no entry of the known cases makes {result.wrong[0]} fail as this problem does")
    print(verdict(result), flush=True)
    return 1 if result.wrong else 0


def verdict(result: "Searched") -> str:
    """Return the last line."""
    rate = result.problems / result.seconds if result.seconds else 0.0
    numbers = (
        f"{result.problems:,} problems in {result.examples:,} batches, {rate:,.0f} a second "
        f"({result.seconds:.0f} s)"
    )
    if result.wrong:
        return f"FAIL: {', '.join(map(str, result.wrong))}: {numbers}"
    return f"PASS: {', '.join(map(str, result.targets))}: nothing found in {numbers}"
