"""Every point of the metadata's domain, and the routing problems that the points take.

A point is (b, tile, offset, count); its number is ``((b - 1) * 256 + tile - 1) * 32,896 + r``, r
numbering the expert ranges. Point p takes problem ``mix(p) mod 4,096`` of its b, with portable.h's ``mix``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import spec

PROBLEMS: Final = 4096
"""Routing problems of each b."""

SEED: Final = 20261201
ROW_PITCH: Final = spec.NUM_EXPERTS + 8
"""Elements that a row of logits takes in memory at most: problem q has the row stride 256 + 4 (q mod 3)."""

_GAP: Final = np.uint32(0x7FFFFFFF)
_MASK: Final = (1 << 64) - 1

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


def mix(z: int) -> int:
    """Return the 64 bits that portable.h's ``mix`` makes of ``z``."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def ranges() -> I32:
    """Return every expert range of the contract, int32 ``[32896, 2]``: offset and count."""
    found = [
        (offset, count)
        for offset in range(spec.NUM_EXPERTS)
        for count in range(1, spec.NUM_EXPERTS - offset + 1)
    ]
    return np.array(found, np.int32)


RANGES: Final = spec.NUM_EXPERTS * (spec.NUM_EXPERTS + 1) // 2
POINTS: Final = spec.MAX_TOKENS * spec.MAX_TILE * RANGES


@dataclass(frozen=True)
class Unit:
    """All points of one b and one tile."""

    tokens: int
    tile: int

    @property
    def number(self) -> int:
        """The number of the unit's first point."""
        return ((self.tokens - 1) * spec.MAX_TILE + self.tile - 1) * RANGES


def units() -> Iterator[Unit]:
    """Yield all 2,048 units, b slowest."""
    for tokens in range(1, spec.MAX_TOKENS + 1):
        for tile in range(1, spec.MAX_TILE + 1):
            yield Unit(tokens, tile)


@dataclass(frozen=True)
class Problems:
    """The 4,096 problems of one b.

    logits
        float32 ``[4096, b, 256]``.
    bias
        float32 ``[4096, 256]``.
    scale
        float32 ``[4096]``.
    Problem q renormalises where q is odd.
    """

    logits: F32
    bias: F32
    scale: F32

    @property
    def row_stride(self) -> I64:
        """Elements between rows in memory, int64 ``[4096]``."""
        return np.asarray(
            spec.NUM_EXPERTS + spec.ROW_STRIDE_MULTIPLE * (np.arange(len(self.logits)) % 3), np.int64
        )

    def memory(self) -> F32:
        """Return the logits as they lie in memory, float32 ``[4096, b * ROW_PITCH]``, NaN between rows."""
        tokens = self.logits.shape[1]
        laid = np.full((len(self.logits), tokens * ROW_PITCH), _GAP, np.uint32).view(np.float32)
        for remainder in range(3):
            stride = int(self.row_stride[remainder])
            rows = laid[remainder::3, : tokens * stride].reshape(-1, tokens, stride)
            rows[:, :, : spec.NUM_EXPERTS] = self.logits[remainder::3]
            laid[remainder::3, : tokens * stride] = rows.reshape(len(rows), -1)
        return laid


def problems(tokens: int) -> Problems:
    """Return the problems of one b: experts apart, shared, from small pools, around borders, and ties."""
    random: Any = np.random.Generator(np.random.Philox(key=[SEED, tokens]))
    logits = random.standard_normal((PROBLEMS, tokens, spec.NUM_EXPERTS), np.float32) * np.float32(2)
    bias = random.standard_normal((PROBLEMS, spec.NUM_EXPERTS), np.float32) * np.float32(0.05)
    scale = np.where(random.random(PROBLEMS) < 0.5, 1.0, random.random(PROBLEMS) * 4).astype(np.float32)
    lift = np.float32(4)
    for q in range(PROBLEMS):
        match q // 2 % 8:  # both values of renormalize in each kind
            case 0:  # every token on its own
                continue
            case 1:  # all tokens alike
                logits[q] = logits[q, 0]
            case 2:  # a pool of twelve
                bias[q, random.choice(spec.NUM_EXPERTS, 12, replace=False)] += lift
            case 3:  # neighbours, which a range's border cuts
                start = int(random.integers(spec.NUM_EXPERTS - 16))
                bias[q, start : start + 16] += lift
            case 4:  # ties, across the cut too
                logits[q] = np.round(logits[q])
                bias[q] = np.round(bias[q] * 20) / 8
            case 5:  # half of the tokens alike
                logits[q, : (tokens + 1) // 2] = logits[q, 0]
            case 6:  # the first and the last experts
                bias[q, :5] += lift
                bias[q, -5:] += lift
            case _:  # one expert that all take
                bias[q, random.integers(spec.NUM_EXPERTS)] += lift
    return Problems(logits, bias, scale)


def answers(tokens: int) -> tuple[I32, F32]:
    """Return what `spec.route` says of `problems`: ids and weights, int32 and float32 ``[4096, b, 8]``."""
    made = problems(tokens)
    ids = np.empty((PROBLEMS, tokens, spec.TOP_K), np.int32)
    weights = np.empty((PROBLEMS, tokens, spec.TOP_K), np.float32)
    for renormalize in (False, True):
        which = slice(int(renormalize), None, 2)
        ids[which], weights[which] = spec.route(
            made.logits[which], made.bias[which], made.scale[which], renormalize
        )
    return ids, weights
