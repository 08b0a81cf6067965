"""Families with metadata: where the picks of b tokens lie, relative to the rank's experts and to each other.

A problem is made at a point (b, tile, offset, count), and the point is its index. Each names the picks it
wants; `logits_for` makes logits that pick them in that order.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from oracle.cases.family import Draw, Family, Problem, any_scale, normal
from oracle.problem import F32, I64, Ranges
from spec.constants import NUM_EXPERTS, TOP_K

Ids = npt.NDArray[np.int64]

_RADIX: Final = 512


@dataclass(frozen=True)
class Points:
    """P points of (b, tile, range): int64 ``[P]`` each."""

    tokens: I64
    tile: I64
    offset: I64
    count: I64

    def index(self) -> I64:
        """Return the number of each point's problem in its family."""
        return ((self.tokens * _RADIX + self.tile) * _RADIX + self.offset) * _RADIX + self.count

    def ranges(self) -> Ranges:
        """Return the metadata arguments of each point."""
        offset, count, tile = (value.astype(np.int32) for value in (self.offset, self.count, self.tile))
        return Ranges(offset, count, tile)

    def take(self, where: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "Points":
        """Return the points at ``where``."""
        return Points(self.tokens[where], self.tile[where], self.offset[where], self.count[where])


def mix(seed: int, values: I64) -> npt.NDArray[np.uint64]:
    """Return a well mixed 64-bit hash of each value and the seed (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        word = values.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x1234567) & ((1 << 64) - 1))
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))


def logits_for(ids: Ids) -> F32:
    """Logits ``[b, 256]`` that pick ``ids`` (distinct in a row) in that order where the bias is constant.

    Pick j has the logit 6 - j, every other expert -8: the scores fall from 0.9975 to 0.27, others are 0.0003.
    """
    logits = np.full((len(ids), NUM_EXPERTS), -8.0, np.float32)
    np.put_along_axis(logits, ids, 6 - np.arange(TOP_K, dtype=np.float32)[None, :], axis=1)
    return logits


def _problem(draw: Draw, ids: Ids) -> Problem:
    logits = logits_for(ids)
    # Below half of the smallest gap, in logits and in keys, so that the order of the picks stays.
    logits += draw.rng.uniform(-0.2, 0.2, logits.shape).astype(np.float32)
    bias = np.full(NUM_EXPERTS, draw.rng.choice([0.0, 1.0, -0.5]), np.float32)
    if draw.rng.random() < 0.5:
        bias += draw.rng.uniform(-2e-4, 2e-4, NUM_EXPERTS).astype(np.float32)
    stride = int(draw.rng.choice([NUM_EXPERTS, NUM_EXPERTS, 260, 1024]))
    return Problem(logits, bias, any_scale(draw), stride)


def _split(draw: Draw) -> tuple[Ids, Ids]:
    """Return the local and the remote experts, each in random order."""
    local = draw.offset + draw.rng.permutation(draw.count)
    remote = draw.rng.permutation(NUM_EXPERTS - draw.count)
    return local, np.where(remote < draw.offset, remote, remote + draw.count)


def _filled(draw: Draw, wanted: int, first: Ids, second: Ids) -> Ids:
    """Eight of ``first`` and ``second`` in random order, ``wanted`` of ``first`` as far as both reach."""
    taken = max(min(wanted, len(first), TOP_K), TOP_K - len(second))
    return draw.rng.permutation(np.concatenate([first[:taken], second[: TOP_K - taken]]))


def _mixed(draw: Draw) -> Problem:
    """Each token its own share of local picks, out of few experts, so that tokens meet."""
    local, remote = _split(draw)
    few_local, few_remote = local[: 3 * TOP_K // 2], remote[: 2 * TOP_K]
    rows = [
        _filled(
            draw,
            int(draw.rng.integers(0, TOP_K + 1)),
            draw.rng.permutation(few_local),
            draw.rng.permutation(few_remote),
        )
        if len(few_remote) >= TOP_K or len(few_local) >= TOP_K
        else _filled(draw, TOP_K, local, remote)
        for _ in range(draw.tokens)
    ]
    return _problem(draw, np.stack(rows))


def _shared(draw: Draw) -> Problem:
    """Every token picks the same eight experts, each in its own order."""
    local, remote = _split(draw)
    picks = _filled(draw, int(draw.rng.integers(1, TOP_K + 1)), local, remote)
    return _problem(draw, np.stack([draw.rng.permutation(picks) for _ in range(draw.tokens)]))


def _distinct(draw: Draw) -> Problem:
    """No expert is picked twice; local ones as far as they reach, spread over the tokens."""
    local, remote = _split(draw)
    routes = np.concatenate([local, remote])[: draw.tokens * TOP_K]
    return _problem(draw, draw.rng.permutation(routes).reshape(draw.tokens, TOP_K))


def _all_local(draw: Draw) -> Problem:
    """Every pick local, as far as the rank has experts."""
    rows = [_filled(draw, TOP_K, *_split(draw)) for _ in range(draw.tokens)]
    return _problem(draw, np.stack(rows))


def _none_local(draw: Draw) -> Problem:
    """No pick local, as far as there are other experts; experts just outside the range come first."""
    local, remote = _split(draw)
    if draw.rng.random() < 0.5:
        remote = remote[np.argsort(np.abs(remote - draw.offset), kind="stable")]
    rows = [_filled(draw, 0, local, draw.rng.permutation(remote[: 2 * TOP_K])) for _ in range(draw.tokens)]
    return _problem(draw, np.stack(rows))


def _edges(draw: Draw) -> Problem:
    """Equal keys in a window across one end of the range, so that the tie rule decides what is local."""
    logits = np.full((draw.tokens, NUM_EXPERTS), -8.0, np.float32)
    for row in logits:
        end = draw.offset if draw.rng.random() < 0.5 else draw.offset + draw.count
        start = int(np.clip(end - draw.rng.integers(0, 2 * TOP_K), 0, NUM_EXPERTS - 2 * TOP_K))
        row[start : start + 2 * TOP_K] = 0.5
        first = draw.rng.choice([0, draw.offset, draw.offset + draw.count - 1, NUM_EXPERTS - 1], 2)
        row[first] = 1.0
    return Problem(logits, np.full(NUM_EXPERTS, 0.25, np.float32), any_scale(draw))


def _natural(draw: Draw) -> Problem:
    """Take normal logits and biases, as routers give them."""
    logits = normal(draw, draw.tokens, NUM_EXPERTS) * np.float32(2.0)
    return Problem(logits, normal(draw, NUM_EXPERTS) * np.float32(0.5), any_scale(draw))


_ALL = ("M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8")

FAMILIES = (
    Family("permute-mixed", "local and remote picks, out of few experts", _ALL, _mixed, "permutation"),
    Family("permute-shared", "all tokens on the same eight experts", _ALL, _shared, "permutation"),
    Family("permute-distinct", "no expert picked twice", _ALL, _distinct, "permutation"),
    Family("permute-all-local", "every pick local", _ALL, _all_local, "permutation"),
    Family("permute-none-local", "no pick local", _ALL, _none_local, "permutation"),
    Family("permute-edges", "equal keys across an end of the range", ("R3", *_ALL), _edges, "permutation"),
    Family("permute-natural", "normal logits", ("R1", "R3", "R5", *_ALL), _natural, "permutation"),
)
