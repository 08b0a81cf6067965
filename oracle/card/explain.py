"""One mismatch of the sweep as a failure of `check`: run again by the adapter, shown, and saved to replay."""

from pathlib import Path
from typing import Any, Final

import numpy as np

import spec
from oracle import replay, report
from oracle.card.points import RANGES, problems, ranges
from oracle.check import answer
from oracle.compare import compare, expect
from oracle.compare import explain as difference
from oracle.outcome import Finding
from oracle.plan import Target
from oracle.problem import Batch, Ranges

FAMILY: Final = "sweep"
REPLAYS: Final = Path("replays")
_AREAS: Final = ("ids", "weights", "metadata")


def batch(point: int, problem: int) -> Batch:
    """Return the point's problem alone."""
    unit, r = divmod(point, RANGES)
    tokens, tile = unit // spec.MAX_TILE + 1, unit % spec.MAX_TILE + 1
    made = problems(tokens)
    where = slice(problem, problem + 1)
    offset, count = ranges()[r : r + 1].T
    return Batch(
        family=FAMILY,
        logits=made.logits[where],
        bias=made.bias[where],
        scale=made.scale[where],
        renormalize=bool(problem % 2),
        row_stride=made.row_stride[where],
        ranges=Ranges(offset.copy(), count.copy(), np.array([tile], np.int32)),
    )


def explain(backend: str, example: Any) -> str:
    """Return what is wrong at the point of sweep.cu's record ``example``, and the line that replays it."""
    alone = batch(example.point, example.problem)
    unit, r = divmod(example.point, RANGES)
    offset, count = (int(x) for x in ranges()[r])
    said = (
        f"MISMATCH {backend}: b={unit // spec.MAX_TILE + 1} tile={unit % spec.MAX_TILE + 1} "
        f"experts {offset}+{count}, {_AREAS[example.area]}[{example.index}] "
        f"expected {example.expected:#010x} actual {example.actual:#010x}"
    )
    target = Target(backend, "cuda")
    right = expect(alone)
    given = answer(target, alone, right).outputs
    if not compare(right, given).any():
        return f"{said}\n  did not repeat through the adapter alone: a race between launches?"
    finding = Finding(target, alone, right, difference(alone, right, given))
    path = replay.save(finding, REPLAYS)
    return f"{said}\n{report.failure(finding)}\n  again: python -m oracle replay {path}"
