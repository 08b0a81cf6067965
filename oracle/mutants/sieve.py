"""Ordinary problems in small mixed batches, the most suspicious first: most mutants fall at the first.

A batch holds a few problems of every family, so one launch of the simulator asks them all.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from oracle import cases
from oracle.cases import known
from oracle.compare import expect
from oracle.plan import SAMPLE_RANGES
from oracle.problem import Batch, Outputs, Ranges

_TILES: Final = (4, 1, 8, 3, 2, 7, 5, 16, 6, 12, 33, 64)
_LARGE_TILES: Final = (256, 255, 129, 100, 1, 2, 9)


@dataclass(frozen=True)
class Trial:
    """One mixed batch, what is right for it, and the family that each problem (and its index) is of."""

    batch: Batch
    expected: Outputs
    families: tuple[str, ...]

    @property
    def variant(self) -> tuple[bool, bool]:
        """The kernel's variant: metadata, renormalize."""
        return self.batch.ranges is not None, self.batch.renormalize


@cache
def trials() -> tuple[Trial, ...]:
    """Return the batches in order: every variant first, then more of b, tiles and problems."""
    return (
        _trial(5, True, _TILES, 3, 0),
        _trial(8, False, _TILES, 2, 100),
        _trial(3, True, (), 6, 200),
        _trial(1, False, (), 4, 300),
        _trial(8, True, _TILES, 10, 400),
        _trial(8, True, (), 24, 500),
        _trial(2, True, _LARGE_TILES, 2, 600),
        _trial(7, False, _LARGE_TILES, 2, 700),
        _trial(1, True, _TILES, 6, 800),
        _trial(4, True, _TILES, 12, 900),
        _trial(6, False, (), 16, 1000),
    )


def _trial(tokens: int, renormalize: bool, tiles: tuple[int, ...], each: int, first: int) -> Trial:
    parts = []
    for number, family in enumerate(cases.FAMILIES.values()):
        if not tiles and family.kind == "permutation":
            continue
        if family is known.METADATA:
            points = known.metadata_points()
            index = np.nonzero(points.tokens == tokens)[0]
            ranges = points.take(index).ranges()
        else:
            index = np.arange(first, first + each)
            ranges = _ranges(tiles, each, first + number)
        if family is known.SELECTION:
            index = np.arange(len(known.entries("selection")))
            ranges = _ranges(tiles, len(index), first)
        if len(index):
            parts.append(cases.batch(family, 0, index, tokens, renormalize, ranges if tiles else None))
    batch = _joined(parts)
    names = tuple(part.family for part in parts for _ in range(len(part)))
    return Trial(batch, expect(batch), names)


def _ranges(tiles: tuple[int, ...], number: int, first: int) -> Ranges:
    """Go through tiles and expert ranges at different steps, so that all meet."""
    turn = np.arange(first, first + number)
    fixed = np.array(SAMPLE_RANGES.fixed)[turn * 5 % len(SAMPLE_RANGES.fixed)].astype(np.int32)
    tile = np.array(tiles or (1,), np.int32)[turn % max(1, len(tiles))]
    return Ranges(np.ascontiguousarray(fixed[:, 0]), np.ascontiguousarray(fixed[:, 1]), tile)


def _joined(parts: list[Batch]) -> Batch:
    with_metadata = [part.ranges for part in parts if part.ranges is not None]
    ranges = None
    if with_metadata:
        ranges = Ranges(
            *(
                np.concatenate([getattr(part, name) for part in with_metadata])
                for name in ("offset", "count", "tile")
            )
        )
    return Batch(
        family="mixed",
        logits=np.concatenate([part.logits for part in parts]),
        bias=np.concatenate([part.bias for part in parts]),
        scale=np.concatenate([part.scale for part in parts]),
        renormalize=parts[0].renormalize,
        row_stride=np.concatenate([part.row_stride for part in parts]),
        ranges=ranges,
        index=np.concatenate([part.index for part in parts if part.index is not None]),
    )
