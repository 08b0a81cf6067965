"""The measured part of docs/performance.md and the drawing beside it, from the newest record in evidence/.

``python -m oracle.bench.document`` writes both.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oracle import evidence
from oracle.bench import plot, tables
from oracle.commands.base import ENDING, Parser
from oracle.commands.examples import TOOLS
from oracle.exits import BAD_ARGUMENTS, PASS, ended
from oracle.files import write_whole

BEGIN: Final = "<!-- figures: written by `python -m oracle.bench.document` -->"
END: Final = "<!-- end of figures -->"
DOCUMENT: Final = evidence.ROOT / "docs" / "performance.md"
DRAWING: Final = "performance.svg"
_NOTHING: Final = "No run on a card is recorded in `evidence/` yet."
_SHOWN: Final = {"torch": "torch", "triton": "Triton", "nvidia-cutlass-dsl": "CuTe DSL", "vllm": "vLLM",
                 "flashinfer-python": "FlashInfer"}  # fmt: skip


def newest(folder: Path = evidence.FOLDER) -> tuple[Path, tables.Record] | None:
    """Return the newest record of a bench that timed kernels, and its file; None where there is none."""
    found = [
        (path, record) for path, record in evidence.entries(folder)
        if record["command"] == "bench" and record.get("kernels")
    ]  # fmt: skip
    return found[-1] if found else None


def figures(path: Path, record: tables.Record) -> str:
    """Return one record as Markdown: what it was measured on, the drawing, every table, what was refused."""
    host, versions = record["host"], record["versions"]
    on = [f"{host['card']}, driver {host.get('driver', 'unknown')}"]
    on += [f"{name} {versions[package]}" for package, name in _SHOWN.items() if package in versions]
    parts = [
        f"{record['date'][:10]}, {', '.join(on)}: [{path.name}](../evidence/{path.name}).",
        f"![time per launch over b and tile]({DRAWING})",
        *(table.markdown() for table in tables.tables(record)),
    ]
    refused = tables.refusals(record)
    if refused:
        parts.append("\n".join(["Refused:", "", *(f"- {line}" for line in refused)]))
    left_out = record.get("left_out", {})
    if left_out:
        parts.append(
            "\n".join(["Not measured:", "", *(f"- {name}: {why}" for name, why in left_out.items())])
        )
    return "\n\n".join(parts)


def filled(text: str, made: str) -> str:
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


def expected(text: str, folder: Path = evidence.FOLDER) -> tuple[str, str | None]:
    """Return the document ``text`` as it must be, and the drawing; None where there is no record to draw."""
    found = newest(folder)
    if found is None:
        return filled(text, _NOTHING), None
    return filled(text, figures(*found)), plot.svg(found[1])


def parser() -> Parser:
    """Return the parser of the command line."""
    return Parser(
        prog="python -m oracle.bench.document",
        description="Write the measured part of docs/performance.md, and the drawing beside it, from the "
        "newest record of a bench in evidence/.",
        examples=TOOLS["oracle.bench.document"],
        ending=ENDING,
    )


def main(
    arguments: Sequence[str] | None = None, document: Path = DOCUMENT, folder: Path = evidence.FOLDER
) -> int:
    """Write both and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return ended("document", lambda: _run(parser().parse(words), document, folder))


def _run(options: argparse.Namespace, document: Path, folder: Path) -> int:
    try:
        text, drawing = expected(document.read_text(encoding="utf-8"), folder)
    except (OSError, ValueError) as error:
        print(f"document: {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    write_whole(document, text.encode())
    if drawing is not None:
        write_whole(document.parent / DRAWING, drawing.encode())
    return PASS


if __name__ == "__main__":
    sys.exit(main())
