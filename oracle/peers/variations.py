"""What published kernels may do otherwise, as the expectation that their answer is then held to, bit for bit.

Each function takes a batch, the specification's outputs and a kernel's, and returns the outputs that are
right for this kernel: where a variation is permitted, what the kernel answered, and what follows from that.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

import spec
from oracle.problem import F32, I32, Batch, Outputs

ULPS: Final = 4
"""How far apart two keys must be for their order to count, in units of the last place of the larger, or of 1.

Another sigmoid is off by units of the last place of 1, not of its result.
"""

_LARGEST: Final = float(np.finfo(np.float32).max)

Mask = npt.NDArray[np.bool_]


def ids_given(batch: Batch, expected: Outputs, actual: Outputs) -> Outputs:
    """Hold a kernel that is given the ids to the metadata (M1-M8) and to untouched ids and weights."""
    untouched = expected.blank(len(batch))
    return Outputs(untouched.ids, untouched.weights, expected.metadata)


def rows_undefined(batch: Batch, expected: Outputs, actual: Outputs) -> Outputs:
    """Let rows with a NaN key, or fewer than eight keys above -inf, have any ids and weights."""
    mask = _undefined(batch)[..., None]
    weights = np.where(mask, actual.weights.view(np.int32), expected.weights.view(np.int32)).view(np.float32)
    return Outputs(np.where(mask, actual.ids, expected.ids), weights, expected.metadata)


def ids_reported(batch: Batch, expected: Outputs, actual: Outputs) -> Outputs:
    """Hold a kernel with another sigmoid to the metadata of its own picks, its weights to nothing.

    A row's picks are permitted (R3) if no expert that comes later, or is not picked, has a key larger by more
    than `ULPS`, and if experts with the same logit and bias come in the order of their ids. Rows as in
    `rows_undefined` may have any picks, and their problem any metadata.
    """
    undefined = _undefined(batch)
    close = (actual.ids != expected.ids).any(axis=-1) & ~undefined
    close[close] = _orders_close_keys(batch, close, actual.ids[close])
    ids = np.where((close | undefined)[..., None], actual.ids, expected.ids)
    metadata = expected.blank(len(batch)).metadata
    if batch.ranges is not None and metadata is not None and actual.metadata is not None:
        lost = undefined.any(axis=1)
        metadata[lost] = actual.metadata[lost]
        held, ranges = metadata[~lost], batch.ranges
        spec.write_metadata_bulk(
            held, ids[~lost], ranges.offset[~lost], ranges.count[~lost], ranges.tile[~lost]
        )
        metadata[~lost] = held
    return Outputs(ids, actual.weights, metadata)


def _keys(logits: F32, bias: F32) -> F32:
    return spec.add_rn(spec.sigmoid(logits), np.broadcast_to(bias, logits.shape))


def _undefined(batch: Batch) -> Mask:
    """Which rows, bool ``[L, b]``, the published kernels leave undefined."""
    keys = _keys(batch.logits, batch.bias[:, None])
    undefined: Mask = np.isnan(keys).any(axis=-1) | ((keys > -np.inf).sum(axis=-1) < spec.TOP_K)
    return undefined


def _orders_close_keys(batch: Batch, rows: Mask, ids: I32) -> Mask:
    """Whether the picks of each of the batch's ``rows``, int32 ``[R, 8]``, are permitted; bool ``[R]``."""
    logits = batch.logits[rows]
    bias = np.broadcast_to(batch.bias[:, None], batch.logits.shape)[rows]
    experts = np.arange(spec.NUM_EXPERTS)
    permitted: Mask = np.all((ids >= 0) & (ids < spec.NUM_EXPERTS), axis=-1)
    ids = np.where(permitted[:, None], ids, 0)
    keys = np.clip(_keys(logits, bias).astype(np.float64), -_LARGEST, _LARGEST)
    unit = np.spacing(np.clip(np.abs(keys), 1.0, _LARGEST / 2).astype(np.float32)).astype(np.float64)
    words = logits.view(np.int32).astype(np.int64) << 32 | bias.view(np.uint32)
    left = np.ones(keys.shape, bool)
    for pick in range(spec.TOP_K):
        mine = ids[:, pick, None]
        permitted &= np.take_along_axis(left, mine, axis=1)[:, 0]
        np.put_along_axis(left, mine, False, axis=1)
        key, own = np.take_along_axis(keys, mine, axis=1), np.take_along_axis(unit, mine, axis=1)
        larger = keys - key > ULPS * np.maximum(unit, own)
        earlier = (words == np.take_along_axis(words, mine, axis=1)) & (experts < mine)
        permitted &= ~(left & (larger | earlier)).any(axis=-1)
    return permitted
