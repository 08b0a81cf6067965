"""What a run covered: launches, and wrong ones, by b and tile, by range, and by family."""

from dataclasses import dataclass, field

import numpy as np

from oracle.outcome import ChunkResult
from oracle.problem import I64
from spec.constants import MAX_TILE, MAX_TOKENS


def _by_tile() -> I64:
    return np.zeros((MAX_TOKENS + 1, MAX_TILE + 1), np.int64)


@dataclass
class Count:
    """Launches, and how many of them were wrong."""

    launches: int = 0
    wrong: int = 0

    def add(self, launches: int, wrong: int) -> None:
        """Count some more."""
        self.launches += launches
        self.wrong += wrong


@dataclass
class Coverage:
    """The launches of all targets together.

    launches, wrong
        With metadata: int64 ``[9, 257]``, by b and tile.
    ranges
        With metadata: by (offset, count).
    families
        Without metadata: by family and b.
    """

    launches: I64 = field(default_factory=_by_tile)
    wrong: I64 = field(default_factory=_by_tile)
    ranges: dict[tuple[int, int], Count] = field(default_factory=dict)
    families: dict[tuple[str, int], Count] = field(default_factory=dict)

    def add(self, result: ChunkResult) -> None:
        """Count the launches of one chunk; those that were left after simulator errors are not among them."""
        chunk = result.chunk
        each, wrong = np.zeros((2, len(chunk)), np.int64)
        for differing in result.wrong.values():
            each += differing >= 0
            wrong += differing > 0
        if chunk.ranges is None:
            count = self.families.setdefault((chunk.family, chunk.tokens), Count())
            count.add(int(each.sum()), int(wrong.sum()))
            return
        ranges = chunk.ranges
        np.add.at(self.launches[chunk.tokens], ranges.tile, each)
        np.add.at(self.wrong[chunk.tokens], ranges.tile, wrong)
        for place, key in enumerate(zip(ranges.offset.tolist(), ranges.count.tolist(), strict=True)):
            self.ranges.setdefault(key, Count()).add(int(each[place]), int(wrong[place]))
