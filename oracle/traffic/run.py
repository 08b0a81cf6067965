"""The run of `replay` on recorded calls: every call through every target, and what the files say, judged."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

import spec
from oracle import artifacts, backends, replay
from oracle.check import Answer, answer, judge_answers
from oracle.compare import PERMITTED, WORD_BITS, expect
from oracle.errors import CannotRunError
from oracle.outcome import Finding, Judged, Result, Tally
from oracle.plan import Target
from oracle.problem import Batch
from oracle.report import Reporter
from oracle.traffic.calls import FAMILY, Calls, Given
from oracle.traffic.files import TrafficError, find
from oracle.traffic.reader import load
from oracle.workers import Workers

RECORD: Final = "record"
"""The device of outputs that a file holds: nothing runs there."""

_PIECE_CALLS: Final = 256
_PIECE_WORDS: Final = 1 << 22
_GATHERED: Final = 4 * _PIECE_CALLS


@dataclass(frozen=True)
class Piece:
    """Calls with one b and one variant, from one or more files, for some targets.

    backend
        Who made the outputs that the files hold.
    files
        Of each call.
    weight
        About the bytes that the calls take on disk.
    """

    targets: tuple[Target, ...]
    backend: str
    batch: Batch
    given: Given
    files: tuple[str, ...]
    weight: float


@dataclass
class Source:
    """The calls below one path, numbered from 0 in the order of the files.

    only
        The number of the one call that is wanted; None: all.
    calls, files, makers, ignored, assumed, judged
        After `pieces` is through: calls and files taken, who recorded them, names of arrays that mean nothing
        here, what files do not say of the inputs, and whether any file holds outputs.
    """

    path: Path
    only: int | None = None
    calls: int = 0
    files: int = 0
    makers: dict[str, None] = field(default_factory=dict)
    ignored: dict[str, None] = field(default_factory=dict)
    assumed: dict[str, None] = field(default_factory=dict)
    judged: bool = False

    def each(self) -> Iterator[tuple[Calls, float]]:
        """Yield the calls, their batches numbered, and about the bytes of one.

        Raises
        ------
        TrafficError
            A file is damaged or holds no calls, or there is no call with the number wanted.
        """
        number = 0
        for file in find(self.path):
            found = list(load(file))
            share = file.stat().st_size / sum(len(calls) for calls in found)
            for calls in found:
                index = number + np.arange(len(calls))
                number += len(calls)
                chosen = calls
                if self.only is not None:
                    if not index[0] <= self.only <= index[-1]:
                        continue
                    where = np.array([self.only - index[0]])
                    chosen, index = calls.take(where), index[where]
                self.calls += len(chosen)
                self.makers[chosen.backend] = None
                self.ignored |= dict.fromkeys(chosen.ignored)
                self.assumed |= dict.fromkeys(chosen.assumed)
                self.judged = self.judged or bool(chosen.given)
                yield replace(chosen, batch=replace(chosen.batch, index=index)), share
            self.files += 1
        if self.only is not None and not self.calls:
            raise TrafficError(f"{self.path} has no call {self.only}: they are 0..{number - 1}")

    def pieces(self, targets: tuple[Target, ...]) -> Iterator[Piece]:
        """Yield the calls as pieces for these targets; errors are those of `each`."""
        gathered: dict[tuple[object, ...], list[tuple[Calls, float]]] = {}
        for calls, share in self.each():
            same = gathered.setdefault(calls.key, [])
            same.append((calls, share))
            if sum(len(each) for each, _ in same) >= _GATHERED:
                yield from _cut(gathered.pop(calls.key), targets)
        for same in gathered.values():
            yield from _cut(same, targets)


def _cut(same: list[tuple[Calls, float]], targets: tuple[Target, ...]) -> Iterator[Piece]:
    """Cut calls of one kind into pieces whose metadata buffers stay small, sorted by tile."""
    batch = Batch.joined([calls.batch for calls, _ in same])
    given = Given.joined([calls.given for calls, _ in same])
    files = np.repeat(np.arange(len(same)), [len(calls) for calls, _ in same])
    kind = "selection" if batch.ranges is None else "permutation"
    asked = tuple(
        target for target in targets if PERMITTED[target.backend].asks(FAMILY, kind, batch.renormalize)
    )
    order = np.arange(len(batch))
    if batch.ranges is not None:
        order = np.argsort(batch.ranges.tile, kind="stable")
    start = 0
    while start < len(order):
        stop = min(start + _PIECE_CALLS, len(order))
        if batch.ranges is not None:
            largest = int(batch.ranges.tile[order[start:stop]].max())
            stop = min(stop, start + _PIECE_WORDS // spec.metadata_size(largest))
        mine = order[start:stop]
        names = tuple(str(same[file][0].file) for file in files[mine])
        weight = float(sum(same[file][1] for file in files[mine]))
        yield Piece(asked, same[0][0].backend, batch.take(mine), given.take(mine), names, weight)
        start = stop


def targets_here(names: Iterable[str] | None, device: str | None) -> tuple[Target, ...]:
    """Return the targets for recorded calls: those asked for, or all that can run here.

    Raises
    ------
    CannotRunError
        A backend that was asked for cannot run here, or none can run on the device.
    """
    chosen = []
    for name in backends.names() if names is None else names:
        devices = backends.get(name).devices if device is None else (device,)
        reasons = {each: backends.unavailable(name, each) for each in devices}
        here = [each for each, reason in reasons.items() if reason is None]
        if names is not None and not here:
            each, reason = next(iter(reasons.items()))
            raise CannotRunError(f"{Target(name, each)}: {reason}")
        held = PERMITTED[name].families is None
        chosen += [Target(name, each) for each in here if held]
    if not chosen:
        raise CannotRunError("no backend that takes any calls can run here")
    return tuple(chosen)


def execute(piece: Piece) -> Judged:
    """Put one piece to all of its targets, and judge their answers and what the files say."""
    batch = piece.batch
    for target in piece.targets:
        if target.device == "sim" and target.backend in artifacts.compiled_backends():
            artifacts.artifact(target.backend, batch.ranges is not None, batch.renormalize)  # untimed
    expected = expect(batch)
    answers = {target: answer(target, batch, expected) for target in piece.targets}
    if not piece.given:
        return judge_answers(batch, expected, answers)
    recorded = Target(piece.backend, RECORD)
    outputs, words = piece.given.against(expected, None if batch.ranges is None else batch.ranges.tile)
    judged = judge_answers(batch, expected, {recorded: Answer(outputs, {}, np.arange(0), 0.0)} | answers)
    judged.tallies[recorded].bits = words * WORD_BITS
    return judged


def run(source: Source, targets: tuple[Target, ...], jobs: int, reporter: Reporter, replays: Path) -> Result:
    """Make the run.

    Parameters
    ----------
    source
        Where the calls are.
    targets
        Backends with their devices.
    jobs
        Worker processes.
    reporter
        Is told of the progress, and of every wrong call of a new kind.
    replays
        The folder for the replay files of what the targets get wrong.

    Raises
    ------
    TrafficError
        A file is damaged or holds no calls.
    CannotRunError
        A target cannot run here, or a worker died.
    """
    start = time.monotonic()
    tallies: dict[tuple[Target, str], Tally] = {}
    left = 0
    size = sum(file.stat().st_size for file in find(source.path))
    with Workers(jobs) as workers, reporter.over(size):
        pieces = _announced(source.pieces(targets), reporter)
        for piece, judged in workers.map(_execute, pieces, reporter.tick):
            left += judged.left
            for target, tally in judged.tallies.items():
                tallies.setdefault((target, FAMILY), Tally()).add(tally)
            for finding in judged.findings:
                if reporter.wants(finding):
                    _tell(source, piece, finding, reporter, replays)
            reporter.advance(piece.weight, sum(tally.launches for tally in judged.tallies.values()))
    order = [*(Target(maker, RECORD) for maker in source.makers), *targets]
    rows = {(target, FAMILY): tallies[target, FAMILY] for target in order if (target, FAMILY) in tallies}
    return Result(rows, left, time.monotonic() - start)


def _execute(piece: Piece) -> tuple[Piece, Judged]:
    return piece, execute(piece)


def _announced(pieces: Iterator[Piece], reporter: Reporter) -> Iterator[Piece]:
    """Say which kernels a worker will have to compile first."""
    told = set()
    for piece in pieces:
        variant = piece.batch.ranges is not None, piece.batch.renormalize
        for target in piece.targets:
            kernel = target.backend, *variant
            if target.device != "sim" or target.backend not in artifacts.compiled_backends():
                continue
            if kernel not in told and not artifacts.entry_path(*kernel).exists():
                reporter.note(f"compiling a kernel of {target.backend}")
            told.add(kernel)
        yield piece


def _tell(source: Source, piece: Piece, finding: Finding, reporter: Reporter, replays: Path) -> None:
    index = finding.batch.index
    number = 0 if index is None else int(index[0])
    place = 0 if piece.batch.index is None else int(np.nonzero(piece.batch.index == number)[0][0])
    where = f"call {number} of {source.path}: in {Path(piece.files[place]).name}"
    told = replace(finding, others=(where, *finding.others))
    if finding.target.device == RECORD:
        reporter.finding(told, f"{source.path} --call {number}")
        return
    alone = replace(finding, batch=replace(finding.batch, family=f"{FAMILY}-{number}"))
    reporter.finding(told, replay.save(alone, replays))


def summary(source: Source) -> str:
    """Say what was read, in one line."""
    makers = ", ".join(source.makers)
    files = "1 file" if source.files == 1 else f"{source.files:,} files"
    text = f"{source.calls:,} call{'s' if source.calls != 1 else ''} of {files}"
    text += f", outputs of {makers}" if source.judged else ", without outputs"
    text += f"; not looked at: {', '.join(source.ignored)}" if source.ignored else ""
    return text + (f"; assumed: {', '.join(source.assumed)}" if source.assumed else "")
