"""What is timed on the card: every kernel at its batch sizes, tiles and kinds of input."""

from dataclasses import dataclass
from typing import Final

import numpy as np

import spec
from oracle.problem import F32, Batch, Ranges

BATCHES: Final = (1, 2, 4, 8)
TILES: Final = (1, 8, 64, 256)
NO_METADATA: Final = 0
"""The tile of a point without metadata."""

OURS: Final = ("cute", "triton")
EARLY: Final = {f"{name}-early": name for name in OURS}
"""Our kernels with ``early_dependents=True``: the kernel behind may start before this one is done."""

TIED_TILES: Final = (NO_METADATA, 8)
NATURAL: Final = "natural"
INPUTS: Final = {
    NATURAL: "normal logits, times 2; normal biases, times 0.05",
    "ties": "all keys of a row equal",
    "levels": "four values of logits at random, no bias: ties on both sides of the eighth pick",
    "infinities": "+inf or -inf at random, no bias",
}
"""Kinds of input; all but the first make the selection meet equal keys."""

SCALE: Final = 1.0
_SEED: Final = 20261201


@dataclass(frozen=True)
class Point:
    """One line and column of the tables.

    kernel
        One of `OURS` or `EARLY`, ``vllm``, ``flashinfer``, ``torch``, ``floor``, ``wait`` or ``empty``.
    batch, tile
        b, and the GEMM's token tile or `NO_METADATA`; with metadata all 256 experts are local.
    inputs
        One of `INPUTS`.
    """

    kernel: str
    batch: int
    tile: int = NO_METADATA
    inputs: str = NATURAL

    def __str__(self) -> str:
        tile = f" tile {self.tile}" if self.tile else ""
        inputs = f" {self.inputs}" if self.inputs != NATURAL else ""
        return f"{self.kernel}{tile}{inputs} b={self.batch}"


def points() -> list[Point]:
    """Return every point, in the order of the tables."""
    made = [Point("empty", 1), Point("wait", 1), *(Point("floor", b) for b in BATCHES)]
    made += [Point(kernel, b) for kernel in (*OURS, *EARLY, "vllm", "torch") for b in BATCHES]
    with_metadata = (*OURS, *EARLY, "flashinfer")
    made += [Point(kernel, b, tile) for kernel in with_metadata for tile in TILES for b in BATCHES]
    made += [
        Point(kernel, b, tile, inputs)
        for kernel in OURS
        for inputs in INPUTS
        if inputs != NATURAL
        for tile in TIED_TILES
        for b in BATCHES
    ]
    return made


def problem(point: Point) -> Batch:
    """Return the one problem of a point; points that differ in the kernel alone have the same."""
    kinds = tuple(INPUTS)
    random = np.random.default_rng([_SEED, kinds.index(point.inputs), point.batch])
    logits, bias = _values(point.inputs, random, (point.batch, spec.NUM_EXPERTS))
    ranges = None
    if point.tile:
        ranges = Ranges(*(np.array([number], np.int32) for number in (0, spec.NUM_EXPERTS, point.tile)))
    return Batch(
        family="bench",
        logits=logits[None],
        bias=bias[None],
        scale=np.array([SCALE], np.float32),
        renormalize=True,
        row_stride=np.array([spec.NUM_EXPERTS], np.int64),
        ranges=ranges,
    )


def _values(inputs: str, random: np.random.Generator, shape: tuple[int, int]) -> tuple[F32, F32]:
    logits = random.standard_normal(shape, np.float32) * np.float32(2)
    bias = random.standard_normal(spec.NUM_EXPERTS, np.float32) * np.float32(0.05)
    if inputs == NATURAL:
        return logits, bias
    tied = {
        "ties": np.zeros(shape, np.float32),
        "levels": random.choice(np.array([-1, 0, 0.5, 2], np.float32), shape),
        "infinities": random.choice(np.array([np.inf, -np.inf], np.float32), shape),
    }
    return tied[inputs], np.zeros_like(bias)
