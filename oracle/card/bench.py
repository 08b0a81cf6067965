"""``python -m oracle bench`` on the card with its record in evidence/."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from oracle import cli, evidence
from oracle.exits import ended


def main(arguments: list[str] | None = None) -> int:
    """Run the bench; exit as it does.

    ``--json`` names a second place for the record, written part by part.
    """
    words = sys.argv[1:] if arguments is None else arguments
    return ended("bench", lambda: _run(words))


def _run(words: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--json", type=Path)
    options, given = parser.parse_known_args(words)
    with tempfile.TemporaryDirectory() as folder:
        file = options.json or Path(folder) / "bench.json"
        file.unlink(missing_ok=True)
        code = cli.main(["bench", "--json", str(file), *given])
        if not file.exists():
            return code
        record = json.loads(file.read_text(encoding="utf-8"))
    record["versions"] = evidence.versions() | record["versions"]
    print(f"evidence: {evidence.write('bench', record)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
