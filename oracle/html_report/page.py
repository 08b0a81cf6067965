"""Puts the report of a run together: verdict, failures, coverage, rates, versions, in one HTML text."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from oracle import report, versions
from oracle.compare import PERMITTED
from oracle.evidence import host
from oracle.explain import scene, svg, terminal
from oracle.html_report import heat
from oracle.html_report.coverage import Coverage
from oracle.outcome import Finding, Result, Tally
from oracle.plan import ALL_RANGES, Target

STYLE: Final = Path(__file__).with_name("page.css")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(result: Result, coverage: Coverage, arguments: Sequence[str]) -> str:
    """Return the page of a run.

    Parameters
    ----------
    result
        The run, with what it reported.
    coverage
        What it covered.
    arguments
        Of ``python -m oracle``: the page says how it was made.
    """
    word = "PASS" if result.passed else "FAIL"
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    command = f"python -m oracle {shlex.join(arguments)}"
    body = [
        f'<header class="{word.lower()}"><p class="word">{word}</p><h1>{escape(_verdict(result))}</h1>',
        f'<p class="note">{now}, {result.seconds:.0f} s</p><pre>{escape(command)}</pre></header>',
        _figures(result),
        _failures(result),
        _coverage(coverage),
        _rates(result),
        _versions(),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f'<title>{word}: routing kernels, bit for bit</title><link rel="icon" href="data:,">',
            f"<style>\n{STYLE.read_text(encoding='utf-8')}</style></head><body><main>",
            *(part for part in body if part),
            "</main></body></html>\n",
        ]
    )


def _verdict(result: Result) -> str:
    return report.verdict(result).split(": ", 1)[1].rsplit(" (", 1)[0]


def _figures(result: Result) -> str:
    total = result.total
    figures = [
        (f"{total.launches:,}", "launches"),
        (f"{total.bits:,}", "output bits compared"),
        (f"{total.mismatches:,}", "mismatches"),
        *([(f"{result.left:,}", "launches left out after others were stopped")] if result.left else []),
    ]
    cells = "".join(f"<div><b>{number}</b><span>{text}</span></div>" for number, text in figures)
    return f'<section class="figures">{cells}</section>'


def _failures(result: Result) -> str:
    if result.passed:
        return ""
    cards = [_failure(finding, path, place) for place, (finding, path) in enumerate(result.findings)]
    return f'<section><h2>Failures</h2><p class="note">One of each kind.</p>{"".join(cards)}</section>'


def _failure(finding: Finding, path: Path, place: int) -> str:
    title, *text = report.failure(finding).splitlines()
    said = "\n".join(line.removeprefix("  ") for line in text)
    shown = scene.make(finding.batch, finding.expected, [_view(finding)])
    picture = f'<div class="picture">{svg.picture(shown, f"failure-{place}")}</div>' if shown.tile else ""
    numbers = escape(terminal.text(shown, colours=False))
    again = escape(f"python -m oracle replay {shlex.quote(str(path))}")
    look = escape(f"python -m oracle explain {shlex.quote(str(path))}")
    return (
        f"<article><h3>{escape(title.removeprefix('MISMATCH '))}</h3><pre>{escape(said)}</pre>"
        f'<p class="note">Run it again, or look at it:</p><pre>{again}\n{look}</pre>{picture}'
        f'<details><summary>Every pick with its numbers</summary><pre class="wide">{numbers}</pre></details>'
        "</article>"
    )


def _view(finding: Finding) -> scene.View:
    name = str(finding.target)
    if finding.actual is None:
        return scene.View(name, failure=finding.failure or "not kept")
    right = PERMITTED[finding.target.backend].right(finding.batch, finding.expected, finding.actual)
    return scene.view(name, finding.batch, right, finding.actual)


def _coverage(coverage: Coverage) -> str:
    parts = []
    if coverage.ranges:
        most = int(coverage.launches.max())
        parts += [
            "<h3>With metadata, by b and tile</h3>",
            heat.tiles(coverage),
            heat.legend(most),
            f"<h3>With metadata, by range: {len(coverage.ranges):,} of {ALL_RANGES.number:,}</h3>",
            '<div class="ranges"><div><p class="note">Those with the most launches, offset:number, over the '
            f"experts 0 to 255</p>{heat.bars(coverage)}</div>",
            f'<div><p class="note">All, in blocks of 8 by 8</p>{heat.ranges(coverage)}</div></div>',
        ]
    if coverage.families:
        parts += [
            "<h3>Without metadata, by family and b</h3>",
            f'<div class="scroll">{heat.families(coverage)}</div>',
        ]
    note = '<p class="note">Launches of all backends together.</p>'
    return f"<section><h2>Coverage</h2>{note}{''.join(parts)}</section>"


def _rates(result: Result) -> str:
    targets = dict.fromkeys(target for target, _ in result.tallies)
    fastest = max((tally.rate for tally in result.tallies.values()), default=0.0) or 1.0
    tables = "".join(_target(target, result, fastest) for target in targets)
    return (
        '<section><h2>Rates</h2><p class="note">Launches a second of one worker, in the backend; each '
        f"launch is one call of <code>route</code>.</p>{tables}</section>"
    )


def _target(target: Target, result: Result, fastest: float) -> str:
    rows = {family: tally for (each, family), tally in result.tallies.items() if each == target}
    total = Tally()
    for tally in rows.values():
        total.add(tally)
    lines = "".join(_line(family, tally, fastest) for family, tally in [*rows.items(), ("all", total)])
    return (
        f"<h3>{escape(str(target))}</h3><table><tr><th>family</th><th>launches</th>"
        '<th class="bits">bits compared</th><th>mismatches</th><th>launches/s</th><th class="bits"></th></tr>'
        f"{lines}</table>"
    )


def _line(family: str, tally: Tally, fastest: float) -> str:
    wrong = ' class="wrong"' if tally.mismatches else ""
    width = f"width:{tally.rate / fastest:.1%}"
    return (
        f"<tr{wrong}><th>{escape(family)}</th><td>{tally.launches:,}</td>"
        f'<td class="bits">{tally.bits:,}</td><td>{tally.mismatches:,}</td><td>{tally.rate:,.0f}</td>'
        f'<td class="bits rate"><i style="{width}"></i></td></tr>'
    )


def _versions() -> str:
    found = host() | versions.installed()
    if found["card"] == "none":
        found["card"] = "none: compiled kernels run in the simulator, with the arithmetic of sm_90"
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in found.items())
    return f"<section><h2>Card and versions</h2><dl>{items}</dl></section>"
