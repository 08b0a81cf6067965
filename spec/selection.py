"""R1-R6: scores, keys, the eight picks and their weights, for many rows at once."""

from typing import Final

import numpy as np
import numpy.typing as npt

from spec.arithmetic import add_rn, div_full, mul_rn, sigmoid
from spec.constants import NAN_BITS, NUM_EXPERTS, SUM_EPSILON, TOP_K
from spec.values import round_scale

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
Scale = float | np.floating | npt.NDArray[np.floating]
"""One number (any `numbers.Real`) for all problems, or a float array of one a problem."""

_LOWEST: Final = np.int32(-0x80000000)


def score(logits: F32) -> F32:
    """R1: the score of each logit, `spec.arithmetic.sigmoid`; float32 of any shape."""
    return sigmoid(logits)


def key(scores: F32, bias: F32) -> F32:
    """R2: the selection key of each expert, the score plus the correction bias; float32 ``[..., 256]``."""
    return add_rn(scores, bias)


def ordered_key(keys: F32) -> I32:
    """R2: integers that order as the keys do.

    Parameters
    ----------
    keys
        float32, any shape.

    Returns
    -------
    int32, the shape of ``keys``: both zeros are 0, subnormals keep their order, NaN is the largest integer.
    """
    bits = keys.view(np.int32)
    ordered = np.where(bits < 0, _LOWEST - bits, bits)
    return np.where(np.isnan(keys), np.int32(NAN_BITS), ordered)


def select(keys: F32) -> I32:
    """R3, R4: the ids of each row's eight largest keys in the order picked, the lowest id among equal keys.

    Parameters
    ----------
    keys
        float32 ``[..., 256]``.

    Returns
    -------
    int32 ``[..., 8]``.
    """
    # One integer an expert, no two alike: its ordered key, negated to bring the largest first, then its id.
    place = ordered_key(keys).astype(np.int64)
    place *= -NUM_EXPERTS
    place += np.arange(NUM_EXPERTS)
    place.partition(TOP_K - 1, axis=-1)
    picked = np.sort(place[..., :TOP_K], axis=-1)
    return (picked & (NUM_EXPERTS - 1)).astype(np.int32)


def inverse(picked: F32, scale: Scale, renormalize: bool) -> F32:
    """R5: the factor of a row's weights.

    Parameters
    ----------
    picked
        float32 ``[..., 8]``: the unbiased scores in the order picked, which is the order of the sum.
    scale
        Rounded to float32, beyond its range to infinity; an array broadcasts with the leading axes.
    renormalize
        Divide the scale by the sum.

    Returns
    -------
    float32 ``[...]``, or the scale alone where it is not divided.
    """
    factor = _float32_scale(scale)
    if not renormalize:
        return factor
    total = np.zeros(picked.shape[:-1], np.float32)
    for j in range(TOP_K):
        total = add_rn(total, picked[..., j])
    return div_full(factor, add_rn(total, SUM_EPSILON))


def weigh(picked: F32, scale: Scale, renormalize: bool) -> F32:
    """R6: the weights of the picked scores, each times `inverse`; the parameters are those of `inverse`.

    Returns
    -------
    float32 ``[..., 8]``.
    """
    return mul_rn(picked, inverse(picked, scale, renormalize)[..., None])


def route(logits: F32, bias: F32, scale: Scale, renormalize: bool = True) -> tuple[I32, F32]:
    """Return the experts and the weights of every row (R1-R6).

    Parameters
    ----------
    logits
        float32 ``[256]`` or ``[..., b, 256]``: b token rows for each of many independent problems.
    bias
        float32 ``[256]``, or one a problem: ``[..., 256]``, its leading axes those of ``logits`` before b.
    scale
        A real number, or an array of one a problem: ``[...]``.
    renormalize
        R5.

    Returns
    -------
    ids
        int32 ``[8]`` or ``[..., b, 8]``: global expert ids in the order picked.
    weights
        float32 of the same shape.

    Raises
    ------
    ValueError
        A last axis is not 256 long, leading axes do not fit, or the scale is no real number.
    TypeError
        ``logits`` or ``bias`` is no float32 array.
    """
    for name, array in (("logits", logits), ("bias", bias)):
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            raise TypeError(f"{name} must be a float32 array")
        if array.ndim == 0 or array.shape[-1] != NUM_EXPERTS:
            raise ValueError(f"{name} must have shape [..., {NUM_EXPERTS}], not {list(array.shape)}")
    problems = logits.shape[:-2]
    factor = _float32_scale(scale)
    for name, leading in (("bias", bias.shape[:-1]), ("scale", factor.shape)):
        if leading not in ((), problems):
            raise ValueError(f"{name} must have leading axes {list(problems)} or none, not {list(leading)}")
    scores = score(logits)
    keys = key(scores, bias if bias.ndim == 1 else bias[..., None, :])
    ids = select(keys)
    picked = np.take_along_axis(scores, ids, axis=-1)
    return ids, weigh(picked, factor[..., None] if factor.ndim else factor, renormalize)


def _float32_scale(scale: Scale) -> F32:
    """Return the scale as a float32 array; what overflows is infinity."""
    if not isinstance(scale, np.ndarray):
        return np.asarray(round_scale(scale), np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return scale.astype(np.float32)
