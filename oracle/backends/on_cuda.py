"""Runs a backend's `route` on the CUDA device, problem by problem, for the adapters whose hosts have one."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from oracle.artifacts import locked
from oracle.problem import Batch, Outputs
from spec.constants import ALIGNMENT
from spec.folders import cache_folder

_WORD_BYTES: Final = 4
_MINIMUM_CAPABILITY: Final = (9, 0)
_SHARED_WORDS: Final = 1 << 28
"""Rows that span more words than this (1 GiB) are laid out by one process of the machine at a time."""


def missing_device() -> str | None:
    """Return why the kernels cannot run on CUDA tensors here, in one line; None if they can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    found = torch.cuda.get_device_capability()
    if found >= _MINIMUM_CAPABILITY:
        return None
    return f"the CUDA device has compute capability {found[0]}.{found[1]}, and the kernels need 9.0"


def route_each(route: Callable[..., None], batch: Batch, outputs: Outputs, device: str = "cuda") -> None:
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
        extra: tuple[Any, ...] = ()
        if batch.ranges is not None and metadata is not None:
            numbers = (batch.ranges.offset, batch.ranges.count, batch.ranges.tile)
            extra = metadata[place], *(int(number[place]) for number in numbers)
        scale = float(batch.scale[place])
        with _with_stride(logits[place], int(batch.row_stride[place])) as rows:
            route(rows, bias[place], ids[place], weights[place], scale, batch.renormalize, *extra)
    outputs.ids[...] = ids.cpu().numpy()
    outputs.weights.view(np.int32)[...] = weights.view(torch.int32).cpu().numpy()
    if outputs.metadata is not None and metadata is not None:
        outputs.metadata[...] = metadata.cpu().numpy()


@contextmanager
def _with_stride(rows: Any, stride: int) -> Iterator[Any]:
    """Lay the rows out in a wider buffer, with NaN between them; at stride 0 they are one row."""
    tokens, experts = rows.shape
    words = (tokens - 1) * stride + experts
    if stride == experts:
        yield rows
    elif words <= _SHARED_WORDS:
        yield _spread(rows, stride, words)
    else:
        import torch

        # Eight rows 2^31 elements apart span 60 GiB: give them back before another process takes as much.
        with locked(cache_folder() / "device-memory.lock"):
            placed = _spread(rows, stride, words)
            yield placed
            torch.cuda.synchronize(rows.device)
            placed.untyped_storage().resize_(0)  # whoever still holds the view
            torch.cuda.empty_cache()


def _spread(rows: Any, stride: int, words: int) -> Any:
    placed = rows.new_full((words,), float("nan")).as_strided(tuple(rows.shape), (stride, 1))
    for row in range(len(rows)):  # one by one: torch refuses to copy into rows that share memory
        placed[row].copy_(rows[row])
    return placed
