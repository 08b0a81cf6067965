"""One problem with everything that belongs to it, and batches of many."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from oracle.check import answer
from oracle.compare import PERMITTED, compare, expect
from oracle.plan import Target
from oracle.problem import F32, Batch, Ranges
from spec.constants import NUM_EXPERTS

FAMILY: Final = "search"


@dataclass(frozen=True)
class Whole:
    """One problem.

    logits, bias
        float32 ``[b, 256]`` and ``[256]``.
    row_stride
        In elements: 0 (all rows are then equal) or 4 k >= 256.
    ranges
        Offset, count and tile; None without metadata.
    shift
        Elements by which ids and weights lie off 16 bytes, 0..3 each.
    """

    logits: F32
    bias: F32
    scale: np.float32
    renormalize: bool
    row_stride: int = NUM_EXPERTS
    ranges: tuple[int, int, int] | None = None
    shift: tuple[int, int] = (1, 1)

    @property
    def group(self) -> tuple[int, bool, bool, tuple[int, int]]:
        """What the problems of one batch have in common."""
        return len(self.logits), self.renormalize, self.ranges is not None, self.shift


def turned(whole: Whole, by: int) -> Whole:
    """Return the problem with every expert ``by`` further, and its range where that does not wrap around."""
    ranges = whole.ranges
    if ranges is not None:
        offset, count, tile = ranges
        moved = (offset + by) % NUM_EXPERTS
        ranges = (moved if moved + count <= NUM_EXPERTS else offset, count, tile)
    logits, bias = np.roll(whole.logits, by, axis=1), np.roll(whole.bias, by)
    return replace(whole, logits=logits, bias=bias, ranges=ranges)


def batch_of(wholes: Sequence[Whole]) -> Batch:
    """Return problems of one group as a batch."""
    first = wholes[0]
    ranges = None
    if first.ranges is not None:
        offset, count, tile = np.array([whole.ranges for whole in wholes], np.int32).T.copy()
        ranges = Ranges(offset, count, tile)
    return Batch(
        family=FAMILY,
        logits=np.stack([whole.logits for whole in wholes]),
        bias=np.stack([whole.bias for whole in wholes]),
        scale=np.array([whole.scale for whole in wholes], np.float32),
        renormalize=first.renormalize,
        row_stride=np.array([whole.row_stride for whole in wholes], np.int64),
        ranges=ranges,
        shift=first.shift,
    )


def first_wrong(target: Target, wholes: Sequence[Whole]) -> int | None:
    """Return the place of the first problem of one group that the target gets wrong; None: none is wrong."""
    batch = batch_of(wholes)
    expected = expect(batch)
    given = answer(target, batch, expected)
    wrong = compare(PERMITTED[target.backend].right(batch, expected, given.outputs), given.outputs) != 0
    wrong[given.left] = False
    wrong[list(given.failures)] = True
    return int(np.argmax(wrong)) if wrong.any() else None
