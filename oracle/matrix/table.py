"""What a run of all versions found, as a table for the terminal and as the README's."""

from itertools import groupby
from typing import Any, Final, NamedTuple

from oracle.bench.budget import ARCHITECTURES
from oracle.matrix.inside import SIMULATED


class _Line(NamedTuple):
    """One cell's line."""

    compiler: str
    version: str
    compiled_for: str
    instructions: str
    launches: str
    mismatches: str
    seconds: str
    result: str


_HEAD: Final = _Line(
    "compiler", "version", "compiled for", "instructions", "launches", "mismatches", "s", "result"
)
_NUMBERS: Final = ("instructions", "launches", "mismatches", "seconds")
_MARKDOWN: Final = (
    "| compiler | versions | compiled for | launches each | mismatches | result |",
    "| --- | --- | --- | --- | --- | --- |",
)


def text(record: dict[str, Any]) -> str:
    """Return the table of a record for a terminal: a line for every cell."""
    rows = [_HEAD, *map(_line, record["rows"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
            for name, cell, width in zip(_Line._fields, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in [*widths[:-1], len(_HEAD.result)]))
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> _Line:
    counts = row.get("architectures", {}).get(SIMULATED, {}).get("instructions", {})
    sass = [count["sass"] for count in counts.values()]
    return _Line(
        compiler=row["compiler"],
        version=_version(row),
        compiled_for=_compiled_for(row),
        instructions=f"{min(sass)}..{max(sass)}" if sass else "",
        launches=f"{row['launches']:,}" if "launches" in row else "",
        mismatches=f"{row['mismatches']:,}" if "mismatches" in row else "",
        seconds=f"{row.get('compile_seconds', 0) + row.get('run_seconds', 0):.0f}",
        result=_result(row),
    )


def _version(row: dict[str, Any]) -> str:
    return " ".join((row["version"], *row["others"]))


def _compiled_for(row: dict[str, Any]) -> str:
    found = row.get("architectures", {})
    compiled = [arch for arch in ARCHITECTURES if "instructions" in found.get(arch, {})]
    return "all" if compiled == [*ARCHITECTURES] else ", ".join(compiled) or "none"


def _result(row: dict[str, Any]) -> str:
    """Say in a few words how a cell ended."""
    beside = "" if row["supported"] else "not supported: "
    if row["passed"]:
        return f"{beside}the same bits"
    lines = [line.strip() for line in row["why"].splitlines()]
    return f"{beside}{row['step']}: {lines[0]}"


def verdict(record: dict[str, Any]) -> str:
    """Return the last line of a run."""
    if record["verdict"] == "pass":
        return (
            f"PASS: {record['versions_run']} environments give the same bits, those of the specification: "
            f"{record['launches']:,} launches, {record['bits_compared']:,} bits ({record['seconds']:.0f} s)"
        )
    wrong = [row for row in record["rows"] if row["required"] and not row["passed"]]
    names = ", ".join(f"{row['compiler']} {_version(row)}" for row in wrong)
    return f"FAIL: {names} ({record['seconds']:.0f} s)"


def markdown(record: dict[str, Any]) -> str:
    """Return the README's table: consecutive versions that came out alike share a line."""
    lines = [*_MARKDOWN]
    for alike, rows in groupby(record["rows"], key=_alike):
        names = ", ".join(map(_version, rows))
        lines.append(f"| {alike.compiler} | {names} | {' | '.join(alike[2:])} |")
    return "\n".join(lines)


class _Alike(NamedTuple):
    """What cells of one line of the README have in common."""

    compiler: str
    supported: bool
    compiled_for: str
    launches: str
    mismatches: str
    result: str


def _alike(row: dict[str, Any]) -> _Alike:
    line = _line(row)
    result = line.result.replace("|", "\\|")
    return _Alike(line.compiler, row["supported"], line.compiled_for, line.launches, line.mismatches, result)
