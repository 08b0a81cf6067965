"""What a run of all versions found, as a table for the terminal and as the README's."""

from itertools import groupby
from typing import Any, Final

from oracle.bench.budget import ARCHITECTURES
from oracle.matrix.inside import SIMULATED

_HEAD: Final = ("compiler", "version", "compiled for", "instructions", "launches", "mismatches", "s", "")
_MARKDOWN: Final = (
    "| compiler | versions | compiled for | launches each | mismatches | |",
    "| --- | --- | --- | --- | --- | --- |",
)


def text(record: dict[str, Any]) -> str:
    """Return the table of a record for a terminal: a line for every cell."""
    rows = [_HEAD, *map(_line, record["rows"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.rjust(width) if 3 <= column < 7 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths[:-1]))
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    counts = row.get("architectures", {}).get(SIMULATED, {}).get("instructions", {})
    sass = [count["sass"] for count in counts.values()]
    return (
        row["compiler"],
        " ".join((row["version"], *row["others"])),
        _compiled_for(row),
        f"{min(sass)}..{max(sass)}" if sass else "",
        f"{row['launches']:,}" if "launches" in row else "",
        f"{row['mismatches']:,}" if "mismatches" in row else "",
        f"{row.get('compile_seconds', 0) + row.get('run_seconds', 0):.0f}",
        _said(row),
    )


def _compiled_for(row: dict[str, Any]) -> str:
    found = row.get("architectures", {})
    compiled = [arch for arch in ARCHITECTURES if "instructions" in found.get(arch, {})]
    return "all" if compiled == [*ARCHITECTURES] else ", ".join(compiled) or "none"


def _said(row: dict[str, Any]) -> str:
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
    names = ", ".join(f"{row['compiler']} {' '.join((row['version'], *row['others']))}" for row in wrong)
    return f"FAIL: {names} ({record['seconds']:.0f} s)"


def markdown(record: dict[str, Any]) -> str:
    """Return the README's table: consecutive versions that came out alike share a line."""
    lines = [*_MARKDOWN]
    for alike, group in groupby(record["rows"], key=_alike):
        rows = list(group)
        names = ", ".join(" ".join((row["version"], *row["others"])) for row in rows)
        compiler, compiled, launches, mismatches, said = alike
        lines.append(f"| {compiler} | {names} | {compiled} | {launches} | {mismatches} | {said} |")
    return "\n".join(lines)


def _alike(row: dict[str, Any]) -> tuple[str, ...]:
    line = _line(row)
    return (line[0], line[2], line[4], line[5], line[7].replace("|", "\\|"))
