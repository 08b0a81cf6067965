"""The tests marked ``card`` with their record in evidence/; further arguments go to pytest."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from oracle import evidence
from oracle.card import device
from oracle.exits import COULD_NOT_RUN, PASS, ended

WORKERS: Final = "8"


def counts(report: str) -> dict[str, int]:
    """Return tests, failed (errors included) and skipped of a JUnit report."""
    suites = list(ElementTree.fromstring(report).iter("testsuite"))

    def total(name: str) -> int:
        return sum(int(suite.get(name, 0)) for suite in suites)

    return {
        "tests": total("tests"),
        "failed": total("failures") + total("errors"),
        "skipped": total("skipped"),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run pytest; exit as it does, or 3 where there is no card."""
    given = sys.argv[1:] if arguments is None else arguments
    return ended("test", lambda: _run(given))


def _run(given: list[str]) -> int:
    card = device.card()
    print(f"{card.name}, driver {card.driver}", flush=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.xml"
        line = [sys.executable, "-m", "pytest", "-m", "card", "-n", WORKERS, "-p", "no:cacheprovider"]
        line += ["--continue-on-collection-errors", f"--junitxml={file}"]
        done = subprocess.run([*line, *given], cwd=evidence.ROOT, check=False)
        if not file.exists():
            return done.returncode or COULD_NOT_RUN
        found = counts(file.read_text(encoding="utf-8"))
    passed = done.returncode == PASS and found["tests"] > 0
    record: dict[str, Any] = {"verdict": "pass" if passed else "fail", **found, "arguments": given}
    record["seconds"] = round(time.perf_counter() - start, 1)
    print(f"evidence: {evidence.write('test', record)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
