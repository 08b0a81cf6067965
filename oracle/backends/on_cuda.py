"""Runs a backend's `route` on the CUDA device, problem by problem, for the adapters whose hosts have one."""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from oracle.problem import Batch, Outputs
from spec.constants import ALIGNMENT

_WORD_BYTES = 4


def missing_device() -> str | None:
    """Why no CUDA tensor can be made here, in one line; None if one can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "torch sees no CUDA device"


def route_each(
    route: Callable[..., None], batch: Batch, outputs: Outputs, device: str = "cuda"
) -> None:
    """Call ``route`` once a problem on copies of its tensors, and copy the outputs back.

    Parameters
    ----------
    route
        The function of the door.
    batch, outputs
        The problems and their poisoned outputs, which are also what the device's buffers start from.
    device
        Where the copies lie.
    """
    import torch

    def upload(array: Any) -> Any:
        return torch.from_numpy(array).to(device, copy=True)

    logits, bias, ids, weights = (upload(a) for a in (batch.logits, batch.bias, outputs.ids, outputs.weights))
    metadata = None
    if outputs.metadata is not None:
        problems, size = outputs.metadata.shape
        words = ALIGNMENT // _WORD_BYTES
        pitch = -(-size // words) * words  # every problem's buffer starts on 16 bytes
        metadata = torch.empty((problems, pitch), dtype=torch.int32, device=device)[:, :size]
        metadata.copy_(torch.from_numpy(outputs.metadata))
    for place in range(len(batch)):
        rows = _with_stride(logits[place], int(batch.row_stride[place]))
        extra: tuple[Any, ...] = ()
        if batch.ranges is not None and metadata is not None:
            numbers = (batch.ranges.offset, batch.ranges.count, batch.ranges.tile)
            extra = metadata[place], *(int(number[place]) for number in numbers)
        scale = float(batch.scale[place])
        route(rows, bias[place], ids[place], weights[place], scale, batch.renormalize, *extra)
    outputs.ids[...] = ids.cpu().numpy()
    outputs.weights.view(np.int32)[...] = weights.view(torch.int32).cpu().numpy()
    if outputs.metadata is not None and metadata is not None:
        outputs.metadata[...] = metadata.cpu().numpy()


def _with_stride(rows: Any, stride: int) -> Any:
    """Return the rows as they lie in a wider buffer, with NaN between them; at stride 0 they are one row."""
    tokens, experts = rows.shape
    if stride == experts:
        return rows
    wide = rows.new_full(((tokens - 1) * stride + experts,), float("nan"))
    placed = wide.as_strided((tokens, experts), (stride, 1))
    for row in range(tokens):  # one by one: torch refuses to copy into rows that share memory
        placed[row].copy_(rows[row])
    return placed
