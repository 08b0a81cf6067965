"""``python -m oracle check --device cuda`` with its record in evidence/."""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from oracle import cli, evidence
from oracle.exits import ended

JOBS: Final = 4
"""Worker processes unless asked otherwise: each has a CUDA context and compiles the kernels once."""


def main(arguments: list[str] | None = None) -> int:
    """Run the check; exit as it does."""
    given = sys.argv[1:] if arguments is None else arguments
    return ended("check", lambda: _run(given))


def _run(given: list[str]) -> int:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "check.json"
        code = cli.main(["check", "--device", "cuda", "--jobs", str(JOBS), *given, "--json", str(file)])
        if not file.exists():
            return code
        found = json.loads(file.read_text(encoding="utf-8"))
    record = {
        "verdict": found["verdict"],
        "arguments": given,
        "launches": sum(row["launches"] for row in found["rows"]),
        "bits_compared": sum(row["bits_compared"] for row in found["rows"]),
        "mismatches": sum(row["mismatches"] for row in found["rows"]),
        "seconds": round(time.perf_counter() - start, 1),
        "rows": found["rows"],
    }
    print(f"evidence: {evidence.write('check', record)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
