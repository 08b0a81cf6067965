"""The tables of a run, made from its JSON record: as text for a terminal, or as Markdown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oracle.bench.points import BATCHES, EARLY, NATURAL, OURS, TILES

Record = Mapping[str, Any]
Key = tuple[str, str, int, int]
"""Kernel, inputs, tile, b."""

_PARTS: Final = ("kernels", "host_time", "prepare", "compile", "verification")
_NO_FIGURE: Final = "refused"
_NOT_MEASURED: Final = ""
_NAMES: Final = {
    "cute": "CuTe DSL",
    "triton": "Triton",
    "cute-early": "CuTe DSL, early dependents",
    "triton-early": "Triton, early dependents",
    "vllm": "vLLM's Triton kernel",
    "torch": "torch, seven eager kernels",
    "flashinfer": "FlashInfer's kernel",
    "floor": "floor: wait, load a row, maximum, store 16 words",
    "wait": "wait alone",
    "empty": "empty kernel",
}


@dataclass(frozen=True)
class Table:
    """A table: title, head, rows of cells."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """Return it for a terminal."""
        lines = [self.head, *self.rows]
        widths = [max(len(row[column]) for row in lines) for column in range(len(self.head))]

        def line(row: Sequence[str]) -> str:
            cells = [
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            return "  ".join(cells).rstrip()

        rule = "  ".join("-" * width for width in widths)
        return "\n".join([self.title, line(self.head), rule, *map(line, self.rows)])

    def markdown(self) -> str:
        """Return it for a document."""
        lines = [self.head, tuple("---" for _ in self.head), *self.rows]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(row)} |" for row in lines)])


def tables(record: Record) -> list[Table]:
    """Return every table that the record has numbers for."""
    makers = (_plain, _metadata, _tied, _ratios, _host, _seconds, _rates, _goals)
    return [table for make in makers if (table := make(record)).rows]


def refusals(record: Record, parts: Sequence[str] = _PARTS) -> list[str]:
    """Return a line for each figure that was refused, of these parts of the record."""
    lines = []
    for part in parts:
        for row in record.get(part, ()):
            if "refused" in row:
                name = ", ".join(str(value) for key, value in row.items() if key in _NAMING and value != "")
                lines.append(f"{part}: {name}: {row['refused']}")
    return lines


_NAMING: Final = ("what", "task", "kernel", "inputs", "tile", "b", "part", "caches")


def _figures(record: Record) -> dict[Key, Mapping[str, Any]]:
    return {(row["kernel"], row["inputs"], row["tile"], row["b"]): row for row in record.get("kernels", ())}


def _cell(row: Mapping[str, Any] | None, form: str = "{:.2f}") -> str:
    if row is None:
        return _NOT_MEASURED
    return form.format(row["median"]) if "median" in row else _NO_FIGURE


_HEAD: Final = ("kernel", *(f"b={b}" for b in BATCHES), "spread")


def _rows(record: Record, lines: Sequence[tuple[str, str, str, int]]) -> tuple[tuple[str, ...], ...]:
    """Return a row for each (name, kernel, inputs, tile) with any figure; the spread is the row's largest."""
    found = _figures(record)
    made = []
    for name, kernel, inputs, tile in lines:
        cells = [found.get((kernel, inputs, tile, b)) for b in BATCHES]
        spreads = [row["spread"] for row in cells if row is not None]
        if spreads:
            made.append((name, *map(_cell, cells), f"{max(spreads):.1%}"))
    return tuple(made)


def _plain(record: Record) -> Table:
    kernels = (*OURS, *EARLY, "vllm", "torch", "floor", "wait", "empty")
    rows = _rows(record, [(_NAMES[kernel], kernel, NATURAL, 0) for kernel in kernels])
    return Table("No metadata, microseconds per launch", _HEAD, rows)


def _metadata(record: Record) -> Table:
    kernels = (*OURS, *EARLY, "flashinfer")
    lines = [
        (f"{_NAMES[kernel]}, tile {tile}", kernel, NATURAL, tile) for kernel in kernels for tile in TILES
    ]
    return Table("With metadata, 256 local experts, microseconds per launch", _HEAD, _rows(record, lines))


def _tied(record: Record) -> Table:
    found = dict.fromkeys((kernel, inputs, tile) for kernel, inputs, tile, _ in _figures(record))
    lines = [
        (f"{_NAMES[kernel]}, {f'tile {tile}' if tile else 'no metadata'}, {inputs}", kernel, inputs, tile)
        for kernel, inputs, tile in found
        if inputs != NATURAL
    ]
    return Table("Rows with equal keys, microseconds per launch", _HEAD, _rows(record, lines))


def _ratios(record: Record) -> Table:
    found = _figures(record)
    pairs = [(kernel, rival, 0) for kernel in OURS for rival in ("vllm", "torch", "floor")]
    pairs += [(kernel, "flashinfer", tile) for kernel in OURS for tile in TILES]
    pairs += [("triton", "cute", tile) for tile in (0, *TILES)]
    rows = []
    for kernel, rival, tile in pairs:
        cells = []
        for b in BATCHES:
            ours, theirs = found.get((kernel, NATURAL, tile, b)), found.get((rival, NATURAL, tile, b))
            measured = ours is not None and theirs is not None and "median" in ours and "median" in theirs
            cells.append(f"{ours['median'] / theirs['median']:.2f}" if measured and ours and theirs else "")
        if any(cells):
            where = f", tile {tile}" if tile else ""
            rows.append((f"{_NAMES[kernel]} / {_NAMES[rival].split(':')[0]}{where}", *cells))
    return Table("Ratios of times, below 1 is faster", ("kernel / rival", *_HEAD[1:-1]), tuple(rows))


def _host(record: Record) -> Table:
    rows = tuple(
        (
            f"{_NAMES[row['kernel']]}, {'tile ' + str(row['tile']) if row['tile'] else 'no metadata'}",
            row["part"],
            _cell(row),
            f"{row['spread']:.1%}",
        )
        for row in record.get("host_time", ())
    )
    return Table("Host, microseconds per eager call, b=8", ("kernel", "part", "us", "spread"), rows)


def _seconds(record: Record) -> Table:
    rows = tuple(
        (f"{row['task']}, {_NAMES[row['kernel']]}", row["caches"], _cell(row), f"{row['spread']:.1%}")
        for part in ("prepare", "compile")
        for row in record.get(part, ())
    )
    return Table("Seconds in a new process, imports apart", ("task", "caches", "s", "spread"), rows)


def _rates(record: Record) -> Table:
    rows = tuple(
        (row["what"], _cell(row, "{:,.0f}"), row["unit"], f"{row['spread']:.1%}")
        for row in record.get("verification", ())
    )
    return Table("The verification, per processor second", ("what", "rate", "unit", "spread"), rows)


def _goals(record: Record) -> Table:
    def numbers(values: Sequence[float | None], show: Callable[[float], str] = "{:.3g}".format) -> str:
        texts = ["-" if value is None else show(value) for value in values]
        return texts[0] if len(set(texts)) == 1 else ", ".join(texts)

    rows = []
    for goal in record.get("targets", ()):
        cells = [
            reached if measured is None else f"{measured:.3g} {reached}"
            for measured, reached in zip(goal["measured"], goal["reached"], strict=True)
        ]
        cells += [""] * (len(BATCHES) - len(cells))
        rows.append((goal["what"], *cells, numbers(goal["target"]), numbers(goal["stretch"])))
    head = ("at most", *(f"b={b}" for b in BATCHES), "target", "stretch")
    return Table("Targets", head, tuple(rows))
