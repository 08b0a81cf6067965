"""compute-sanitizer over both backends: every variant, b 1 to 8, five tiles; zero reports are expected.

Each tool first runs a kernel with a planted fault of its kind, which it must report: a tool that finds
nothing because it saw nothing fails the run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final

from oracle import evidence
from oracle.card import device
from oracle.card.sanitized import BACKENDS, FAULTS
from oracle.children import Children, awaited
from oracle.commands import values
from oracle.commands.base import ENDING, Parser, checked
from oracle.commands.examples import TOOLS
from oracle.exits import MISMATCH, PASS, ended
from oracle.report import Reporter

TOOL_NAMES: Final = ("memcheck", "racecheck", "initcheck", "synccheck")
_USUAL_PLACE: Final = "/usr/local/cuda/bin/compute-sanitizer"
LIMIT: Final = 240
"""Seconds after which one run of a tool is given up."""

_ERRORS: Final = re.compile(r"ERROR SUMMARY: (\d+) error")
_HAZARDS: Final = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")
_LAUNCHES: Final = re.compile(r"^launches (\d+)$", re.MULTILINE)


def reports(output: str) -> int | None:
    """Return the number of reports that a tool's output sums up to; None where it has no summary."""
    found = [int(match[1]) for pattern in (_ERRORS, _HAZARDS) for match in pattern.finditer(output)]
    return sum(found) if found else None


def _run(children: Children, tool: str, what: str) -> tuple[subprocess.CompletedProcess[str], float]:
    program = shutil.which("compute-sanitizer") or _USUAL_PLACE
    start = time.perf_counter()
    line = [program, "--tool", tool, sys.executable, "-m", "oracle.card.sanitized", what]
    try:
        done = children.run(line, limit=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise device.CardError(f"{tool} on {what} took more than {LIMIT} s") from error
    return done, time.perf_counter() - start


def run(tools: tuple[str, ...], jobs: int, reporter: Reporter) -> dict[str, Any]:
    """Run every tool on the planted faults and on both backends; return the record of the run."""
    if shutil.which("compute-sanitizer") is None and not Path(_USUAL_PLACE).exists():
        raise device.CardError("no compute-sanitizer on PATH or in /usr/local/cuda/bin")
    card = device.card()
    reporter.note(f"{card.name}, driver {card.driver}: compiling both backends")
    _compile(f"{card.arch}a", reporter)
    tasks = [(tool, f"fault-{FAULTS[tool]}") for tool in tools]
    tasks += [(tool, backend) for tool in tools for backend in BACKENDS]
    rows: list[dict[str, Any]] = []
    unseen: list[str] = []
    with (
        ThreadPoolExecutor(jobs) as pool,
        Children() as children,
        reporter.over(len(tasks), "runs"),
    ):
        futures = [pool.submit(_run, children, *task) for task in tasks]
        for (tool, what), future in zip(tasks, futures, strict=True):
            done, seconds = awaited(future, reporter.tick)
            output = done.stdout + done.stderr
            number = reports(output)
            launches = _LAUNCHES.search(output)
            if number is None or (launches is None and what in BACKENDS):
                raise device.CardError(
                    f"{tool} on {what} ended with code {done.returncode}:\n{output[-3000:]}"
                )
            reporter.say(f"{tool:10} {what:22} {number} reports, {seconds:.0f} s")
            if what in BACKENDS:
                rows.append({"tool": tool, "backend": what, "launches": int(launches[1]) if launches else 0,
                             "reports": number, "seconds": round(seconds, 1)})  # fmt: skip
                if number:
                    reporter.say(output[:6000])
            elif number == 0:
                unseen.append(tool)
                reporter.say(output[-3000:])
            reporter.advance(1)
    if unseen:
        raise device.CardError(f"planted faults were not reported by {', '.join(unseen)}")
    return {
        "verdict": "fail" if any(row["reports"] for row in rows) else "pass",
        "launches": sum(row["launches"] for row in rows),
        "reports": sum(row["reports"] for row in rows),
        "rows": rows,
    }


def _compile(arch: str, reporter: Reporter) -> None:
    """Compile every variant here, so that the processes under the tools find them on disk."""
    from oracle.artifacts import artifact

    variants = list(product(BACKENDS, (False, True), (False, True)))
    with reporter.over(len(variants), "kernels"):
        for backend, metadata, renormalize in variants:
            artifact(backend, metadata, renormalize, arch)
            reporter.advance(1)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="ci/gpu sanitize",
        description="compute-sanitizer over both backends: every variant, b 1 to 8, five tiles; zero reports "
        "are expected, but for the faults that are planted to see that each tool reports them.",
        examples=TOOLS["oracle.card.sanitize"],
        ending=ENDING,
    )
    made.add_argument("--tool", choices=TOOL_NAMES, help="this tool alone")
    jobs = min(12, os.cpu_count() or 1)
    made.add_argument(
        "--jobs", type=checked(values.number(1, 1024)), default=jobs, metavar="N", help="runs at a time"
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return ended("sanitize", lambda: _execute(parser().parse(words)))


def _execute(options: argparse.Namespace) -> int:
    tools = (options.tool,) if options.tool else TOOL_NAMES
    start = time.perf_counter()
    record = run(tools, options.jobs, Reporter(unit="runs"))
    record["seconds"] = round(time.perf_counter() - start, 1)
    print(f"evidence: {evidence.write('sanitize', record)}")
    return MISMATCH if record["reports"] else PASS


if __name__ == "__main__":
    sys.exit(main())
