"""The command `replay` on recorded calls: its output and its exit codes."""

import argparse
import os
import sys
from pathlib import Path

from oracle import replay, report
from oracle.traffic import files, run
from oracle.traffic.run import RECORD, Source


def concerns(options: argparse.Namespace) -> bool:
    """Whether the path holds recorded calls, or one saved problem that is to run elsewhere too.

    Parameters
    ----------
    options
        path, backend, device, call, jobs: as the command line has them.
    """
    path: Path = options.file
    if path.is_dir() or path.suffix in set(files.SUFFIXES) - {".npz"}:
        return True
    chosen = any(value is not None for value in (options.backend, options.device, options.call))
    return path.suffix == ".npz" and path.exists() and (chosen or not replay.is_saved(path))


def execute(options: argparse.Namespace, replays: Path) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    options
        As in `concerns`.
    replays
        The folder for the replay files of what a backend gets wrong.

    Returns
    -------
    int
        0: every bit as specified; 1: a mismatch; 2: a file that cannot be read.
    """
    targets = run.targets_here(options.backend, options.device)
    on_card = any(target.device == "cuda" for target in targets)
    jobs = options.jobs or (1 if on_card else len(os.sched_getaffinity(0)))
    source = Source(options.file, options.call)
    reporter = report.Reporter()
    try:
        result = run.run(source, targets, jobs, reporter, replays)
    except files.TrafficError as error:
        print(f"python -m oracle replay: {error}", file=sys.stderr)
        return 2
    print(run.summary(source), report.table(result), report.LEGEND, sep="\n")
    if source.judged:
        print(f"{RECORD}: what the files hold, compared with the specification like any answer")
    print(report.verdict(result), flush=True)
    return 0 if result.passed else 1
