"""How fast the specification is in bulk on one core: printed with ``-rP``, never below a tenth of the target.

The tenth is for loaded machines. What it catches is a loop over rows or problems where one over arrays was.
"""

import time
from collections.abc import Callable

import numpy as np
import pytest

import spec

ROWS, PROBLEMS, ELEMENTS = 2048, 512, 8192


def best(call: Callable[[], object], repeats: int = 5) -> float:
    """Return the seconds of the fastest of a few calls."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def test_route_rows_per_second():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((ROWS // 8, 8, 256), dtype=np.float32)
    bias = rng.standard_normal((ROWS // 8, 256), dtype=np.float32)
    scale = np.ones(ROWS // 8, np.float32)
    rate = ROWS / best(lambda: spec.route(logits, bias, scale))
    print(f"route: {rate:,.0f} rows/s (target 20,000)")
    assert rate > 2_000


@pytest.mark.parametrize("tile", [1, 8, 64, 256], ids=lambda tile: f"tile-{tile}")
def test_metadata_problems_per_second(tile):
    rng = np.random.default_rng(0)
    ids = rng.random((PROBLEMS, 8, 256)).argpartition(8, axis=-1)[..., :8].astype(np.int32)
    buffers = np.zeros((PROBLEMS, spec.metadata_size(tile)), np.int32)
    full = [np.full(PROBLEMS, value, np.int32) for value in (0, 256, tile)]
    rate = PROBLEMS / best(lambda: spec.write_metadata_bulk(buffers, ids, *full))
    print(f"metadata: {rate:,.0f} problems/s at tile {tile} (target 20,000 at tile 8)")
    assert rate > 2_000


@pytest.mark.parametrize("name", ["ex2_approx", "ex2_approx_ftz", "rcp_approx", "div_full", "sigmoid"])
def test_arithmetic_nanoseconds_per_element(name):
    x = np.random.default_rng(0).uniform(0.5, 20.0, ELEMENTS).astype(np.float32)
    function = getattr(spec, name)
    operands = (x, x) if name == "div_full" else (x,)
    nanoseconds = best(lambda: function(*operands), repeats=20) / ELEMENTS * 1e9
    print(f"{name}: {nanoseconds:.1f} ns an element, {ELEMENTS} at a time")
    assert nanoseconds < 1_000
