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
from pathlib import Path
from typing import Any, Final

from oracle import evidence
from oracle.card import device
from oracle.card.sanitized import BACKENDS, FAULTS

TOOLS: Final = ("memcheck", "racecheck", "initcheck", "synccheck")
LIMIT: Final = 240
"""Seconds after which one run of a tool is given up."""

_ERRORS: Final = re.compile(r"ERROR SUMMARY: (\d+) error")
_HAZARDS: Final = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")
_LAUNCHES: Final = re.compile(r"^launches (\d+)$", re.MULTILINE)


def reports(output: str) -> int | None:
    """Return the number of reports that a tool's output sums up to; None where it has no summary."""
    found = [int(match[1]) for pattern in (_ERRORS, _HAZARDS) for match in pattern.finditer(output)]
    return sum(found) if found else None


def _run(tool: str, what: str) -> tuple[str, str, subprocess.CompletedProcess[str], float]:
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    start = time.perf_counter()
    line = [program, "--tool", tool, sys.executable, "-m", "oracle.card.sanitized", what]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=LIMIT)
    return tool, what, done, time.perf_counter() - start


def run(tools: tuple[str, ...], jobs: int) -> dict[str, Any]:
    """Run every tool on the planted faults and on both backends; return the record of the run."""
    if (
        shutil.which("compute-sanitizer") is None
        and not Path("/usr/local/cuda/bin/compute-sanitizer").exists()
    ):
        raise device.CardError("no compute-sanitizer on PATH or in /usr/local/cuda/bin")
    card = device.card()
    print(f"{card.name}, driver {card.driver}", flush=True)
    _compile(f"{card.arch}a")
    tasks = [(tool, f"fault-{FAULTS[tool]}") for tool in tools]
    tasks += [(tool, backend) for tool in tools for backend in BACKENDS]
    rows: list[dict[str, Any]] = []
    unseen: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        for tool, what, done, seconds in pool.map(lambda task: _run(*task), tasks):
            output = done.stdout + done.stderr
            number = reports(output)
            launches = _LAUNCHES.search(output)
            if number is None or (launches is None and what in BACKENDS):
                raise device.CardError(
                    f"{tool} on {what} ended with code {done.returncode}:\n{output[-3000:]}"
                )
            print(f"{tool:10} {what:22} {number} reports, {seconds:.0f} s", flush=True)
            if what in BACKENDS:
                rows.append({"tool": tool, "backend": what, "launches": int(launches[1]) if launches else 0,
                             "reports": number, "seconds": round(seconds, 1)})  # fmt: skip
                if number:
                    print(output[:6000], flush=True)
            elif number == 0:
                unseen.append(tool)
                print(output[-3000:], flush=True)
    if unseen:
        raise device.CardError(f"planted faults were not reported by {', '.join(unseen)}")
    return {
        "verdict": "fail" if any(row["reports"] for row in rows) else "pass",
        "launches": sum(row["launches"] for row in rows),
        "reports": sum(row["reports"] for row in rows),
        "rows": rows,
    }


def _compile(arch: str) -> None:
    """Compile every variant here, so that the processes under the tools find them on disk."""
    from oracle.artifacts import artifact

    for backend in BACKENDS:
        for metadata in (False, True):
            for renormalize in (False, True):
                artifact(backend, metadata, renormalize, arch)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit 0, 1 on a report, 3 if it could not run."""
    parser = argparse.ArgumentParser(prog="ci/gpu sanitize", description=__doc__.splitlines()[0])
    parser.add_argument("--tool", choices=TOOLS, help="this tool alone")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1), help="runs at a time")
    options = parser.parse_args(arguments)
    tools = (options.tool,) if options.tool else TOOLS
    start = time.perf_counter()
    try:
        record = run(tools, options.jobs)
    except (device.CardError, subprocess.TimeoutExpired) as error:
        print(f"sanitize: {error}", file=sys.stderr)
        return 3
    record["seconds"] = round(time.perf_counter() - start, 1)
    print(f"evidence: {evidence.write('sanitize', record)}")
    return 1 if record["reports"] else 0


if __name__ == "__main__":
    sys.exit(main())
