"""What the lanes of a warp compute together, on ``[warps, 32]`` arrays.

Every function takes the operands, and ``members``: ``None`` when all lanes take part, else uint32 ``[warps,
32]`` with each lane's member mask, 0 for lanes that do not take part. Scalars stand for operands equal in all
lanes. Results are a tuple of ``[warps, 32]`` arrays. A shuffle that reads a lane outside the mask raises
`OutsideMaskError`.
"""

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.alu import popc
from oracle.ptxsim.geometry import WARP

Array = npt.NDArray[Any]

_LANE: Final = np.arange(WARP, dtype=np.int64)
_BITS: Final = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


class OutsideMaskError(Exception):
    """A lane reads a lane that is not in its member mask: its flat position is ``args[0]``."""


def _spread(per_warp: Array) -> Array:
    return per_warp.repeat(WARP).reshape(-1, WARP)


def _source_lanes(mode: str, b: Array, c: Array) -> tuple[Array, Array]:
    """Return each lane's source lane and whether it is in range, after the PTX ISA's pseudo code."""
    bval = (b & np.uint32(31)).astype(np.int64)
    clamp = (c & np.uint32(31)).astype(np.int64)
    segment = ((c >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
    last = (_LANE & segment) | (clamp & ~segment)
    if mode == "up":
        j = _LANE - bval
        valid = j >= last
    elif mode == "down":
        j = _LANE + bval
        valid = j <= last
    elif mode == "bfly":
        j = _LANE ^ bval
        valid = j <= last
    else:
        j = (_LANE & segment) | (bval & ~segment)
        valid = j <= last
    return np.where(valid, j, _LANE), valid


_BLOCKS: Final = {1: "u4", 2: "u8", 4: "c16", 8: "V32", 16: "V64"}
"""Types as wide as some lanes, to exchange them whole."""


@lru_cache(maxsize=64)
def _exchanged(count: int, mask: int) -> npt.NDArray[np.intp]:
    """Return ``0 ^ mask``, ``1 ^ mask``, ...: with 1 these exchange neighbours."""
    return np.arange(count, dtype=np.intp) ^ mask


@lru_cache(maxsize=16)
def _warp_start(count: int) -> npt.NDArray[np.intp]:
    """Return, for each of ``count`` lanes, the first lane of its warp."""
    return np.arange(count, dtype=np.intp) & ~np.intp(WARP - 1)


def _quick(mode: str, a: Array, b: Array) -> Array | None:
    """Shuffle whole warps, unclamped, in the common ways; ``None`` for another way."""
    flat = a.reshape(-1)
    if mode == "bfly" and b.ndim == 0 and (mask := int(b) & (WARP - 1)):
        if mask == 1:
            pairs = flat.view(np.uint64)
            return ((pairs >> np.uint64(32)) | (pairs << np.uint64(32))).view(a.dtype)
        low = mask & -mask
        blocks = flat.view(_BLOCKS[low])
        return blocks.take(_exchanged(len(blocks), mask // low)).view(a.dtype)
    if mode == "idx" and b.ndim:
        return flat.take(_warp_start(a.size) + (b.reshape(-1) & np.uint32(WARP - 1)))
    if mode == "idx":
        return a[:, int(b) & (WARP - 1)].repeat(WARP)
    return None


def _shuffle(mode: str, a: Array, b: Array, c: Array, members: Array | None) -> tuple[Array, Array]:
    if members is None and c.ndim == 0 and c == WARP - 1 and (found := _quick(mode, a, b)) is not None:
        return found.reshape(a.shape), np.broadcast_to(np.True_, a.shape)
    j, valid = _source_lanes(mode, b, c)
    if members is not None:
        full = np.broadcast_to(j, a.shape)
        inside = (members >> full.astype(np.uint32)) & np.uint32(1)
        outside = (members != 0) & (inside == 0)
        if outside.any():
            raise OutsideMaskError(int(np.flatnonzero(outside)[0]))
    if j.ndim == 1:
        return a.take(j, axis=1), np.broadcast_to(valid, a.shape)
    rows = np.arange(0, a.size, WARP, dtype=np.int64)[:, None]
    return a.reshape(-1).take(rows + j), valid


def shuffle_up(a: Array, b: Array, c: Array, members: Array | None) -> tuple[Array, Array]:
    """``shfl.sync.up``."""
    return _shuffle("up", a, b, c, members)


def shuffle_down(a: Array, b: Array, c: Array, members: Array | None) -> tuple[Array, Array]:
    """``shfl.sync.down``."""
    return _shuffle("down", a, b, c, members)


def shuffle_bfly(a: Array, b: Array, c: Array, members: Array | None) -> tuple[Array, Array]:
    """``shfl.sync.bfly``."""
    return _shuffle("bfly", a, b, c, members)


def shuffle_idx(a: Array, b: Array, c: Array, members: Array | None) -> tuple[Array, Array]:
    """``shfl.sync.idx``."""
    return _shuffle("idx", a, b, c, members)


def ballot(a: Array, members: Array | None) -> tuple[Array]:
    """``vote.sync.ballot``."""
    if members is not None:
        a = a & (members != 0)
    packed = np.packbits(a.reshape(-1), bitorder="little").view(np.uint32)
    mask = _spread(packed)
    return (mask if members is None else mask & members,)


def vote_any(a: Array, members: Array | None) -> tuple[Array]:
    """``vote.sync.any``."""
    return (ballot(a, members)[0] != 0,)


def vote_all(a: Array, members: Array | None) -> tuple[Array]:
    """``vote.sync.all``."""
    return (ballot(~a, members)[0] == 0,)


def vote_uni(a: Array, members: Array | None) -> tuple[Array]:
    """``vote.sync.uni``."""
    return (vote_all(a, members)[0] | vote_all(~a, members)[0],)


def _reduce(operation: np.ufunc, neutral: int, a: Array, members: Array | None) -> tuple[Array]:
    if members is None:
        return (_spread(operation.reduce(a, axis=1, dtype=a.dtype)),)
    result = np.empty_like(a)
    for mask in np.unique(members):
        chosen = members == mask
        values = np.where(chosen, a, np.array(neutral).astype(a.dtype))
        np.copyto(result, _spread(operation.reduce(values, axis=1, dtype=a.dtype)), where=chosen)
    return (result,)


def reduce_add(a: Array, members: Array | None) -> tuple[Array]:
    """``redux.sync.add``, modulo 2^32."""
    return _reduce(np.add, 0, a, members)


def reduce_min(a: Array, members: Array | None) -> tuple[Array]:
    """``redux.sync.min``."""
    return _reduce(np.minimum, int(np.iinfo(a.dtype).max), a, members)


def reduce_max(a: Array, members: Array | None) -> tuple[Array]:
    """``redux.sync.max``."""
    return _reduce(np.maximum, int(np.iinfo(a.dtype).min), a, members)


def reduce_and(a: Array, members: Array | None) -> tuple[Array]:
    """``redux.sync.and``."""
    return _reduce(np.bitwise_and, 0xFFFFFFFF, a, members)


def reduce_or(a: Array, members: Array | None) -> tuple[Array]:
    """``redux.sync.or``."""
    return _reduce(np.bitwise_or, 0, a, members)


def reduce_xor(a: Array, members: Array | None) -> tuple[Array]:
    """``redux.sync.xor``."""
    return _reduce(np.bitwise_xor, 0, a, members)


def _members(a: Array, members: Array | None) -> Array:
    return np.full(a.shape, 0xFFFFFFFF, np.uint32) if members is None else members


def match_any(a: Array, members: Array | None) -> tuple[Array]:
    """``match.any.sync``."""
    mask = _members(a, members)
    result = np.zeros(a.shape, np.uint32)
    for lane in range(WARP):
        result |= (a == a[:, lane : lane + 1]) * _BITS[lane]
    return (result & mask,)


def match_all(a: Array, members: Array | None) -> tuple[Array, Array]:
    """``match.all.sync``."""
    mask = _members(a, members)
    same = match_any(a, members)[0] == mask
    return mask * same, same


def elect(lane: Array, members: Array | None) -> tuple[Array, Array]:
    """``elect.sync``: the lowest member lane leads."""
    mask = _members(lane, members)
    lowest = mask & (~mask + np.uint32(1))
    leader = popc(lowest - np.uint32(1))
    return leader, leader == lane
