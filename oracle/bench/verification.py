"""The verification's own figures, which need no card: simulator and specification, in a second of one core.

Times are of the processor, not of the clock on the wall: both are NumPy on one core.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

import spec
from oracle import backends, cases
from oracle.bench import figures
from oracle.bench.figures import Figure
from oracle.bench.host_time import shown
from oracle.bench.points import OURS
from oracle.problem import Batch, Outputs, Ranges
from oracle.report import Reporter

LAUNCHES: Final = 256
"""Problems of one simulated batch, b = 8."""

ROWS: Final = 2048
_TOKENS: Final = 8
_TILE: Final = 8
_SAMPLES: Final = 7

Key = tuple[str, str]
"""What is measured, and the unit of its rate."""


def measure(reporter: Reporter) -> dict[Key, Figure]:
    """Return rates: simulated launches, rows of R1-R6, buffers of M1-M8, elements of A7."""
    work: dict[Key, tuple[int, Callable[[], object]]] = {}
    for kernel in OURS:
        if backends.unavailable(kernel, "sim") is None:
            for name, batch in (("plain", _plain()), (f"metadata, tile {_TILE}", _permuting())):
                key = f"simulator, {kernel}, {name}, b=8", "launches/s"
                work[key] = LAUNCHES, partial(_simulate, kernel, batch)
    work |= _specification()
    found = figures.twice(list(work), lambda key: rates(*work[key]), "/s", progress=reporter)
    named = {key: _with_unit(figure, key[1]) for key, figure in found.items()}
    for (what, _), figure in named.items():
        reporter.say(f"{what}: {shown(figure)}")
    return named


def rates(amount: int, run: Callable[[], object]) -> list[float]:
    """Return the amount per processor second of a few runs, after one that does not count."""
    run()
    made = []
    for _ in range(_SAMPLES):
        start = time.process_time_ns()
        run()
        made.append(amount / max(time.process_time_ns() - start, 1) * 1e9)
    return made


def _with_unit(found: Figure, unit: str) -> Figure:
    return Figure(unit, found.first, found.second, found.median, found.tries)


def _plain() -> Batch:
    return cases.batch(cases.FAMILIES["random-scales"], 0, np.arange(LAUNCHES), _TOKENS, True)


def _permuting() -> Batch:
    numbers = (np.full(LAUNCHES, number, np.int32) for number in (0, spec.NUM_EXPERTS, _TILE))
    return cases.batch(
        cases.FAMILIES["permute-natural"], 0, np.arange(LAUNCHES), _TOKENS, True, Ranges(*numbers)
    )


def _simulate(kernel: str, batch: Batch) -> None:
    backends.get(kernel).run(batch, Outputs.poisoned(batch), "sim")


def _specification() -> dict[Key, tuple[int, Callable[[], object]]]:
    random = np.random.default_rng(0)
    problems = ROWS // _TOKENS
    logits = random.standard_normal((problems, _TOKENS, spec.NUM_EXPERTS), np.float32)
    bias = random.standard_normal((problems, spec.NUM_EXPERTS), np.float32)
    scale = np.ones(problems, np.float32)
    ids, _ = spec.route(logits, bias, scale, True)
    buffers = np.zeros((problems, spec.metadata_size(_TILE)), np.int32)
    numbers: list[Any] = [np.full(problems, number, np.int32) for number in (0, spec.NUM_EXPERTS, _TILE)]
    return {
        ("specification, R1-R6", "rows/s"): (ROWS, partial(spec.route, logits, bias, scale, True)),
        (f"specification, M1-M8, tile {_TILE}, b=8", "buffers/s"): (
            problems,
            partial(spec.write_metadata_bulk, buffers, ids, *numbers),
        ),
        ("specification, A7", "elements/s"): (logits.size, partial(spec.sigmoid, logits)),
    }
