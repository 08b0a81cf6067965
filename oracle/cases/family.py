"""What a family of problems is, and the counter-based randomness that makes each reproducible alone."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from oracle.problem import F32
from spec.constants import NUM_EXPERTS

_WORD: Final = (1 << 64) - 1


@dataclass(frozen=True)
class Draw:
    """What one problem is made from.

    rng
        The random numbers of this seed, family and index, and of nothing else.
    index
        The number of the problem in its family.
    tokens
        b.
    offset, count
        The rank's experts, for families with metadata; otherwise 0.
    """

    rng: np.random.Generator
    index: int
    tokens: int
    offset: int = 0
    count: int = 0


@dataclass(frozen=True)
class Problem:
    """One problem: logits float32 ``[b, 256]``, bias float32 ``[256]``, scale, elements between rows."""

    logits: F32
    bias: F32
    scale: np.float32
    row_stride: int = NUM_EXPERTS


@dataclass(frozen=True)
class Family:
    """A named generator of problems, and the clauses that its problems press on.

    kind
        ``selection``: run without metadata. ``permutation``: with it, at points of (b, tile, range).
    """

    name: str
    about: str
    clauses: tuple[str, ...]
    make: Callable[[Draw], Problem]
    kind: Literal["selection", "permutation"] = "selection"


def generator(seed: int, family: str, index: int) -> np.random.Generator:
    """Return the random numbers of problem ``index`` of ``family``: Philox keyed by seed and family name."""
    name = int.from_bytes(hashlib.sha256(family.encode()).digest()[:8], "little")
    # As uint64 from the start: NumPy makes a float of a list that straddles 2^63.
    key, counter = np.array([seed & _WORD, name], np.uint64), np.array([0, 0, 0, index & _WORD], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def normal(draw: Draw, *shape: int) -> F32:
    """Return standard normal float32 of ``shape``."""
    return draw.rng.standard_normal(shape, dtype=np.float32)


def magnitude(draw: Draw, low: float, high: float) -> np.float32:
    """Return ten to a uniform power between ``low`` and ``high``."""
    return np.float32(10.0 ** draw.rng.uniform(low, high))


def choose(draw: Draw, values: F32, *shape: int) -> F32:
    """Return elements of ``values`` picked at random, in an array of ``shape``; their bits are kept."""
    return values[draw.rng.integers(0, len(values), shape)]


def from_bits(bits: np.typing.NDArray[np.uint32]) -> F32:
    """Return float32 of the same shape with these bits."""
    return bits.view(np.float32)


def any_scale(draw: Draw) -> np.float32:
    """Return an ordinary positive scale."""
    return magnitude(draw, -1.0, 1.0)
