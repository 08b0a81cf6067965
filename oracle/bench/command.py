"""The command `bench`: its options, what it runs, its tables, its JSON."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from oracle import versions
from oracle.bench import host_time, kernels, plot, prepare, tables, targets, verification
from oracle.bench.figures import Figure
from oracle.card import device
from oracle.defaults import BENCH_ANYWHERE, BENCH_ON_CARD, BENCH_PARTS
from oracle.errors import CannotRunError
from oracle.exits import BAD_ARGUMENTS, MISMATCH, PASS
from oracle.files import write_whole
from oracle.report import Reporter


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    options
        part (a tuple of `BENCH_PARTS`, or None), json, plot: as the command line has them.

    Returns
    -------
    int
        0: measured; 1: a wrong bit of a kernel of ours, or a refused figure of a kernel; 2: bad arguments.

    Raises
    ------
    CannotRunError
        A part that was asked for needs a card, and there is none.
    """
    for name in ("json", "plot"):
        file = getattr(options, name)
        if file is not None and not file.parent.is_dir():
            print(f"python -m oracle bench: --{name}: no folder {file.parent}", file=sys.stderr)
            return BAD_ARGUMENTS
    reason = device.missing()
    parts = options.part or (BENCH_PARTS if reason is None else BENCH_ANYWHERE)
    if reason is not None and set(parts) & set(BENCH_ON_CARD):
        raise CannotRunError(f"{', '.join(part for part in parts if part in BENCH_ON_CARD)}: {reason}")
    record = run(parts, options.json, Reporter(unit="measurements"))
    made = tables.tables(record)
    print("", *(f"{table.text()}\n" for table in made), *tables.refusals(record), sep="\n")
    print(verdict(record), flush=True)
    if options.plot is not None:
        write_whole(options.plot, plot.svg(record).encode())
    return PASS if record["verdict"] == "pass" else MISMATCH


def run(parts: tuple[str, ...], file: Path | None, reporter: Reporter) -> dict[str, Any]:
    """Run ``parts`` in order and return the record; after each one it is also written to ``file``."""
    start = time.perf_counter()
    record: dict[str, Any] = {"verdict": "fail", "versions": versions.installed(), "parts": list(parts)}
    record |= {"launches": 0, "mismatches": 0, "targets": []}
    for part in parts:
        _RUNNERS[part](record, reporter)
        record["seconds"] = round(time.perf_counter() - start, 1)
        if part == parts[-1] and not record["mismatches"] and not tables.refusals(record, ("kernels",)):
            record["verdict"] = "pass"
        if file is not None:
            write_whole(file, (json.dumps(record, indent=1) + "\n").encode())
    return record


def verdict(record: tables.Record) -> str:
    """Return the last line of a run."""
    refused = len(tables.refusals(record))
    goals = [reached for goal in record["targets"] for reached in goal["reached"]]
    text = f"{'PASS' if record['verdict'] == 'pass' else 'FAIL'}: {record['launches']:,} launches timed"
    text += f", {record['mismatches']:,} wrong words, {refused} figures refused"
    if goals:
        reached = sum(goal in (targets.TARGET, targets.STRETCH) for goal in goals)
        text += f"; {reached} of {len(goals)} targets reached, {goals.count(targets.STRETCH)} stretched"
    return f"{text}; {record['seconds']:.0f} s"


def _kernels(record: dict[str, Any], reporter: Reporter) -> None:
    found = kernels.measure(reporter)
    record["kernels"] = found.records()
    record["left_out"] = found.left_out
    record["launches"] = sum(row["launches"] for row in record["kernels"])
    record["mismatches"] = sum(found.wrong.values())
    record["targets"] += [goal.record() for goal in targets.of_kernels(found)]


def _host(record: dict[str, Any], reporter: Reporter) -> None:
    found = host_time.measure(reporter)
    record["host_time"] = [
        {"kernel": kernel, "tile": tile, "part": part} | figure.record()
        for (kernel, tile, part), figure in found.items()
    ]
    record["targets"] += [goal.record() for goal in targets.of_host(found)]


def _prepare(record: dict[str, Any], reporter: Reporter) -> None:
    found = prepare.measure("prepare", reporter)
    record["prepare"] = _of_processes("prepare", found)
    record["targets"] += [goal.record() for goal in targets.of_prepare(found)]


def _compile(record: dict[str, Any], reporter: Reporter) -> None:
    record["compile"] = _of_processes("compile four variants", prepare.measure("compile", reporter))


def _of_processes(task: str, found: dict[prepare.Key, Figure]) -> list[dict[str, Any]]:
    return [
        {"task": task, "kernel": backend, "caches": state} | figure.record()
        for (backend, state), figure in found.items()
    ]


def _verification(record: dict[str, Any], reporter: Reporter) -> None:
    found = verification.measure(reporter)
    record["verification"] = [{"what": what} | figure.record() for (what, _), figure in found.items()]


_RUNNERS: Final[dict[str, Callable[[dict[str, Any], Reporter], None]]] = {
    "kernels": _kernels,
    "host": _host,
    "prepare": _prepare,
    "verification": _verification,
    "compile": _compile,
}
