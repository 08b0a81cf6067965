"""Hypothesis strategies for whole problems, by structure: where equal and neighbouring keys lie.

Logits and biases are painted: a fill, then strokes over it. A stroke is experts at equal distances - one, a
lane's eight, one of every lane, a run - with values from a few levels, equal or rising by bits of the last
place. So ties within and across lanes, across the cut-off and across the ends of the rank's range, and keys
that differ in the last bit, are common and not rare.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from oracle.search.whole import Whole, turned
from spec.constants import MAX_TILE, MAX_TOKENS, NUM_EXPERTS

_ANCHORS: Final = (
    0.0, 1.0, -1.0, 2.0, -8.0, 0.5, 6.0, -0.0, 16.635532, 40.0, -17.0, -36.6, -87.336544, -88.722839, -103.97,
    -200.0, np.inf, 1e-40, -1e-45, 2.0**-24, 33554432.0, 3e38, -3e38,
)  # fmt: skip
_QUIET: Final = -60.0
_NANS: Final = (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF)
_STEPS: Final = (1, 8, 2, 4, 16, 32, 64, 128, 7, 9, 31, 33, 255)
_SLOPES: Final = (0, 0, 1, -1, 1, -1, 2, -3, 1 << 20, -(1 << 20))
_SCALES: Final = (1.0, 2.5, 0.5, 0.0, -1.0, -0.0, np.inf, np.nan, 1e-45, 1e-39, 3e38)
_STRIDES: Final = (256, 0, 260, 512, 772, 4096, (1 << 31) - 4, 1 << 31, (1 << 31) + 4, (1 << 32) + 256)
_TILES: Final = (8, 1, 2, 3, 4, 5, 7, 9, 16, 64)

Bits = npt.NDArray[np.uint32]
Stroke = tuple[int, int, int, int, int, int]
"""First expert, step, number; level, bits of the last place above it, and more for every next expert.

Levels 0 to 2 are drawn for each problem, level 3 is -inf, which masks.
"""

Painting = tuple[int, list[Stroke]]
"""The level of the fill, and the strokes over it."""


def _bits(value: float) -> int:
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


# Strategies are made once here: made within a draw, they cost several times the draw.
_VALUE: Final = st.one_of(
    st.sampled_from(tuple(map(_bits, _ANCHORS))),
    st.floats(-20, 20, width=32).map(_bits),
    st.sampled_from(_NANS),
    st.integers(0, (1 << 32) - 1),
)
_LEVEL: Final = st.sampled_from((0, 0, 1, 1, 2, 2, 3))
_LEVELS: Final = st.tuples(_VALUE, _VALUE, _VALUE)
_STROKE: Final = st.tuples(
    st.integers(0, NUM_EXPERTS - 1),
    st.sampled_from(_STEPS),
    st.integers(1, 32),
    _LEVEL,
    st.integers(-2, 2),
    st.sampled_from(_SLOPES),
)
_PAINTING: Final = st.tuples(_LEVEL, st.lists(_STROKE, max_size=4))
_END: Final = st.tuples(st.integers(0, 3), st.integers(0, NUM_EXPERTS))
_RANGE: Final = st.tuples(_END, _END, st.one_of(st.sampled_from(_TILES), st.integers(1, MAX_TILE)))
_STRIDE: Final = st.one_of(st.sampled_from(_STRIDES), st.integers(64, 1 << 18).map(lambda n: 4 * n))
_SCALE: Final = st.one_of(st.sampled_from(_SCALES), st.floats(width=32))
_SEEN: Final = st.tuples(
    _LEVELS,
    st.lists(_PAINTING, min_size=1, max_size=3),
    st.sampled_from((0, 1, 8, 255)),
    st.sampled_from((False, False, True)),
    _LEVELS,
    _PAINTING,
)
_PLAIN: Final = st.tuples(_SEEN, _STRIDE, _SCALE)
_WITH_RANGE: Final = st.tuples(_SEEN, _STRIDE, _SCALE, _RANGE)
_SHIFT: Final = st.tuples(st.integers(0, 3), st.integers(0, 3))
_TURNS: Final = st.lists(st.integers(0, NUM_EXPERTS - 1), min_size=3, max_size=9)


def _painted(levels: tuple[int, ...], painting: Painting) -> tuple[Bits, list[int]]:
    """Return a vector of 256 as bits, and the experts where strokes begin and end."""
    fill, strokes = painting
    vector = np.full(NUM_EXPERTS, levels[fill], np.uint32)
    marks = []
    for start, step, number, level, above, slope in strokes:
        along = np.arange(number)
        experts = (start + step * along) % NUM_EXPERTS
        vector[experts] = (levels[level] + above + slope * along).astype(np.uint32)
        marks += [start, int(experts[-1])]
    return vector, marks


def _range(drawn: tuple[tuple[int, int], tuple[int, int], int], marks: list[int]) -> tuple[int, int, int]:
    """Return a rank's experts and a tile; an end of the range is anywhere, or beside an end of a stroke."""
    *ends, tile = drawn
    places = []
    for kind, number in ends:
        beside = kind in (1, 2) and bool(marks)
        places.append(marks[number % len(marks)] + kind - 1 if beside else number)
    low, high = (0, NUM_EXPERTS) if ends[0][0] == 0 and ends[1][0] == 0 else sorted(places)
    offset = min(low, NUM_EXPERTS - 1)
    return offset, max(high - offset, 1), tile


def _whole(drawn: Any, tokens: int, renormalize: bool, shift: tuple[int, int]) -> Whole:
    """Make a problem of what `_PLAIN` or `_WITH_RANGE` draws."""
    (levels, paintings, turn, quiet, bias_levels, bias_painting), stride, scale, *ranges = drawn
    masked = _bits(-np.inf)
    rows, marks = zip(*(_painted((*levels, masked), painting) for painting in paintings), strict=True)
    logits = np.stack([np.roll(rows[token % len(rows)], turn * token) for token in range(tokens)])
    if quiet:
        # Scores so small that the keys are the biases, bit for bit.
        logits[~(logits.view(np.float32) < _QUIET)] = _bits(_QUIET)
    bias, more = _painted((0, *bias_levels[:2], masked), bias_painting)
    if stride == 0:
        logits = np.repeat(logits[:1], tokens, axis=0)
    if stride > (1 << 31) + 4 and tokens > 4:
        stride = 1 << 31  # no problem then takes more than 60 GB of a card
    return Whole(
        logits=logits.view(np.float32),
        bias=bias.view(np.float32),
        scale=np.float32(scale),
        renormalize=renormalize,
        row_stride=stride,
        ranges=_range(ranges[0], [mark for row in marks for mark in row] + more) if ranges else None,
        shift=shift,
    )


def groups(variants: tuple[tuple[bool, bool], ...]) -> st.SearchStrategy[list[Whole]]:
    """Draw some dozens of problems that go into one batch, each at several turns of its experts.

    Parameters
    ----------
    variants
        (metadata, renormalize) to choose from.
    """

    # A list of lists, because Hypothesis makes a flat one six long on average, whatever may be.
    def many(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(st.lists(one, min_size=1, max_size=12), min_size=1, max_size=12)

    def made(drawn: Any) -> list[Whole]:
        tokens, (_, renormalize), shift, turns, lists = drawn
        plain = [_whole(one, tokens, renormalize, shift) for few in lists for one in few]
        return [*plain, *(turned(whole, by) for by in turns for whole in plain)]

    tokens = st.integers(1, MAX_TOKENS)
    drawn = [
        st.tuples(tokens, st.just(variant), _SHIFT, _TURNS, many(_WITH_RANGE if variant[0] else _PLAIN))
        for variant in variants
    ]
    return st.one_of(drawn).map(made)
