"""Families of problems: `FAMILIES` names them, `batch` makes problems of one.

Every problem follows from (seed, family, index, b, range) alone, so a failing one can be made again without
the others. The families lie one file a kind: scores, ties, biases, calls, permuting, known.
"""

from typing import Final

import numpy as np

from oracle.cases import biases, calls, known, permuting, scores, ties
from oracle.cases.family import Draw, Family, generator
from oracle.problem import I64, Batch, Ranges

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        known.SELECTION,
        *scores.FAMILIES,
        *ties.FAMILIES,
        *biases.FAMILIES,
        *calls.FAMILIES,
        known.METADATA,
        *permuting.FAMILIES,
    )
}
"""Every family by its name, in the order of the table that `check` prints."""


def batch(
    family: Family, seed: int, index: I64, tokens: int, renormalize: bool, ranges: Ranges | None = None
) -> Batch:
    """Make the problems ``index`` of ``family``.

    Parameters
    ----------
    family
        One of `FAMILIES`.
    seed, index
        Name the problems; int64 ``[L]``.
    tokens, renormalize
        b and the variant, the same for all.
    ranges
        The metadata arguments of a permutation family, otherwise None.
    """
    problems = []
    for place, number in enumerate(index):
        offset, count = (0, 0) if ranges is None else (int(ranges.offset[place]), int(ranges.count[place]))
        draw = Draw(generator(seed, family.name, int(number)), int(number), tokens, offset, count)
        with np.errstate(all="ignore"):
            problems.append(family.make(draw))
    return Batch(
        family=family.name,
        logits=np.stack([problem.logits for problem in problems]),
        bias=np.stack([problem.bias for problem in problems]),
        scale=np.array([problem.scale for problem in problems], np.float32),
        renormalize=renormalize,
        row_stride=np.array([problem.row_stride for problem in problems], np.int64),
        ranges=ranges,
        seed=seed,
        index=index,
    )
