"""What a person or a tool reads: progress, failures, the final table, the JSON."""

import importlib.metadata
import json
import platform
import sys
import time
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from oracle.compare import Mismatch
from oracle.outcome import Finding, Result, Tally
from oracle.peers import find
from oracle.problem import Batch

_SHOWN: Final = 6
_BAR: Final = 24
_TERMINAL_SECONDS: Final = 0.2
_PLAIN_SECONDS: Final = 10.0


class Reporter:
    """Progress on one stream, failures on another.

    On a terminal the progress is one line that is rewritten; elsewhere a plain line now and then, without
    control characters.
    """

    def __init__(
        self, out: TextIO | None = None, progress: TextIO | None = None, unit: str = "launches"
    ) -> None:
        self._unit = unit
        self._out = sys.stdout if out is None else out
        self._progress = sys.stderr if progress is None else progress
        self._terminal = self._progress.isatty()
        self._kinds: set[tuple[str, ...]] = set()
        self._shown = 0
        self._start = self._last = time.monotonic()
        self._total = 1.0
        self._done = 0.0
        self._launches = 0
        self._open = False

    def note(self, text: str) -> None:
        """Say what is going on, in the progress stream."""
        self._clear()
        print(text, file=self._progress, flush=True)

    def start(self, total: float) -> None:
        """Begin the progress of a run of this much work, in any unit."""
        self._total = max(total, 1e-9)
        self._start = time.monotonic()
        self._last = self._start

    def advance(self, work: float, launches: int) -> None:
        """Tell that some of the work is done."""
        self._done += work
        self._launches += launches
        now = time.monotonic()
        if now - self._last < (_TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS):
            return
        self._last = now
        spent = now - self._start
        share = min(self._done / self._total, 1.0)
        left = spent / share - spent if share else 0.0
        rate = self._launches / spent
        each = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
        text = f"{share:4.0%}  {self._launches:,} {self._unit}  {each}/s  {left:.0f} s left"
        if self._terminal:
            filled = round(share * _BAR)
            print(
                f"\r[{'#' * filled}{'.' * (_BAR - filled)}] {text}\x1b[K",
                end="",
                file=self._progress,
                flush=True,
            )
            self._open = True
        else:
            print(text, file=self._progress, flush=True)

    def end(self) -> None:
        """End the progress."""
        self._clear()

    def wants(self, finding: Finding) -> bool:
        """Whether the finding is of a new kind, and there is still room to show it."""
        return self._shown < _SHOWN and (str(finding.target), *finding.kind) not in self._kinds

    def finding(self, finding: Finding, again: Path | str) -> None:
        """Print one wrong problem and the line that replays it: ``replay`` and then ``again``."""
        self._kinds.add((str(finding.target), *finding.kind))
        self._shown += 1
        self.say(f"{failure(finding)}\n  again: python -m oracle replay {again}\n")

    def say(self, text: str) -> None:
        """Print text among the failures."""
        self._clear()
        print(text, file=self._out, flush=True)

    def _clear(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=self._progress, flush=True)
            self._open = False


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
    content = {"verdict": "pass" if result.passed else "fail", "versions": versions(), "rows": rows, **more}
    return json.dumps(content, indent=1) + "\n"


def versions() -> dict[str, str]:
    """Return the versions of what takes part, as far as it is installed."""
    found = {"python": platform.python_version()}
    for package in ("musespark-routing", "numpy", "nvidia-cutlass-dsl", "triton", "torch"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | find.versions()
