"""The command `mutants`: its options, its table, its JSON."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Final

from oracle import versions
from oracle.files import write_whole
from oracle.mutants import run
from oracle.mutants.run import Judged, Score
from oracle.mutants.verdict import CAUGHT, EQUIVALENT, REJECTED, SURVIVED
from oracle.report import Reporter

_BY: Final = ("bits", "simulator", "code", "launch", "compiler", "calls", "check", "time")
_HEAD: Final = ("group", "clause", "mutants", "caught", *_BY, REJECTED, EQUIVALENT, SURVIVED)


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    options
        backend (a tuple of names), only, sample, list, fast, jobs, json: as the command line has them.

    Returns
    -------
    int
        0: every mutant that changes something was caught; 1: one survived; 2: bad arguments.
    """
    try:
        mutants = run.choose(options.backend, options.only, options.sample)
    except ValueError as error:
        print(f"python -m oracle mutants: --only: {error}", file=sys.stderr)
        return 2
    if options.list:
        for mutant in mutants:
            print(f"{mutant.id}\n    {mutant.clause}; line {mutant.line}: {run.change(mutant)}")
        return 0
    if options.json is not None and not options.json.parent.is_dir():
        print(f"python -m oracle mutants: --json: no folder {options.json.parent}", file=sys.stderr)
        return 2
    jobs = options.jobs or len(os.sched_getaffinity(0))
    score = run.run(mutants, options.backend, jobs, Reporter(unit="mutants"), options.fast)
    print(table(score), *_told(score), verdict(score), sep="\n", flush=True)
    if options.json is not None:
        write_whole(Path(options.json), as_json(score).encode())
    return 0 if score.passed else 1


def table(score: Score) -> str:
    """Return the table: a line for every group and clause, and a sum for every group."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for group, judged in run.groups(score.judged).items():
        clauses = sorted({one.mutant.clause for one in judged})
        of_clause = {clause: [one for one in judged if one.mutant.clause == clause] for clause in clauses}
        rows += [_row(group, clause, ones) for clause, ones in of_clause.items()]
        rows.append(_row(group, "all", judged))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _row(group: str, clause: str, judged: list[Judged]) -> tuple[str, ...]:
    found = run.counts(judged)
    cells = [str(found.get(name, "")) for name in (CAUGHT, *_BY, REJECTED, EQUIVALENT, SURVIVED)]
    return (group, clause, str(len(judged)), *cells)


def _told(score: Score) -> list[str]:
    lines = []
    for one in score.survivors:
        mutant = one.mutant
        path = f"{mutant.module.replace('.', '/')}.py"
        lines.append(f"\nSURVIVED {mutant.id} ({mutant.clause}; {path}:{mutant.line}) {one.verdict.detail}")
        lines += [f"  - {line}" for line in mutant.before.splitlines()]
        lines += [f"  + {line}" for line in mutant.after.splitlines()]
    lines += [f"\nNOT EQUIVALENT {text}" for text in score.mistaken]
    return lines


def verdict(score: Score) -> str:
    """Return the last line."""
    found = run.counts(score.judged)
    caught, count = found.get(CAUGHT, 0), found.get(CAUGHT, 0) + found.get(SURVIVED, 0)
    share = f"{caught / count:.1%}" if count else "nothing"
    return (
        f"\n{'PASS' if score.passed else 'FAIL'}: {caught:,} of {count:,} mutants caught ({share}); "
        f"{found.get(REJECTED, 0):,} more did not compile, {found.get(EQUIVALENT, 0):,} are no change; "
        f"{score.seconds:.0f} s, {score.processor_seconds:.0f} s of processor time"
    )


def as_json(score: Score) -> str:
    """Return the run as JSON: verdict, versions, totals, and a row for every mutant."""
    rows = [
        {
            "id": one.mutant.id,
            "group": one.mutant.group,
            "clause": one.mutant.clause,
            "line": one.mutant.line,
            "change": run.change(one.mutant),
            "outcome": one.verdict.outcome,
            "by": one.verdict.by,
            "detail": one.verdict.detail[:300],
            "family": one.verdict.family,
            "seconds": one.verdict.seconds,
        }
        for one in score.judged
    ]
    content = {
        "verdict": "pass" if score.passed else "fail",
        "versions": versions.installed(),
        "seconds": round(score.seconds, 1),
        "processor_seconds": round(score.processor_seconds, 1),
        "totals": {group: run.counts(judged) for group, judged in run.groups(score.judged).items()},
        "mutants": len(score.judged),
        "survived": len(score.survivors),
        "survivors": [one.mutant.id for one in score.survivors],
        "mistaken": list(score.mistaken),
        "rows": rows,
    }
    return json.dumps(content, indent=1) + "\n"
