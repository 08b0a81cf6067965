"""The command `replay` on one saved problem; recorded calls are `oracle.traffic.command`."""

import argparse
import sys

from oracle import backends, check, exits, reordered, replay, report
from oracle.compare import PERMITTED, compare, expect, explain
from oracle.errors import CannotRunError
from oracle.outcome import Finding
from oracle.traffic import command as traffic


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    options
        As the command line has them; ``replays`` is the folder for replay files.
    """
    if traffic.concerns(options):
        return traffic.execute(options, options.replays)
    try:
        target, batch, expected = replay.load(options.file)
        known = target.backend in backends.names()
        reason = backends.unavailable(target.backend, target.device) if known else None
    except replay.ReplayFileError as error:
        print(f"python -m oracle replay: {error}", file=sys.stderr)
        return exits.BAD_ARGUMENTS
    if not known:
        print(
            f"python -m oracle replay: {options.file} is for the unknown backend {target.backend!r}",
            file=sys.stderr,
        )
        return exits.BAD_ARGUMENTS
    if reason is not None:
        raise CannotRunError(f"{target}: {reason}")
    if compare(expect(batch, expected), expected).any():
        print(f"note: the specification has changed since {options.file} was saved; compared with the file")
    given = check.answer(target, batch, expected, reordered.SCHEDULES)
    failure = given.failures.get(0)
    right = PERMITTED[target.backend].right(batch, expected, given.outputs)
    if failure is None and not compare(right, given.outputs).any():
        print(f"MATCH {target}: every bit is as expected now\n  problem: {report.problem(batch)}")
        return exits.PASS
    difference = None if failure is not None else explain(batch, right, given.outputs)
    print(report.failure(Finding(target, batch, expected, difference, failure)))
    return exits.MISMATCH
