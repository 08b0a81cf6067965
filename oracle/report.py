"""What a person or a tool reads: failures, the final table, the JSON."""

import json
import sys
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from oracle import versions
from oracle.compare import Mismatch
from oracle.outcome import Finding, Result, Tally
from oracle.problem import Batch
from oracle.progress import Progress

_SHOWN: Final = 6


class Reporter(Progress):
    """Progress on one stream, failures and what else there is to say on another.

    Parameters
    ----------
    out, progress
        The streams; standard output and standard error if None.
    unit
        What the progress counts.
    """

    def __init__(
        self, out: TextIO | None = None, progress: TextIO | None = None, unit: str = "launches"
    ) -> None:
        super().__init__(progress, unit)
        self._out = sys.stdout if out is None else out
        self._kinds: set[tuple[str, ...]] = set()
        self._told = 0

    def wants(self, finding: Finding) -> bool:
        """Whether the finding is of a new kind, and there is still room to show it."""
        return self._told < _SHOWN and (str(finding.target), *finding.kind) not in self._kinds

    def finding(self, finding: Finding, again: Path | str) -> None:
        """Print one wrong problem and the line that replays it: ``replay`` and then ``again``."""
        self._kinds.add((str(finding.target), *finding.kind))
        self._told += 1
        self.say(f"{failure(finding)}\n  again: python -m oracle replay {again}\n")

    def say(self, text: str) -> None:
        """Print text among the failures, in front of the progress."""
        self.clear()
        print(text, file=self._out, flush=True)


def failure(finding: Finding) -> str:
    """Say everything on one wrong problem but how to replay it."""
    lines = []
    difference = finding.difference
    if difference is None:
        ordered = finding.kind == ("simulator", "order of threads")
        what = "depends on the order of threads" if ordered else "stopped by the simulator"
        lines.append(f"MISMATCH {finding.target}: {what}")
        lines.append(f"  {finding.failure}")
    else:
        lines.append(f"MISMATCH {finding.target}: {', '.join(difference.clauses)}")
        lines += [f"  {_word(mismatch)}" for mismatch in difference.first]
        counts = ", ".join(
            f"{clause} {field} {count}" for (clause, field), count in difference.counts.items()
        )
        lines.append(f"  {sum(difference.counts.values())} of {difference.compared} words differ: {counts}")
    lines.append(f"  problem: {problem(finding.batch)}")
    lines += [f"  {sentence}" for sentence in finding.others]
    return "\n".join(lines)


def _word(mismatch: Mismatch) -> str:
    place = "".join(f"[{i}]" for i in mismatch.index)
    expected, actual = (_value(word, mismatch.field) for word in (mismatch.expected, mismatch.actual))
    return f"{mismatch.clause:5} {mismatch.field}{place}: expected {expected}, actual {actual}"


def _value(word: int, field: str) -> str:
    bits = np.array([word], np.uint32)
    number = bits.view(np.float32)[0] if field == "weights" else bits.view(np.int32)[0]
    return f"0x{word:08x} ({number})"


def problem(batch: Batch) -> str:
    """Say the parameters of a batch of one problem in one line."""
    scale = batch.scale[:1]
    parts = [
        f"family {batch.family}",
        f"seed {batch.seed}",
        *([] if batch.index is None else [f"index {int(batch.index[0])}"]),
        f"b {batch.tokens}",
    ]
    if batch.ranges is not None:
        offset, count, tile = (
            int(part[0]) for part in (batch.ranges.offset, batch.ranges.count, batch.ranges.tile)
        )
        parts += [f"tile {tile}", f"range {offset}:{count}"]
    parts += [
        f"scale 0x{int(scale.view(np.uint32)[0]):08x} ({scale[0]})",
        f"renormalize {batch.renormalize}",
        f"row stride {int(batch.row_stride[0])}",
    ]
    return ", ".join(parts)


def table(result: Result) -> str:
    """Return the final table."""
    head = ("backend", "device", "family", "launches", "bits compared", "mismatches", "launches/s")
    body = [
        (target.backend, target.device, family, *_numbers(tally))
        for (target, family), tally in result.tallies.items()
    ]
    timed = Tally()
    for tally in result.tallies.values():
        if tally.seconds:
            timed.add(tally)
    body.append(("all", "", "", *_numbers(result.total)[:3], f"{timed.rate:,.0f}"))
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]

    def line(row: tuple[str, ...]) -> str:
        cells = (
            text.ljust(width) if column < 3 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(head), rule, *map(line, body)])


def _numbers(tally: Tally) -> tuple[str, ...]:
    rate = f"{tally.rate:,.0f}" if tally.seconds else ""
    return f"{tally.launches:,}", f"{tally.bits:,}", f"{tally.mismatches:,}", rate


def verdict(result: Result) -> str:
    """Return the last words of a run."""
    total = result.total
    names = ", ".join(dict.fromkeys(str(target) for target, _ in result.tallies))
    if result.passed:
        again = f", {total.reordered:,} also in another order of threads" if total.reordered else ""
        return (
            f"PASS: {names}: all {total.bits:,} output bits of {total.launches:,} launches are as specified"
            f"{again} ({result.seconds:.0f} s)"
        )
    wrong = dict.fromkeys(str(target) for (target, _), tally in result.tallies.items() if tally.mismatches)
    text = f"FAIL: {', '.join(wrong)}: {total.mismatches:,} mismatches in {total.launches:,} launches"
    if result.left:
        text += f"; {result.left:,} more were not run after the simulator stopped others"
    return f"{text} ({result.seconds:.0f} s)"


LEGEND: Final = (
    "mismatches: output words that differ, and launches stopped; launches/s: of one worker, in the backend"
)


def as_json(result: Result, **more: object) -> str:
    """Return the run as JSON: verdict, versions, the rows of the table, and what else there is to say."""
    rows = [
        {
            "backend": target.backend,
            "device": target.device,
            "family": family,
            "launches": tally.launches,
            "bits_compared": tally.bits,
            "mismatches": tally.mismatches,
            "launches_per_s": round(tally.rate, 1),
        }
        for (target, family), tally in result.tallies.items()
    ]
    content = {
        "verdict": "pass" if result.passed else "fail",
        "versions": versions.installed(),
        "rows": rows,
        **more,
    }
    return json.dumps(content, indent=1) + "\n"
