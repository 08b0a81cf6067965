"""The specification behind the door's functions, on CPU tensors.

Tensors are only read through what they offer themselves (`detach`, `numpy`), so this module imports no torch.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from spec.contract import check_prepare, check_route
from spec.permutation import write_metadata
from spec.selection import route as route_arrays

Routing = Callable[[Any, Any, Any, Any, Any, float, int, int, int], None]


def route(
    logits: Any,
    bias: Any,
    ids: Any,
    weights: Any,
    scale: Any,
    renormalize: bool = True,
    metadata: Any = None,
    local_expert_offset: int = 0,
    num_local_experts: int = 0,
    tile_n: int = 0,
    early_dependents: bool = False,
) -> None:
    """Route b tokens on the CPU and write ids, weights and, where asked, the metadata (R1-R6, M1-M8).

    Parameters
    ----------
    logits, bias
        float32 CPU tensors ``[b, 256]`` (1 <= b <= 8, strided rows allowed) and ``[256]``.
    ids, weights
        int32 and float32 CPU tensors ``[b, 8]``, written.
    scale, renormalize
        R5 and R6.
    metadata
        None, or an int32 CPU vector of at least ``metadata_size(tile_n)`` elements, written.
    local_expert_offset, num_local_experts, tile_n
        This rank's experts and the GEMM's token tile; looked at only with metadata.
    early_dependents
        bool, for kernels: no kernel runs here, and none waits for one.

    Raises
    ------
    ValueError
        An argument is outside the contract (`spec.contract`); nothing has been written.
    """
    call = check_route(
        logits, bias, ids, weights, scale, renormalize, metadata,
        local_expert_offset, num_local_experts, tile_n, early_dependents, device_type="cpu",
    )  # fmt: skip
    routing = _routing(call.renormalize)
    routing(logits, bias, ids, weights, metadata, call.scale, call.offset, call.count, call.tile)


def prepare(renormalize: bool = True, early_dependents: bool = False) -> None:
    """Check the arguments; the NumPy routine needs no compilation."""
    check_prepare(False, renormalize, early_dependents)


def compile_routing(
    metadata: bool, renormalize: bool, options: str = "", early_dependents: bool = False
) -> Routing:
    """Return the NumPy routine of one variant.

    Parameters
    ----------
    metadata, renormalize
        The variant.
    options
        This backend has none: the empty string.
    early_dependents
        bool; changes nothing here.

    Returns
    -------
    Routing
        Takes (logits, bias, ids, weights, metadata or None, scale, offset, count, tile), unchecked.

    Raises
    ------
    ValueError
        ``metadata``, ``renormalize`` or ``early_dependents`` is no bool, or ``options`` is not empty.
    """
    check_prepare(metadata, renormalize, early_dependents)
    if options != "":
        raise ValueError(f"options must be the empty string with the spec backend, not {options!r}")
    return _routing(renormalize)


def compiled_routing(metadata: bool, renormalize: bool, early_dependents: bool = False) -> Routing:
    """Return what `compile_routing` returns; there is nothing to cache."""
    return compile_routing(metadata, renormalize, early_dependents=early_dependents)


def _routing(renormalize: bool) -> Routing:
    def routing(
        logits: Any,
        bias: Any,
        ids: Any,
        weights: Any,
        metadata: Any,
        scale: float,
        offset: int,
        count: int,
        tile: int,
    ) -> None:
        # Everything that may raise comes before the first write.
        rows, correction, picks, shares = (t.detach().numpy() for t in (logits, bias, ids, weights))
        buffer = None if metadata is None else metadata.detach().numpy()
        picks[:], shares[:] = route_arrays(rows, correction, np.float32(scale), renormalize)
        if buffer is not None:
            write_metadata(buffer, picks, offset, count, tile)

    return routing
