"""Time per launch over b and over the tile, as one SVG drawing made from a run's JSON record."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from oracle.bench.points import BATCHES, NATURAL, TILES

WIDTH: Final = 1080
HEIGHT: Final = 400
_TOP, _BOTTOM, _LEFT, _RIGHT = 64, 48, 52, 96
_PANEL: Final = WIDTH // 3
_STEPS: Final = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_LINE: Final = 14
"""Pixels that a label takes."""

COLOURS: Final = {
    "cute": "#0072b2",
    "triton": "#d55e00",
    "vllm": "#009e73",
    "flashinfer": "#cc79a7",
    "floor": "#777777",
}
"""Apart for the colour-blind as well (Okabe and Ito), and every line also has its name at its end."""

NAMES: Final = {
    "cute": "CuTe DSL",
    "triton": "Triton",
    "vllm": "vLLM (Triton)",
    "flashinfer": "FlashInfer",
    "floor": "floor",
}

Line = Sequence[float | None]


@dataclass(frozen=True)
class Panel:
    """One diagram: its title, the axis below with its categories, and a line of numbers for each kernel."""

    title: str
    axis: str
    categories: tuple[int, ...]
    lines: Mapping[str, Line]


def panels(record: Mapping[str, Any]) -> list[Panel]:
    """Return the diagrams: over b without metadata, over the tile at the smallest and the largest b."""
    found = {
        (row["kernel"], row["tile"], row["b"]): row.get("median")
        for row in record.get("kernels", ())
        if row["inputs"] == NATURAL
    }
    made = [
        Panel(
            "no metadata",
            "tokens b",
            BATCHES,
            {k: [found.get((k, 0, b)) for b in BATCHES] for k in ("cute", "triton", "vllm", "floor")},
        )
    ]
    for b in (BATCHES[0], BATCHES[-1]):
        lines: dict[str, Line] = {
            kernel: [found.get((kernel, tile, b)) for tile in TILES]
            for kernel in ("cute", "triton", "flashinfer")
        }
        lines["floor"] = [found.get(("floor", 0, b))] * len(TILES)
        made.append(Panel(f"with metadata, b = {b}", "GEMM tile", TILES, lines))
    return made


def svg(record: Mapping[str, Any]) -> str:
    """Return the drawing, ready to be a file."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="#222222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 22, "Microseconds per launch, one launch after the other in a CUDA graph", size=15),
    ]
    drawn = panels(record)
    for place, panel in enumerate(drawn):
        # Diagrams with the same axis below have the same one on the left.
        alike = [number for other in drawn if other.axis == panel.axis for number in _known(other)]
        parts += _drawn(panel, place * _PANEL, max(alike, default=0.0))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "", size: int = 0) -> str:
    style = f' fill="{colour}"' if colour else ""
    style += f' font-size="{size}"' if size else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _ticks(largest: float) -> list[float]:
    """Return round numbers from zero to at least ``largest``, at most nine of them."""
    step = next((step for step in _STEPS if largest / step <= 8), _STEPS[-1])
    return [number * step for number in range(math.ceil(largest / step) + 1)]


def _known(panel: Panel) -> list[float]:
    return [number for line in panel.lines.values() for number in line if number is not None]


def _drawn(panel: Panel, left: int, largest: float) -> list[str]:
    right, bottom = left + _PANEL - _RIGHT, HEIGHT - _BOTTOM
    parts = [_text(left + _LEFT, 48, panel.title, size=13)]
    if not _known(panel):
        return [*parts, _text(left + _LEFT, (_TOP + bottom) / 2, "not measured")]
    ticks = _ticks(largest)

    def across(place: int) -> float:
        return left + _LEFT + 12 + (right - left - _LEFT - 24) * place / (len(panel.categories) - 1)

    def down(number: float) -> float:
        return bottom - (bottom - _TOP) * number / ticks[-1]

    for tick in ticks:
        y = down(tick)
        parts.append(f'<path d="M{left + _LEFT} {y:.1f}H{right}" stroke="#dddddd"/>')
        parts.append(_text(left + _LEFT - 6, y + 4, f"{tick:g}", "end"))
    for place, category in enumerate(panel.categories):
        parts.append(_text(across(place), bottom + 18, str(category), "middle"))
    parts.append(_text((left + _LEFT + right) / 2, bottom + 38, panel.axis, "middle"))
    ends = []
    for kernel, line in panel.lines.items():
        drawn = [(across(i), down(number)) for i, number in enumerate(line) if number is not None]
        if drawn:
            parts += _line(drawn, COLOURS[kernel], dashed=kernel == "floor")
            ends.append((drawn[-1][1], kernel))
    return parts + _labels(ends, right)


def _line(places: Sequence[tuple[float, float]], colour: str, dashed: bool) -> list[str]:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return [
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places),
    ]


def _labels(ends: Sequence[tuple[float, str]], right: int) -> list[str]:
    """Return each line's name beside its end, moved down where it would lie on the one above."""
    parts = []
    free = float(_TOP)
    for y, kernel in sorted(ends):
        free = max(free, y)
        parts.append(_text(right + 4, free + 4, NAMES[kernel], colour=COLOURS[kernel]))
        free += _LINE
    return parts
