"""R1-R6: scores, keys, the eight picks and their weights, for many rows at once."""

from typing import Final

import numpy as np
import numpy.typing as npt

from spec.arithmetic import add_rn, div_full, mul_rn, sigmoid
from spec.constants import NUM_EXPERTS, SUM_EPSILON, TOP_K

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

_NAN_KEY: Final = 0x7FFFFFFF


def ordered_key(key: F32) -> I32:
    """R2: integers that order as the keys do.

    Parameters
    ----------
    key
        float32, any shape.

    Returns
    -------
    int32, the shape of ``key``: -0.0 and +0.0 are 0, subnormals keep their order, every NaN is the largest integer.
    """
    bits = key.view(np.int32) if key.ndim else key.reshape(1).view(np.int32).reshape(())
    ordered = np.where(bits < 0, np.int32(-0x80000000) - bits, bits)
    return np.where(np.isnan(key), np.int32(_NAN_KEY), ordered)


def select(key: F32) -> I32:
    """R3 and R4: the ids of the eight largest keys of each row in the order picked, the lowest id among equals.

    Parameters
    ----------
    key
        float32 ``[..., 256]``.

    Returns
    -------
    int32 ``[..., 8]``.
    """
    # One integer a key, no two alike: its ordered key, negated so that the largest comes first, then its expert id.
    rank = ordered_key(key).astype(np.int64)
    rank *= -NUM_EXPERTS
    rank += np.arange(NUM_EXPERTS)
    rank.partition(TOP_K - 1, axis=-1)
    picked = np.sort(rank[..., :TOP_K], axis=-1)
    return (picked & (NUM_EXPERTS - 1)).astype(np.int32)


def weigh(picked: F32, scale: npt.ArrayLike, renormalize: bool) -> F32:
    """R5 and R6: the weights of picked scores.

    Parameters
    ----------
    picked
        float32 ``[..., 8]``: the unbiased scores in the order picked.
    scale
        A number or float32 ``[...]``.
    renormalize
        Divide by the sum of the row's picked scores.

    Returns
    -------
    float32 ``[..., 8]``.
    """
    with np.errstate(all="ignore"):
        inverse = np.asarray(scale, np.float32)
    if renormalize:
        total = np.zeros(picked.shape[:-1], np.float32)
        for j in range(TOP_K):
            total = add_rn(total, picked[..., j])
        inverse = div_full(inverse, add_rn(total, SUM_EPSILON))
    return mul_rn(picked, inverse[..., None])


def route(logits: F32, bias: F32, scale: npt.ArrayLike, renormalize: bool = True) -> tuple[I32, F32]:
    """Return the experts and routing weights of each row (R1-R6).

    Parameters
    ----------
    logits
        float32 ``[256]`` or ``[..., b, 256]``: b token rows of independent problems.
    bias
        float32 ``[256]``, or one a problem: ``[..., 256]`` over the leading axes of ``logits``.
    scale
        A number, or one a problem: ``[...]``; rounded to float32, beyond its range to infinity.
    renormalize
        R5.

    Returns
    -------
    ids
        int32 ``[..., b, 8]``, or ``[8]``: global expert ids in the order picked.
    weights
        float32 of the same shape.

    Raises
    ------
    ValueError
        A last axis is not 256 long, or the leading axes do not fit.
    """
    for name, array in (("logits", logits), ("bias", bias)):
        if array.ndim == 0 or array.shape[-1] != NUM_EXPERTS:
            raise ValueError(f"{name} must be [..., {NUM_EXPERTS}], not {list(array.shape)}")
    score = sigmoid(logits)
    key = add_rn(score, bias if bias.ndim == 1 else bias[..., None, :])
    ids = select(key)
    picked = np.take_along_axis(score, ids, axis=-1)
    with np.errstate(all="ignore"):
        factor = np.asarray(scale, np.float32)
    return ids, weigh(picked, factor[..., None] if factor.ndim else factor, renormalize)
