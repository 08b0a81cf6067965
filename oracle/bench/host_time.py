"""Time of the host per eager call: `route` with every check, and what of it are the checks and the launch."""

import gc
import importlib
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any, Final

from oracle.bench import figures
from oracle.bench.figures import Figure
from oracle.bench.points import NO_METADATA, OURS, SCALE, Point
from oracle.bench.subjects import Tensors, arguments, subject, unavailable
from oracle.report import Reporter
from spec.constants import NUM_EXPERTS
from spec.repeated import RepeatedCheck

BLOCK: Final = 200
"""Calls in a row between two waits for the card: fewer than its queue takes."""

BLOCKS: Final = 40
_TILES: Final = (NO_METADATA, 8)
_BATCH: Final = 8

Key = tuple[str, int, str]
"""Kernel, tile, and which part of a call."""

WHOLE: Final = "route"


def measure(reporter: Reporter) -> dict[Key, Figure]:
    """Return microseconds per call, at b = 8, without metadata and with tile 8."""
    import torch

    calls: dict[Key, Callable[[], object]] = {}
    for kernel in (*OURS, "vllm", "torch"):
        if unavailable(kernel) is None:
            for tile in _TILES if kernel in OURS else (NO_METADATA,):
                calls |= parts(Point(kernel, _BATCH, tile))
    sample = partial(blocks, drain=torch.cuda.synchronize)
    return figures.twice(
        list(calls),
        lambda key: sample(calls[key]),
        "us",
        lambda key, found: reporter.say(f"host, {key[0]} tile {key[1] or 'none'}, {key[2]}: {shown(found)}"),
        reporter,
    )


def parts(point: Point) -> dict[Key, Callable[[], object]]:
    """Return the call of one kernel, and of ours its two parts, ready to be called."""
    whole = subject(point).call
    assert whole is not None
    made: dict[Key, Callable[[], object]] = {(point.kernel, point.tile, WHOLE): whole}
    if point.kernel in OURS:
        host = importlib.import_module(f"impl_{point.kernel}.host")
        tensors = Tensors(point)
        given = arguments(point, tensors)
        made[point.kernel, point.tile, "checks"] = checks(*given)
        launch = host.compiled_routing(bool(point.tile), True)
        placed = (tensors.logits, tensors.bias, tensors.ids, tensors.weights, tensors.metadata)
        numbers = (0, NUM_EXPERTS, point.tile) if point.tile else (0, 0, 0)
        made[point.kernel, point.tile, "launch"] = partial(launch, *placed, SCALE, *numbers)
    return made


def checks(*given: Any) -> Callable[[], object]:
    """Return what checks these arguments as `route` does, again and again, and does nothing with them."""
    import torch

    padded = (*given, None, 0, 0, 0)[:10]
    return partial(RepeatedCheck("cuda", torch), *(*padded, False))


def blocks(call: Callable[[], object], drain: Callable[[], None], size: int = BLOCK) -> list[float]:
    """Return microseconds per call of each of `BLOCKS` blocks of ``size`` calls.

    ``drain`` waits for the card, so that no block pays for the one before; the garbage collector is off.
    """
    taken = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for block in range(BLOCKS + 1):
            drain()
            start = time.perf_counter_ns()
            for _ in repeat(None, size):
                call()
            spent = time.perf_counter_ns() - start
            if block:  # the first one warms up
                taken.append(spent / size / 1e3)
    finally:
        drain()
        if collecting:
            gc.enable()
    return taken


def shown(found: Figure) -> str:
    """Return a figure for a line of text, or why there is none."""
    return found.refused or f"{found.median:.3g} {found.unit}"
