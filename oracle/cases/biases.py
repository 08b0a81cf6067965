"""Families that press on the bias: what it hides, and that it never reaches a weight."""

import numpy as np

from oracle.cases.family import Draw, Family, Problem, any_scale, from_bits, magnitude, normal
from spec.constants import NUM_EXPERTS, TOP_K


def _masked(draw: Draw) -> Problem:
    """Experts masked by a bias of -inf, so that fewer than eight, or just eight, finite keys are left."""
    finite = draw.rng.permutation(NUM_EXPERTS)[: draw.rng.integers(0, TOP_K + 4)]
    bias = np.full(NUM_EXPERTS, -np.inf, np.float32)
    bias[finite] = normal(draw, len(finite))
    logits = normal(draw, draw.tokens, NUM_EXPERTS)
    logits[draw.rng.random(logits.shape) < 0.1] = -np.inf
    return Problem(logits, bias, any_scale(draw))


def _huge_bias(draw: Draw) -> Problem:
    bias = normal(draw, NUM_EXPERTS) * magnitude(draw, 4.0, 38.5)
    shared = draw.rng.random(NUM_EXPERTS) < draw.rng.random()
    bias[shared] = draw.rng.choice(np.array([2.0**24, 2.0**25, 1e30, 3.4e38, -1e30, 12.0], np.float32))
    return Problem(normal(draw, draw.tokens, NUM_EXPERTS) * magnitude(draw, -1.0, 1.5), bias, any_scale(draw))


def _tiny_bias(draw: Draw) -> Problem:
    logits = np.repeat(normal(draw, draw.tokens, 1), NUM_EXPERTS, axis=1)
    # 2^-24 is half of the last bit of a score in [0.5, 1): the key's rounding decides.
    steps = draw.rng.integers(-5, 6, NUM_EXPERTS).astype(np.float32)
    size = draw.rng.choice(np.array([2.0**-24, 2.0**-25, 2.0**-26, 1e-12, 1e-30], np.float32))
    return Problem(logits, steps * size, any_scale(draw))


def _subnormal_bias(draw: Draw) -> Problem:
    sign = draw.rng.integers(0, 2, NUM_EXPERTS, np.uint32) << np.uint32(31)
    bias = from_bits(draw.rng.integers(0, 1 << int(draw.rng.integers(2, 25)), NUM_EXPERTS, np.uint32) | sign)
    logits = np.full((draw.tokens, NUM_EXPERTS), -200.0, np.float32)
    logits[draw.rng.random(logits.shape) < draw.rng.choice([0.0, 0.5])] = -102.0
    return Problem(logits, bias, any_scale(draw))


FAMILIES = (
    Family("masked", "-inf masks that leave fewer than eight finite keys", ("R2", "R3"), _masked),
    Family("huge-bias", "biases that swallow the score, or overflow", ("R2", "R3", "R6"), _huge_bias),
    Family("tiny-bias", "biases about the last bit of the score, and below", ("A2", "R2", "R3"), _tiny_bias),
    Family("subnormal-bias", "subnormal keys, which keep their order", ("A2", "R2", "R3"), _subnormal_bias),
)
