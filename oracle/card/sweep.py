"""All 67,371,008 points (b, tile, offset, count) of the metadata's domain, on every backend, on the card.

Each point is one launch of the very cubin that `route` launches, as a programmatic dependent launch, into its
own poisoned slot; one comparison kernel a (b, tile) then looks at every word, those that must stay untouched
included, against the specification and between the backends, and poisons the slots again.

What it costs on one H200. Launching: 134,742,016 launches at 2 to 2.5 us of one host thread are 300 s, and
several threads share them; a kernel takes 2.5 to 5.5 us, and 32 streams overlap. Memory: a slot is 33 KB on
average; poisoning, writing and comparing move about 134.7 M * 33 KB * 1.2 = 5 TB, two seconds at 4 TB/s.
Comparing: 0.55 T words of each backend at about 120 instructions, 3 s. So the host's launches are all that
counts.

Shard i of n takes the (b, tile) whose number is i modulo n. A finished shard is one line of the ledger, with
the fingerprint of the kernels; run again, the command takes the shards that the ledger lacks for these
kernels.
"""

import argparse
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle import evidence
from oracle.card import device, kernels
from oracle.card.engine import EXAMPLES, Engine, Kernel, Report
from oracle.card.explain import explain
from oracle.card.points import SEED, Problems, Unit, answers, problems, units
from oracle.commands.base import ENDING, FILE, Parser, Words, checked
from oracle.commands.examples import TOOLS
from oracle.commands.values import number
from oracle.exits import COULD_NOT_RUN, MISMATCH, PASS, ended
from oracle.report import Reporter
from oracle.workers import Workers

BACKENDS: Final = ("cute", "triton")
LEDGER: Final = evidence.FOLDER / "sweep-ledger.jsonl"
DEFAULT_SHARDS: Final = 64
DEFAULT_MINUTES: Final = 4.0
SETTINGS: Final = ((1, 8), (1, 32), (2, 32), (4, 32), (8, 64))
"""Host threads that launch, and streams: what is timed where the command line does not say."""

TRIAL_TILE: Final = 96

Prepared = tuple[Problems, npt.NDArray[np.int32], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Shard:
    """Part ``index`` of ``number``."""

    index: int
    number: int

    def __str__(self) -> str:
        return f"{self.index}/{self.number}"

    @staticmethod
    def parse(text: str) -> "Shard":
        """Return the shard that ``i/n`` names, 0 <= i < n."""
        index, slash, number = text.partition("/")
        if not (slash and index.isdecimal() and number.isdecimal() and int(index) < int(number) <= 2048):
            raise argparse.ArgumentTypeError(f"a shard is i/n with 0 <= i < n <= 2048, not {text!r}")
        return Shard(int(index), int(number))

    def units(self) -> list[Unit]:
        """Return its (b, tile)."""
        return [unit for number, unit in enumerate(units()) if number % self.number == self.index]


def wrong_words(line: dict[str, Any]) -> int:
    """Return how many words differed in a shard: from the specification, and between the backends."""
    return int(sum(line["mismatches"].values()) + line["between"])


class Ledger:
    """The file of finished shards: one JSON line each, only ever appended to."""

    def __init__(self, path: Path, fingerprints: dict[str, str]) -> None:
        self.path = path
        self._fingerprints = fingerprints

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of these kernels and this seed without mismatches; a cut-off line is none."""
        if not self.path.exists():
            return []
        found = []
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if line["kernels"] == self._fingerprints and line["seed"] == SEED and not wrong_words(line):
                found.append(line)
        return found

    def missing(self) -> list[Unit]:
        """Return the (b, tile) that no line covers."""
        done = {unit for line in self.lines() for unit in Shard.parse(line["shard"]).units()}
        return [unit for unit in units() if unit not in done]

    def left(self, shard: Shard) -> bool:
        """Whether some (b, tile) of ``shard`` is missing."""
        return not set(self.missing()).isdisjoint(shard.units())

    def append(self, line: dict[str, Any]) -> None:
        """Add a finished shard."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cut_off = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            text = json.dumps(line | {"kernels": self._fingerprints, "seed": SEED})
            file.write(("\n" if cut_off else "") + text + "\n")


def prepare(tokens: int) -> tuple[int, Prepared]:
    """Return b, and its problems with the specification's answers; for a worker process."""
    return tokens, (problems(tokens), *answers(tokens))


def run_shard(
    engine: Engine, shard: Shard, backends: tuple[str, ...], card: device.Card
) -> tuple[dict[str, Any], Report]:
    """Run one shard and return its ledger line and the comparison's report."""
    start = time.perf_counter()
    points = sum(engine.run(unit) for unit in shard.units())
    report = engine.report()
    seconds = time.perf_counter() - start
    launches = points * len(backends)
    line = {
        "shard": str(shard),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "card": card.name,
        "driver": card.driver,
        "points": points,
        "launches": launches,
        "words": report.words,
        "mismatches": {name: report.mismatches[side] for side, name in enumerate(backends)},
        "between": report.between,
        "sums": [f"{report.sum[side]:016x}" for side in (*range(len(backends)), -1)],
        "seconds": round(seconds, 2),
        "launches_per_s": round(launches / seconds),
    }
    return line, report


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the shards that are asked for and missing, until the time is up; return the record of the run."""
    begin = time.perf_counter()
    card = device.card()
    arch = f"{card.arch}a"
    backends: tuple[str, ...] = options.backend
    ledger = Ledger(options.ledger, {name: kernels.fingerprint(name, arch) for name in backends})
    asked = [options.shard] if options.shard else [Shard(i, options.shards) for i in range(options.shards)]
    todo = [shard for shard in asked if ledger.left(shard)]
    reporter = Reporter()
    reporter.say(f"{card.name}, driver {card.driver}: {len(todo)} of {len(asked)} shards to do")
    lines: list[dict[str, Any]] = []
    if todo:
        tokens = sorted({unit.tokens for shard in todo for unit in shard.units()}, reverse=True)
        with Workers(min(len(tokens), os.cpu_count() or 1)) as workers:
            prepared = _prepared(workers, tokens, reporter)
        lines = _run_shards(options, card, backends, ledger, todo, prepared, begin, reporter)
    mismatches = sum(wrong_words(line) for line in lines)
    left = sum(1 for _ in ledger.missing())
    spent = time.perf_counter() - begin
    reporter.say(f"{len(lines)} shards done in {spent:.0f} s; {left} of 2,048 (b, tile) left")
    return {
        "verdict": "fail" if mismatches else "pass",
        "shards": [line["shard"] for line in lines],
        "points": sum(line["points"] for line in lines),
        "launches": sum(line["launches"] for line in lines),
        "words": sum(line["words"] for line in lines),
        "mismatches": mismatches,
        "units_left": left,
        "ledger": options.ledger.name,
        "seconds": round(spent, 1),
    }


def _prepared(workers: Workers, tokens: list[int], reporter: Reporter) -> dict[int, Prepared]:
    """Return the problems of every b, in the order of ``tokens``."""
    found = {}
    with reporter.over(sum(tokens), "batch sizes prepared"):
        for b, made in workers.map(prepare, tokens, reporter.tick):
            found[b] = made
            reporter.advance(b)
    return {b: found[b] for b in tokens}


def fastest(
    arch: str, loaded: list[tuple[Kernel, Kernel]], tokens: int, prepared: Prepared, reporter: Reporter
) -> tuple[int, int]:
    """Time `SETTINGS` on one b and tile, print their rates, and return the fastest."""
    rates = {}
    for threads, streams in SETTINGS:
        with Engine(arch, loaded, streams, threads, tile=TRIAL_TILE) as engine:
            engine.load(tokens, *prepared)
            engine.run(Unit(tokens, TRIAL_TILE), step=16)
            engine.report()
            start = time.perf_counter()
            points = engine.run(Unit(tokens, TRIAL_TILE))
            engine.report()
            rates[threads, streams] = points * len(loaded) / (time.perf_counter() - start)
        reporter.say(f"{threads} threads, {streams} streams: {rates[threads, streams]:,.0f} launches/s")
    return max(rates, key=rates.__getitem__)


def _run_shards(
    options: argparse.Namespace,
    card: device.Card,
    backends: tuple[str, ...],
    ledger: Ledger,
    todo: list[Shard],
    prepared: dict[int, Prepared],
    begin: float,
    reporter: Reporter,
) -> list[dict[str, Any]]:
    """Run shards while the slowest so far would still end in time."""
    arch = f"{card.arch}a"
    reporter.note("loading both kernels")
    loaded = [kernels.load(name, True, arch) for name in backends]
    lines: list[dict[str, Any]] = []
    trial = min(prepared)
    threads, streams = options.launch or fastest(card.arch, loaded, trial, prepared[trial], reporter)
    with Engine(card.arch, loaded, streams, threads) as engine, reporter.over(len(todo)):
        for b, made in prepared.items():
            engine.load(b, *made)
        reporter.say(f"ready after {time.perf_counter() - begin:.1f} s")
        for shard in todo:
            slowest = max((line["seconds"] for line in lines), default=0.0)
            if time.perf_counter() - begin + slowest > 60 * options.minutes:
                reporter.say("the time is up")
                break
            line, report = run_shard(engine, shard, backends, card)
            lines.append(line)
            ledger.append(line)
            wrong = f"{sum(line['mismatches'].values()):,} mismatches, {line['between']:,} between"
            reporter.say(f"shard {shard}: {line['launches']:,} launches in {line['seconds']:.1f} s, "
                         f"{line['launches_per_s']:,}/s, {wrong}")  # fmt: skip
            for example in report.example[: min(EXAMPLES, report.examples)]:
                reporter.say(explain(backends[example.backend], example))
            if report.examples or report.between:
                reporter.say("stopped at the first shard with a mismatch")
                break
            reporter.advance(1, line["launches"])
    return lines


def _backends(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(BACKENDS) or len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"backends are {','.join(BACKENDS)}, not {text!r}")
    return names


def _setting(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,2})x(\d{1,3})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) or int(match[2]) % int(match[1]):
        raise argparse.ArgumentTypeError(f"must be THREADSxSTREAMS, threads dividing streams, not {text!r}")
    return int(match[1]), int(match[2])


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="ci/gpu sweep",
        description="All 67,371,008 points (b, tile, offset, count) of the metadata's domain, on every "
        "backend, on the card. Finished shards are lines of the ledger; run again, it takes what is missing.",
        examples=TOOLS["oracle.card.sweep"],
        ending=ENDING,
    )
    made.add_argument("--shard", type=Shard.parse, metavar="i/n", help="this shard alone, i of 0..n-1")
    made.add_argument(
        "--shards",
        type=checked(number(1, 2048)),
        default=DEFAULT_SHARDS,
        metavar="N",
        help=f"shards of a whole run, default {DEFAULT_SHARDS}",
    )
    made.add_argument(
        "--minutes",
        type=float,
        default=DEFAULT_MINUTES,
        metavar="M",
        help=f"start no shard that would end later than this, default {DEFAULT_MINUTES:g}",
    )
    made.take(
        "--ledger",
        FILE,
        type=Path,
        default=LEDGER,
        metavar="FILE",
        help=f"of finished shards, default evidence/{LEDGER.name}",
    )
    made.take(
        "--backend",
        Words(lambda: BACKENDS),
        type=_backends,
        default=BACKENDS,
        metavar="NAME,...",
        help=f"of {', '.join(BACKENDS)}; default both",
    )
    made.add_argument(
        "--launch",
        type=_setting,
        metavar="THREADSxSTREAMS",
        help="host threads that launch, and streams; default: the fastest of a few",
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return ended("sweep", lambda: _run(parser().parse(words)))


def _run(options: argparse.Namespace) -> int:
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # before the driver is initialised
    record = run(options)
    if not record["shards"]:
        print("nothing was run")
        return COULD_NOT_RUN if record["units_left"] and not options.shard else PASS
    print(f"evidence: {evidence.write('sweep', record)}")
    return MISMATCH if record["mismatches"] else PASS


if __name__ == "__main__":
    sys.exit(main())
