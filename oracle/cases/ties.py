"""Families whose keys are equal, or differ in the last bit."""

import numpy as np

from oracle.cases.family import Draw, Family, Problem, any_scale, choose, from_bits, normal
from spec.constants import NUM_EXPERTS, TOP_K

_BASES = np.array([0, 0, -200, 40, 1.5, -3], np.float32)


def _all_equal(draw: Draw) -> Problem:
    logits = np.repeat(choose(draw, _BASES, draw.tokens, 1), NUM_EXPERTS, axis=1)
    bias = np.full(NUM_EXPERTS, draw.rng.choice([0.0, -0.0, 1.0, -7.0, 1e-40]), np.float32)
    return Problem(logits, bias, any_scale(draw))


def _ties(draw: Draw) -> Problem:
    few = normal(draw, int(draw.rng.integers(1, 5)))
    # A score of 0 with a bias of either zero gives keys that are equal and a row that is all ties.
    few = np.append(few, np.float32(-200.0)) if draw.rng.random() < 0.3 else few
    levels = np.array([0.0, -0.0, 0.25, -0.25], np.float32)[: draw.rng.integers(1, 5)]
    logits = choose(draw, few, draw.tokens, NUM_EXPERTS)
    return Problem(logits, choose(draw, levels, NUM_EXPERTS), any_scale(draw))


def _width(draw: Draw) -> int:
    """Over how many neighbouring floats 256 values spread: most then tie, or most are apart."""
    return int(draw.rng.choice([6, 64, 600]))


def _near_ties(draw: Draw) -> Problem:
    base = np.float32(10.0 ** draw.rng.uniform(-0.5, 3.0)) * np.float32(draw.rng.choice([-1, 1]))
    bits = np.full(NUM_EXPERTS, base, np.float32).view(np.uint32)
    bias = from_bits(bits + draw.rng.integers(0, _width(draw), NUM_EXPERTS, np.uint32))
    logits = np.repeat(choose(draw, _BASES, draw.tokens, 1), NUM_EXPERTS, axis=1)
    return Problem(logits, bias, any_scale(draw))


def _near_scores(draw: Draw) -> Problem:
    base = normal(draw, draw.tokens, 1) * np.float32(4.0)
    bits = np.repeat(base, NUM_EXPERTS, axis=1).view(np.uint32)
    return Problem(
        from_bits(bits + draw.rng.integers(0, _width(draw), bits.shape, np.uint32)),
        np.zeros(NUM_EXPERTS, np.float32),
        any_scale(draw),
    )


def _cutoff_ties(draw: Draw) -> Problem:
    """Make a few clear winners, then more equal keys than picks left, at random places."""
    logits = np.full((draw.tokens, NUM_EXPERTS), -4.0, np.float32)
    for row in logits:
        places = draw.rng.permutation(NUM_EXPERTS)
        winners = int(draw.rng.integers(0, TOP_K))
        tied = int(draw.rng.integers(TOP_K - winners + 1, 3 * TOP_K))
        row[places[:winners]] = draw.rng.uniform(1.0, 4.0, winners)
        row[places[winners : winners + tied]] = 0.5
    bias = np.full(NUM_EXPERTS, draw.rng.choice([0.0, 0.125, -1.0]), np.float32)
    return Problem(logits, bias, any_scale(draw))


FAMILIES = (
    Family("all-equal", "every key of a row equal", ("R3", "R4", "R5"), _all_equal),
    Family("ties", "few distinct keys; keys made from zeros of both signs", ("R2", "R3", "R4"), _ties),
    Family("near-ties", "keys that differ in the last bits, by their bias", ("R2", "R3"), _near_ties),
    Family(
        "near-scores",
        "keys that differ in the last bits, by their score",
        ("A3", "A4", "R1", "R3"),
        _near_scores,
    ),
    Family("cutoff-ties", "equal keys on both sides of the eighth pick", ("R3", "R4"), _cutoff_ties),
)
