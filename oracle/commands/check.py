"""The command `check` without --fast and --watch, which are `oracle.fast`."""

import argparse
import os
import sys

from oracle import backends, cases, check, defaults, exits, fast, report
from oracle.files import write_whole
from oracle.html_report.coverage import Coverage
from oracle.html_report.page import page
from oracle.plan import SAMPLE_RANGES, Plan, Target
from spec.constants import MAX_TILE, MAX_TOKENS


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    options
        As the command line has them; None where nothing was said. ``replays`` is the folder for replay files,
        ``words`` the command line itself.
    """
    if options.fast or options.watch:
        return fast.execute(options, options.replays)
    targets = tuple(Target(name, options.device or backends.get(name).devices[0]) for name in options.backend)
    plan = Plan(
        targets,
        options.family or tuple(cases.FAMILIES),
        options.batch or tuple(range(1, MAX_TOKENS + 1)),
        options.tile or tuple(range(1, MAX_TILE + 1)),
        options.range or SAMPLE_RANGES,
        options.cases or defaults.CASES,
        options.seed or 0,
    )
    if not any(plan.chunks()):
        print("python -m oracle check: these options leave nothing to run", file=sys.stderr)
        return exits.BAD_ARGUMENTS
    for option, path in (("--json", options.json), ("--html", options.html)):
        if path is not None and not path.parent.is_dir():
            print(f"python -m oracle check: {option}: no folder {path.parent}", file=sys.stderr)
            return exits.BAD_ARGUMENTS
    on_card = any(target.device == "cuda" for target in targets)
    jobs = options.jobs or (1 if on_card else len(os.sched_getaffinity(0)))
    coverage = Coverage()
    every = 1 if options.schedules == "all" else defaults.SCHEDULE_EVERY
    result = check.run(plan, jobs, report.Reporter(), options.replays, coverage.add, every)
    print(report.table(result), report.LEGEND, report.verdict(result), sep="\n", flush=True)
    if options.json is not None:
        write_whole(options.json, report.as_json(result).encode())
    if options.html is not None:
        write_whole(options.html, page(result, coverage, options.words).encode())
    return exits.PASS if result.passed else exits.MISMATCH
