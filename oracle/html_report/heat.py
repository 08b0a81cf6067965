"""Heat maps of what a run covered: a step of colour for a share of the most, red for what was wrong."""

from html import escape
from itertools import groupby
from typing import Final

import numpy as np

from oracle.html_report.coverage import Count, Coverage
from oracle.problem import I64
from spec.constants import MAX_TILE, MAX_TOKENS, NUM_EXPERTS

STEPS: Final = 4
"""Steps of colour; step 0 is nothing."""

_ROW: Final = 22
_TICKS: Final = (1, 32, 64, 96, 128, 160, 192, 224, 256)
_BLOCK: Final = 8
_BLOCKS: Final = NUM_EXPERTS // _BLOCK
_SIDE: Final = 12
_BARS: Final = 16


def step(launches: int, most: int) -> int:
    """Return the step of a number of launches, 1..`STEPS` from one launch to the most, and 0 for none."""
    return 0 if launches <= 0 else max(1, -(-launches * STEPS // most))


def _kind(launches: int, wrong: int, most: int) -> str:
    return "bad" if wrong else f"step{step(launches, most)}"


def said(launches: int, wrong: int) -> str:
    """Say a number of launches, and how many of them were wrong."""
    text = f"{launches:,} launch{'' if launches == 1 else 'es'}"
    return f"{text}, {wrong:,} wrong" if wrong else text


def tiles(coverage: Coverage) -> str:
    """Return the map of b by tile; neighbours with equal numbers are one rectangle."""
    most = int(coverage.launches.max())
    rows = []
    for tokens in range(1, MAX_TOKENS + 1):
        rects = []
        pairs = list(
            zip(coverage.launches[tokens, 1:].tolist(), coverage.wrong[tokens, 1:].tolist(), strict=True)
        )
        first = 1
        for (launches, wrong), run in groupby(pairs):
            length = len(list(run))
            last = first + length - 1
            where = f"tile {first}" if length == 1 else f"each tile of {first} to {last}"
            rects.append(
                f'<rect class="{_kind(launches, wrong, most)}" x="{first - 1}" width="{length}" height="1">'
                f"<title>b {tokens}, {where}: {said(launches, wrong)}</title></rect>"
            )
            first = last + 1
        box = f'viewBox="0 0 {MAX_TILE} 1" preserveAspectRatio="none" aria-hidden="true"'
        total = said(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))
        bar = f"<svg {box}>{''.join(rects)}</svg>"
        rows.append(f'<div class="strip" title="b {tokens}: {total}"><b>{tokens}</b>{bar}</div>')
    ticks = "".join(_tick(tick) for tick in _TICKS)
    return f'<div class="strips">{"".join(rows)}<div class="ticks"><b>b</b><span>{ticks}</span></div></div>'


def _tick(tile: int) -> str:
    kind = "" if tile == 1 or tile % 64 == 0 else ' class="minor"'
    return f'<i{kind} style="left:{(tile - 0.5) / MAX_TILE:.2%}">{tile}</i>'


def ranges(coverage: Coverage) -> str:
    """Return the map of all ranges by offset and number of experts, in blocks of eight by eight."""
    launches, wrong = np.zeros((2, _BLOCKS, _BLOCKS), np.int64)
    for (offset, count), found in coverage.ranges.items():
        place = (count - 1) // _BLOCK, offset // _BLOCK
        launches[place] += found.launches
        wrong[place] += found.wrong
    return _triangle(launches, wrong) + legend(int(launches.max()))


def _triangle(launches: I64, wrong: I64) -> str:
    most = int(launches.max())
    side = _BLOCKS * _SIDE
    rects = []
    for row in range(_BLOCKS):
        for column in range(_BLOCKS - row):
            number, bad = int(launches[row, column]), int(wrong[row, column])
            offset, count = column * _BLOCK, row * _BLOCK + 1
            where = f"offset {offset} to {offset + _BLOCK - 1}, {count} to {count + _BLOCK - 1} experts"
            place = f'x="{column * _SIDE}" y="{side - (row + 1) * _SIDE}"'
            rects.append(
                f'<rect class="{_kind(number, bad, most)}" {place} width="{_SIDE - 1}" height="{_SIDE - 1}">'
                f"<title>{where}: {said(number, bad)}</title></rect>"
            )
    marks = "".join(
        f'<text x="{mark / NUM_EXPERTS * side:g}" y="{side + 16}" text-anchor="middle">{mark}</text>'
        f'<text x="-8" y="{side - mark / NUM_EXPERTS * side + 4:g}" text-anchor="end">{mark}</text>'
        for mark in (0, 64, 128, 192, 256)
    )
    names = (
        f'<text x="{side / 2:g}" y="{side + 36}" text-anchor="middle">offset: the first expert</text>'
        '<text x="0" y="-14">number of experts</text>'
    )
    box = f"-40 -32 {side + 56} {side + 78}"
    return (
        f'<svg class="triangle" viewBox="{box}" role="img" aria-label="launches by range">'
        f"{''.join(rects)}{marks}{names}</svg>"
    )


def bars(coverage: Coverage) -> str:
    """Return the ranges with the most launches, each as a bar over the experts 0 to 255."""
    order = sorted(coverage.ranges.items(), key=lambda item: (not item[1].wrong, -item[1].launches, item[0]))
    most = max((found.launches for _, found in order), default=1)
    rows = [_bar(offset, count, found, most) for (offset, count), found in order[:_BARS]]
    if len(order) > _BARS:
        rest = order[_BARS:]
        text = said(sum(found.launches for _, found in rest), sum(found.wrong for _, found in rest))
        rows.append(f'<p class="note">and {len(rest):,} ranges more: {text}</p>')
    return "".join(rows)


def _bar(offset: int, count: int, found: Count, most: int) -> str:
    style = f"left:{offset / NUM_EXPERTS:.3%};width:{count / NUM_EXPERTS:.3%}"
    kind = _kind(found.launches, found.wrong, most)
    return (
        f'<div class="range"><code>{offset}:{count}</code><span><i class="{kind}" style="{style}"></i></span>'
        f"<em>{escape(said(found.launches, found.wrong))}</em></div>"
    )


def families(coverage: Coverage) -> str:
    """Return the table of families by b, each cell with its launches."""
    most = max((found.launches for found in coverage.families.values()), default=1)
    names = list(dict.fromkeys(name for name, _ in coverage.families))
    head = "".join(f"<th>{tokens}</th>" for tokens in range(1, MAX_TOKENS + 1))
    rows = []
    for name in names:
        cells = []
        for tokens in range(1, MAX_TOKENS + 1):
            found = coverage.families.get((name, tokens), Count())
            kind = _kind(found.launches, found.wrong, most)
            text = f"{found.launches:,}" if found.launches else ""
            cells.append(f'<td class="{kind}" title="{said(found.launches, found.wrong)}">{text}</td>')
        rows.append(f"<tr><th>{escape(name)}</th>{''.join(cells)}</tr>")
    return f'<table class="cells"><tr><th>family, b</th>{head}</tr>{"".join(rows)}</table>'


def legend(most: int) -> str:
    """Return what the colours mean, for a map whose most is so many launches."""
    bounds = [0, *(most * step // STEPS for step in range(1, STEPS + 1))]
    names = ["none", *(f"up to {bounds[step]:,}" for step in range(1, STEPS + 1))]
    shown = [f'<span><i class="step{step}"></i>{name}</span>' for step, name in enumerate(names)]
    return f'<p class="legend">launches: {"".join(shown)}<span><i class="bad"></i>a wrong one</span></p>'
