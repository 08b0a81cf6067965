"""What a run of `check` covers, cut into chunks that one worker answers at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

import spec
from oracle import cases, defaults
from oracle.cases import known
from oracle.cases.permuting import Points, mix
from oracle.compare import PERMITTED
from oracle.problem import I64, Batch, Ranges
from spec.constants import MAX_TILE, MAX_TOKENS, NUM_EXPERTS

_SAMPLE: Final = (
    (0, 256), (0, 1), (255, 1), (0, 64), (64, 64), (128, 64), (192, 64),
    (0, 128), (128, 128), (37, 101), (5, 3), (129, 126),
)  # fmt: skip
_CHUNK_PROBLEMS: Final = 256
_CHUNK_WORDS: Final = 1 << 22
_BLOCK_POINTS: Final = 4096


@dataclass(frozen=True)
class Target:
    """A backend on a device."""

    backend: str
    device: str

    def __str__(self) -> str:
        return f"{self.backend} on {self.device}"


@dataclass(frozen=True)
class RangeChoice:
    """The expert ranges of a run, (offset, count) each.

    fixed
        Ranges that every (b, tile) gets.
    drawn
        Whether every (b, tile) gets one more, drawn from the seed.
    """

    fixed: tuple[tuple[int, int], ...]
    drawn: bool = False

    @property
    def number(self) -> int:
        """Ranges a (b, tile)."""
        return len(self.fixed) + self.drawn


SAMPLE_RANGES: Final = RangeChoice(_SAMPLE, drawn=True)
ALL_RANGES: Final = RangeChoice(
    tuple((offset, count) for offset in range(NUM_EXPERTS) for count in range(1, NUM_EXPERTS - offset + 1))
)


@dataclass(frozen=True)
class Chunk:
    """Problems of one family, one b and one variant, for some targets."""

    targets: tuple[Target, ...]
    family: str
    seed: int
    tokens: int
    renormalize: bool
    index: I64
    ranges: Ranges | None

    def __len__(self) -> int:
        return len(self.index)

    def make(self) -> Batch:
        """Make the problems."""
        family = cases.FAMILIES[self.family]
        return cases.batch(family, self.seed, self.index, self.tokens, self.renormalize, self.ranges)

    @property
    def weight(self) -> float:
        """About how long this takes: the padding loop of the kernels grows with the tile."""
        tiles = 0.0 if self.ranges is None else 0.5 + float(self.ranges.tile.mean()) / 64
        return len(self.targets) * len(self) * (1.0 + self.tokens / 8 + tiles)


@dataclass(frozen=True)
class Plan:
    """One run: which backends, and the axes of problems.

    targets
        Backends with their devices.
    families
        Names in `cases.FAMILIES`.
    batch, tile, ranges
        The values of b, of the tile, and the expert ranges; tile and range concern families with metadata.
    count
        Problems a selection family, spread over b and both values of renormalize.
    seed
        Of all problems.
    """

    targets: tuple[Target, ...]
    families: tuple[str, ...] = tuple(cases.FAMILIES)
    batch: tuple[int, ...] = tuple(range(1, MAX_TOKENS + 1))
    tile: tuple[int, ...] = tuple(range(1, MAX_TILE + 1))
    ranges: RangeChoice = SAMPLE_RANGES
    count: int = defaults.CASES
    seed: int = 0

    def chunks(self) -> Iterator[Chunk]:
        """Yield the run's chunks; the large tiles come last but one, the small ones last."""
        for name in self.families:
            if cases.FAMILIES[name].kind == "selection":
                yield from self._selection(name)
        if known.METADATA.name in self.families:
            yield from self._known_metadata()
        yield from self._permutation()

    def _targets(self, family: str, renormalize: bool) -> tuple[Target, ...]:
        kind = cases.FAMILIES[family].kind
        return tuple(
            target for target in self.targets if PERMITTED[target.backend].asks(family, kind, renormalize)
        )

    def _cut(
        self, family: str, tokens: int, renormalize: bool, index: I64, ranges: Ranges | None = None
    ) -> Iterator[Chunk]:
        """Cut into chunks whose metadata buffers stay small; the problems come sorted by tile."""
        targets = self._targets(family, renormalize)
        start = 0
        while targets and start < len(index):
            stop = min(start + _CHUNK_PROBLEMS, len(index))
            if ranges is not None:
                largest = int(ranges.tile[start:stop].max())
                stop = min(stop, start + _CHUNK_WORDS // spec.metadata_size(largest))
            piece = slice(start, stop)
            part = (
                None
                if ranges is None
                else Ranges(ranges.offset[piece], ranges.count[piece], ranges.tile[piece])
            )
            yield Chunk(targets, family, self.seed, tokens, renormalize, index[piece], part)
            start = stop

    def _selection(self, family: str) -> Iterator[Chunk]:
        if family == known.SELECTION.name:
            every = np.arange(len(known.entries("selection")))
            for tokens in self.batch:
                for renormalize in (True, False):
                    yield from self._cut(family, tokens, renormalize, every)
            return
        index = np.arange(self.count)
        turn = index % (2 * len(self.batch))
        for place, tokens in enumerate(self.batch):
            for renormalize in (True, False):
                mine = index[turn == 2 * place + (not renormalize)]
                yield from self._cut(family, tokens, renormalize, mine)

    def _known_metadata(self) -> Iterator[Chunk]:
        points = known.metadata_points()
        for tokens in self.batch:
            mine = np.nonzero((points.tokens == tokens) & np.isin(points.tile, self.tile))[0]
            for renormalize in (True, False):
                yield from self._cut(
                    known.METADATA.name, tokens, renormalize, mine, points.take(mine).ranges()
                )

    def _permutation(self) -> Iterator[Chunk]:
        names = [name for name in self.families if cases.FAMILIES[name].kind == "permutation"]
        names = [name for name in names if name != known.METADATA.name]
        if not names:
            return
        width = max(1, _BLOCK_POINTS // self.ranges.number)
        tiles = sorted(self.tile)
        for start in reversed(range(0, len(tiles), width)):
            for tokens in self.batch:
                points = self._points(tokens, tiles[start : start + width])
                mixed = mix(self.seed, points.index())
                which = (mixed >> np.uint64(1)) % np.uint64(len(names))
                renormalized = (mixed & np.uint64(1)) == 1
                for place, name in enumerate(names):
                    for renormalize in (True, False):
                        mine = points.take((which == place) & (renormalized == renormalize))
                        yield from self._cut(name, tokens, renormalize, mine.index(), mine.ranges())

    def _points(self, tokens: int, tiles: list[int]) -> Points:
        """Every (tile, range) at one b, sorted by tile."""
        fixed = np.array(self.ranges.fixed, np.int64).reshape(-1, 2)
        tile = np.repeat(np.array(tiles, np.int64), len(fixed))
        offset, count = np.tile(fixed, (len(tiles), 1)).T
        if self.ranges.drawn:
            one = np.array(tiles, np.int64)
            draw = (mix(self.seed, one * 16 + tokens) % np.uint64(len(ALL_RANGES.fixed))).astype(np.int64)
            more = np.array(ALL_RANGES.fixed, np.int64)[draw]
            tile, offset, count = (
                np.concatenate(pair) for pair in ((tile, one), (offset, more[:, 0]), (count, more[:, 1]))
            )
        order = np.argsort(tile, kind="stable")
        return Points(np.full(len(tile), tokens, np.int64), tile[order], offset[order], count[order])


def match_families(patterns: list[str]) -> tuple[str, ...]:
    """Return the families that match any of the patterns (``*`` and ``?`` as in file names), in table order.

    Raises
    ------
    ValueError
        A pattern matches none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in cases.FAMILIES):
            raise ValueError(f"no family {pattern!r}: there are {', '.join(cases.FAMILIES)}")
    return tuple(name for name in cases.FAMILIES if any(fnmatchcase(name, pattern) for pattern in patterns))
