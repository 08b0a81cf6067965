"""Families that press on the score: its arithmetic, its ends, and NaN."""

import numpy as np

from oracle.cases.family import Draw, Family, Problem, any_scale, choose, from_bits, magnitude, normal
from oracle.problem import F32
from spec.constants import NUM_EXPERTS, SUM_EPSILON


def _random_scales(draw: Draw) -> Problem:
    size = 10.0 ** draw.rng.uniform(-3.0, 3.0, (draw.tokens, 1))
    logits = normal(draw, draw.tokens, NUM_EXPERTS) * size.astype(np.float32)
    return Problem(logits, normal(draw, NUM_EXPERTS) * magnitude(draw, -3.0, 1.0), any_scale(draw))


_ENDS = np.array([16, 16.6, 17, 18, 20, 40, 87, 88, 88.5, 89, 104, 200, 1e4, 3e38], np.float32)


def _saturated(draw: Draw) -> Problem:
    sign = np.where(draw.rng.random((draw.tokens, NUM_EXPERTS)) < draw.rng.random(), 1, -1).astype(np.float32)
    logits = choose(draw, _ENDS, draw.tokens, NUM_EXPERTS) * sign
    noise = normal(draw, NUM_EXPERTS) * np.float32(1e-3)
    return Problem(logits, noise, any_scale(draw))


# Where x * -log2(e) crosses -126 (A3), 128 and 24 (the sum's last bit), and where 1 + 2^y crosses 2^126 (A4).
_CORNERS = np.array(
    [-88.722839, -87.336544, -103.97, -16.635532, 0, 16.635532, 87.336544, 103.97], np.float32
)


def _approximation_edges(draw: Draw) -> Problem:
    near = choose(draw, _CORNERS, draw.tokens, NUM_EXPERTS)
    width = np.float32(10.0) ** draw.rng.integers(-6, 1, near.shape).astype(np.float32)
    logits = near + normal(draw, *near.shape) * width
    return Problem(logits, normal(draw, NUM_EXPERTS) * magnitude(draw, -30.0, -1.0), any_scale(draw))


_INFINITE = np.array([np.inf, -np.inf], np.float32)


def _sprinkle(draw: Draw, values: F32, special: F32, share: float) -> F32:
    return np.where(draw.rng.random(values.shape) < share, choose(draw, special, *values.shape), values)


def _infinities(draw: Draw) -> Problem:
    logits = _sprinkle(draw, normal(draw, draw.tokens, NUM_EXPERTS), _INFINITE, draw.rng.random())
    bias = _sprinkle(draw, normal(draw, NUM_EXPERTS), _INFINITE, draw.rng.choice([0.0, 0.02, 0.5]))
    return Problem(logits, bias, any_scale(draw))


_NANS = np.array(
    [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FA5A5A5], np.uint32
).view(np.float32)


def _nan(draw: Draw) -> Problem:
    share = draw.rng.choice([0.004, 0.03, 0.5, 1.0])
    logits = _sprinkle(draw, normal(draw, draw.tokens, NUM_EXPERTS), _NANS, share)
    bias = _sprinkle(draw, normal(draw, NUM_EXPERTS), _NANS, draw.rng.choice([0.0, 0.01]))
    return Problem(logits, _sprinkle(draw, bias, _INFINITE, 0.01), any_scale(draw))


def _raw_bits(draw: Draw) -> Problem:
    def words(*shape: int) -> F32:
        return from_bits(draw.rng.integers(0, 1 << 32, shape, np.uint32))

    return Problem(words(draw.tokens, NUM_EXPERTS), words(NUM_EXPERTS), any_scale(draw))


def _small_totals(draw: Draw) -> Problem:
    """Eight scores that add up to about the epsilon of R5, far below it, or to zero."""
    middle = draw.rng.choice([-36.6, -36.6, -20.0, -60.0, -87.5, -110.0], (draw.tokens, 1))
    logits = middle.astype(np.float32) + normal(draw, draw.tokens, NUM_EXPERTS) * np.float32(2.0)
    scale = any_scale(draw) * np.float32(draw.rng.choice([1.0, SUM_EPSILON]))
    return Problem(logits, normal(draw, NUM_EXPERTS), scale)


FAMILIES = (
    Family(
        "random-scales", "normal logits, from a thousandth to a thousand", ("R1", "R3", "R5"), _random_scales
    ),
    Family("saturated", "scores of 0 and 1, and what lies just before", ("A3", "A4", "R1", "R3"), _saturated),
    Family(
        "approximation-edges",
        "logits where the arithmetic changes branch",
        ("A3", "A4"),
        _approximation_edges,
    ),
    Family("infinities", "infinite logits and biases", ("A3", "A4", "R2", "R3"), _infinities),
    Family("nan", "NaN of every kind, in logits and bias", ("A8", "R2", "R3"), _nan),
    Family("raw-bits", "any 32 bits as logit and as bias", ("A8", "R1", "R2", "R3", "R5"), _raw_bits),
    Family("small-totals", "sums about the epsilon, subnormal, and zero", ("R5", "R6"), _small_totals),
)
