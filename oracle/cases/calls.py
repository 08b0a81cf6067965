"""Families that press on the other arguments: the row stride and the scale."""

import numpy as np

from oracle.cases.family import Draw, Family, Problem, any_scale, normal
from spec.constants import NUM_EXPERTS, TOP_K

_STRIDES = (
    0,
    NUM_EXPERTS,
    260,
    512,
    772,
    4096,
    1 << 20,
    (1 << 31) - 4,
    1 << 31,
    (1 << 31) + 4,
    (1 << 32) + 256,
)


def _strided_rows(draw: Draw) -> Problem:
    stride = _STRIDES[draw.index // 2 % len(_STRIDES)]
    if stride > 1 << 32 and draw.tokens > 4:
        stride = (1 << 31) + 4  # no problem then takes more than 60 GB of a card
    logits = normal(draw, draw.tokens, NUM_EXPERTS)
    if stride == 0:
        logits = np.repeat(logits[:1], draw.tokens, axis=0)
    return Problem(logits, normal(draw, NUM_EXPERTS), any_scale(draw), stride)


_SCALES = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-45,
        1e-39,
        1.1754944e-38,
        3.4028235e38,
        1.0,
        -1.0,
        2.5,
        1e30,
    ],
    np.float32,
)


def _scale_values(draw: Draw) -> Problem:
    logits = normal(draw, draw.tokens, NUM_EXPERTS)
    logits += np.float32(draw.rng.choice([0.0, -30.0, -90.0]))
    return Problem(logits, normal(draw, NUM_EXPERTS), draw.rng.choice(_SCALES))


def _exact(draw: Draw) -> Problem:
    """Scores of 0, 1/2 and 1, distinct keys far apart, and eight equal picks a row.

    Every operation of the formula is then exact in any order and in any correctly rounding or approximate
    division: the sum is 4 or 8, and its reciprocal a power of two.
    """
    logits = np.where(draw.rng.random((draw.tokens, 1)) < 0.5, 0.0, 40.0).astype(np.float32)
    logits = np.repeat(logits, NUM_EXPERTS, axis=1)
    open_ = np.stack([draw.rng.permutation(NUM_EXPERTS) for _ in range(draw.tokens)])
    masked = open_ >= draw.rng.integers(TOP_K, NUM_EXPERTS + 1)
    logits[masked] = -np.inf
    bias = (draw.rng.permutation(NUM_EXPERTS) / (4.0 * NUM_EXPERTS)).astype(np.float32)
    return Problem(logits, bias, any_scale(draw))


FAMILIES = (
    Family(
        "strided-rows", "row strides of 0, of a wider buffer, and beyond 2^31", ("R1", "R4"), _strided_rows
    ),
    Family(
        "scale-values",
        "scales of zero, infinity, NaN, subnormal, negative",
        ("A1", "A4", "R5", "R6"),
        _scale_values,
    ),
    Family("exact", "inputs on which the eager formula is exact as well", ("R3", "R4", "R5", "R6"), _exact),
)
