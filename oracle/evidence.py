"""What was measured: one JSON file a run in ``evidence/``, and the README's table made from them.

A file is named ``<command>-<UTC YYYYMMDDTHHMMSS>.json``. Every record has ``command``, ``date``, ``host`` and
``verdict``; the rest is the command's own. ``python -m oracle.evidence`` writes the table into README.md,
between two markers.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from oracle.commands.base import ENDING, Parser
from oracle.commands.examples import TOOLS
from oracle.exits import BAD_ARGUMENTS, PASS, ended
from oracle.files import write_whole

COMMANDS: Final = ("test", "check", "sanitize", "calibrate", "sweep", "mutants", "bench", "matrix")
ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "evidence"
BEGIN: Final = "<!-- evidence: written by `python -m oracle.evidence` -->"
END: Final = "<!-- end of evidence -->"
_NAME: Final = re.compile(rf"({'|'.join(COMMANDS)})-(\d{{8}}T\d{{6}})\.json")
_PACKAGES: Final = ("numpy", "torch", "triton", "nvidia-cutlass-dsl", "cuda-bindings")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter here, as far as they are installed."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def host() -> dict[str, str]:
    """Return the card and its driver, or say that there is none."""
    from oracle.card import device

    try:
        card = device.card()
    except device.CardError:
        return {"card": "none"}
    return {"card": card.name, "arch": card.arch, "driver": card.driver}


def write(command: str, record: dict[str, Any], folder: Path = FOLDER) -> Path:
    """Write the record of one run of ``command`` into ``folder`` and return the file's path.

    Parameters
    ----------
    command
        One of `COMMANDS`.
    record
        JSON values; needs ``verdict`` (``"pass"`` or ``"fail"``). Command, date, host and versions are added.

    Raises
    ------
    ValueError
        Another command, or no verdict.
    """
    if command not in COMMANDS:
        raise ValueError(f"command must be one of {', '.join(COMMANDS)}, not {command!r}")
    if record.get("verdict") not in ("pass", "fail"):
        raise ValueError(
            f"the record of a {command} needs the verdict pass or fail, not {record.get('verdict')!r}"
        )
    now = datetime.now(UTC)
    head = {
        "command": command,
        "date": now.isoformat(timespec="seconds"),
        "host": host(),
        "versions": versions(),
    }
    path = folder / f"{command}-{now:%Y%m%dT%H%M%S}.json"
    write_whole(path, (json.dumps(head | record, indent=1) + "\n").encode())
    return path


def entries(folder: Path = FOLDER) -> list[tuple[Path, dict[str, Any]]]:
    """Return all records of ``folder`` by command and date.

    Raises
    ------
    ValueError
        A JSON file that is not named or filled as `write` does.
    """
    found = []
    for path in folder.glob("*.json"):
        match = _NAME.fullmatch(path.name)
        record = json.loads(path.read_text(encoding="utf-8"))
        if match is None or record.get("command") != match[1]:
            raise ValueError(f"{path} is no record of this tool: its name and its command must agree")
        found.append((path, record))
    return sorted(found, key=lambda entry: (COMMANDS.index(entry[1]["command"]), entry[1]["date"]))


def _sum(record: dict[str, Any], *names: str) -> int | None:
    """Return the first of ``names`` in the record itself, or summed over its rows; None where it has none."""
    for name in names:
        if name in record:
            return int(record[name])
        values = [row[name] for row in record.get("rows", ()) if name in row]
        if values:
            return sum(int(value) for value in values)
    return None


def _cell(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def table(folder: Path = FOLDER) -> str:
    """Return the Markdown table of all records: what, when, where, how much, and the verdict."""
    lines = [
        "| command | date | card | launches, inputs, tests or mutants | mismatches | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for path, record in entries(folder):
        amount = _cell(_sum(record, "launches", "inputs", "tests", "mutants"))
        mismatches = _cell(_sum(record, "mismatches", "reports", "failed", "survived"))
        link = f"[{record['command']}](evidence/{path.name})"
        date = record["date"][:16].replace("T", " ")
        lines.append(
            f"| {link} | {date} | {record['host']['card']} | {amount} | {mismatches} | {record['verdict']} |"
        )
    return "\n".join(lines)


def newest(command: str, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the last record of ``command``.

    Raises
    ------
    ValueError
        There is none.
    """
    found = [record for _, record in entries(folder) if record["command"] == command]
    if not found:
        raise ValueError(f"{folder} has no record of {command}")
    return found[-1]


def with_table(text: str, made: str) -> str:
    """Return ``text`` with ``made`` between its two markers.

    Raises
    ------
    ValueError
        The markers are not there, once each and in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the text needs these two lines, once each: {BEGIN} and {END}")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.split(END)[1]}"


def parser() -> Parser:
    """Return the parser of the command line."""
    return Parser(
        prog="python -m oracle.evidence",
        description="Write the table of all records in evidence/ into README.md.",
        examples=TOOLS["oracle.evidence"],
        ending=ENDING,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table into README.md and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return ended("evidence", lambda: _run(parser().parse(words)))


def _run(options: argparse.Namespace) -> int:
    readme = ROOT / "README.md"
    try:
        text = with_table(readme.read_text(encoding="utf-8"), table())
    except (OSError, ValueError) as error:
        print(f"evidence: {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    write_whole(readme, text.encode())
    return PASS


if __name__ == "__main__":
    sys.exit(main())
