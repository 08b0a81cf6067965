"""M1-M8: the permutation metadata of TRT-LLM-gen grouped GEMMs, for many problems at once.

A route is one pick of one token. Below, P is the number of problems, b their tokens; arrays over experts are
indexed by the local id, arrays over routes are ``[P, b, 8]``.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from spec.constants import MAX_TILE, MAX_TOKENS, NUM_EXPERTS, TOP_K
from spec.contract import check_range
from spec.layout import (
    META_CTA_BATCH,
    META_CTA_LIMIT,
    META_EXPANDED_TO_PERMUTED,
    META_NUM_CTAS,
    META_PADDED_TOKENS,
    META_PERMUTED_TO_TOKEN,
    check_tile,
    metadata_size,
)

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer]

_ELSEWHERE: Final = NUM_EXPERTS
"""The local id of an expert of another rank: a 257th entry of the counts, dropped after counting."""


@dataclass(frozen=True)
class Metadata:
    """The fields of one problem's metadata, each exactly as long as it is written.

    padded_tokens, num_ctas
        M5, M4.
    cta_batch, cta_limit
        M2, M3: int32 ``[num_ctas]``.
    expanded_to_permuted
        M6: int32 ``[8 b]``.
    permuted_to_token
        M7: int32 ``[padded_tokens]``.
    """

    padded_tokens: int
    num_ctas: int
    cta_batch: I32
    cta_limit: I32
    expanded_to_permuted: I32
    permuted_to_token: I32


def metadata(ids: Integers, local_expert_offset: int, num_local_experts: int, tile_n: int) -> Metadata:
    """Return the metadata of one problem (M1-M8); the parameters are those of `write_metadata`."""
    buffer = np.empty(metadata_size(tile_n), np.int32)
    write_metadata(buffer, ids, local_expert_offset, num_local_experts, tile_n)
    padded, ctas = int(buffer[META_PADDED_TOKENS]), int(buffer[META_NUM_CTAS])

    def field(start: int, length: int) -> I32:
        return buffer[start : start + length]

    return Metadata(
        padded_tokens=padded,
        num_ctas=ctas,
        cta_batch=field(META_CTA_BATCH, ctas),
        cta_limit=field(META_CTA_LIMIT, ctas),
        expanded_to_permuted=field(META_EXPANDED_TO_PERMUTED, ids.size),
        permuted_to_token=field(META_PERMUTED_TO_TOKEN, padded),
    )


def write_metadata(
    buffer: I32, ids: Integers, local_expert_offset: int, num_local_experts: int, tile_n: int
) -> None:
    """Write one problem's metadata into a vector, and touch no other element of it (M1-M8).

    Parameters
    ----------
    buffer
        int32 ``[n]``, n at least ``metadata_size(tile_n)``; written.
    ids
        Integers ``[b, 8]``, 1 <= b <= 8: global expert ids 0..255, eight different ones a row.
    local_expert_offset, num_local_experts
        This rank's experts: offset >= 0, count >= 1, offset + count <= 256.
    tile_n
        The GEMM's token tile, 1..256.

    Raises
    ------
    ValueError
        An argument is outside its range; nothing has been written.
    """
    tile = check_tile(tile_n)
    offset, count = check_range(local_expert_offset, num_local_experts)
    for name, array, axes in (("buffer", buffer, 1), ("ids", ids, 2)):
        if not isinstance(array, np.ndarray) or array.ndim != axes:
            raise ValueError(f"{name} must be an array of {axes} axes")
    write_metadata_bulk(buffer[None], ids[None], np.array([offset]), np.array([count]), np.array([tile]))


def write_metadata_bulk(
    buffers: I32, ids: Integers, offset: Integers, count: Integers, tile: Integers
) -> None:
    """Write the metadata of P problems, each with its own range and tile (M1-M8).

    Parameters
    ----------
    buffers
        int32 ``[P, n]``, n at least `metadata_size` of the largest tile; written.
    ids
        Integers ``[P, b, 8]``, 1 <= b <= 8: global expert ids 0..255, eight different ones a row.
    offset, count, tile
        Integers ``[P]``: offset >= 0, count >= 1, offset + count <= 256, tile 1..256.

    Raises
    ------
    ValueError
        An argument is outside its range; nothing has been written.
    """
    routes, begin, experts, rows = (
        _integers(name, array)
        for name, array in (("ids", ids), ("offset", offset), ("count", count), ("tile", tile))
    )
    _check(buffers, routes, begin, experts, rows)
    if not len(routes):
        return
    local = local_ids(routes, begin, experts)
    counts, earlier = count_tokens(local)
    ctas, first = split_into_ctas(counts, rows)
    total = num_ctas(ctas)
    padded = padded_tokens(total, rows)
    problem, cta, expert = list_ctas(ctas, total)
    permuted = expanded_to_permuted(local, earlier, first, rows)
    per_route = permuted.reshape(len(permuted), -1)

    # M8: these assignments, and no others, reach the buffers.
    buffers[:, META_PADDED_TOKENS] = padded
    buffers[:, META_NUM_CTAS] = total
    buffers[problem, META_CTA_BATCH + cta] = expert  # M2
    buffers[problem, META_CTA_LIMIT + cta] = cta_limit(problem, cta, expert, counts, first, rows)
    buffers[:, META_EXPANDED_TO_PERMUTED : META_EXPANDED_TO_PERMUTED + per_route.shape[1]] = per_route
    write_permuted_to_token(buffers, permuted, padded)


def local_ids(ids: I64, offset: I64, count: I64) -> I64:
    """M1: the local id of each route's expert, `NUM_EXPERTS` where it is another rank's; ``[P, b, 8]``."""
    local = ids - offset[:, None, None]
    local[(local < 0) | (local >= count[:, None, None])] = _ELSEWHERE
    return local


def count_tokens(local: I64) -> tuple[I64, I64]:
    """M1: how many tokens picked each local expert, ``[P, 256]``; M6: how many earlier, ``[P, b, 8]``."""
    problems, tokens, _ = local.shape
    counts = np.zeros((problems, NUM_EXPERTS + 1), np.int64)
    earlier = np.empty_like(local)
    problem = np.arange(problems)[:, None]
    for t in range(tokens):
        earlier[:, t] = counts[problem, local[:, t]]
        counts[problem, local[:, t]] += 1
    return counts[:, :NUM_EXPERTS], earlier


def split_into_ctas(counts: I64, tile: I64) -> tuple[I64, I64]:
    """M1: the CTAs of each local expert, and its first CTA, the exclusive prefix sum; ``[P, 256]`` each."""
    ctas = (counts + (tile[:, None] - 1)) // tile[:, None]
    return ctas, np.asarray(ctas.cumsum(axis=1) - ctas)


def list_ctas(ctas: I64, total: I64) -> tuple[I64, I64, I64]:
    """M2: problem, number and local expert of every CTA, as three flat lists."""
    problem, expert = np.nonzero(ctas)
    repeats = ctas[problem, expert]
    problem, expert = np.repeat(problem, repeats), np.repeat(expert, repeats)
    before = np.cumsum(total) - total
    return problem, np.arange(len(problem)) - before[problem], expert


def cta_limit(problem: I64, cta: I64, expert: I64, counts: I64, first: I64, tile: I64) -> I64:
    """M3: the row limit of every listed CTA: its end, or its expert's last row if that comes first."""
    rows = tile[problem]
    last = first[problem, expert] * rows + counts[problem, expert]
    limit: I64 = np.minimum((cta + 1) * rows, last)
    return limit


def num_ctas(ctas: I64) -> I64:
    """M4: the CTAs of all local experts; ``[P]``."""
    return np.asarray(ctas.sum(axis=1))


def padded_tokens(total: I64, tile: I64) -> I64:
    """M5: the rows of all CTAs, padding included; ``[P]``."""
    return total * tile


def expanded_to_permuted(local: I64, earlier: I64, first: I64, tile: I64) -> I64:
    """M6: the permuted row of each route, -1 where its expert is another rank's; ``[P, b, 8]``."""
    problem = np.arange(len(local))[:, None, None]
    start = first[problem, np.minimum(local, NUM_EXPERTS - 1)] * tile[:, None, None]
    return np.where(local == _ELSEWHERE, -1, start + earlier)


def write_permuted_to_token(buffers: I32, permuted: I64, padded: I64) -> None:
    """M7: write the token of each row that holds a route, and -1 into the other rows of every CTA."""
    longest = int(padded.max())
    rows = buffers[:, META_PERMUTED_TO_TOKEN : META_PERMUTED_TO_TOKEN + longest]
    np.copyto(rows, -1, where=np.arange(longest) < padded[:, None])
    problem, token, pick = np.nonzero(permuted >= 0)
    rows[problem, permuted[problem, token, pick]] = token


def _integers(name: str, array: Integers) -> I64:
    if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be an integer array")
    return array.astype(np.int64)


def _check(buffers: I32, ids: I64, offset: I64, count: I64, tile: I64) -> None:
    if ids.ndim != 3 or ids.shape[2] != TOP_K or not 1 <= ids.shape[1] <= MAX_TOKENS:
        raise ValueError(f"ids must be [P, b, {TOP_K}], 1 <= b <= {MAX_TOKENS}, not {list(ids.shape)}")
    problems = len(ids)
    for name, array in (("offset", offset), ("count", count), ("tile", tile)):
        if array.shape != (problems,):
            raise ValueError(f"{name} must have shape [{problems}], one a problem, not {list(array.shape)}")
    ordered = np.sort(ids, axis=-1)
    _require("ids", "global expert ids in 0..255", ids, (ids >= 0) & (ids < NUM_EXPERTS))
    _require("ids", "eight different experts a row", ids, (ordered[..., 1:] != ordered[..., :-1]).all(-1))
    _require("tile", f"1..{MAX_TILE}", tile, (tile >= 1) & (tile <= MAX_TILE))
    _require("offset", f"0..{NUM_EXPERTS - 1}", offset, (offset >= 0) & (offset < NUM_EXPERTS))
    fits = (count >= 1) & (count <= NUM_EXPERTS - offset)
    _require("count", f"1..{NUM_EXPERTS} - offset", count, fits)
    if not isinstance(buffers, np.ndarray) or buffers.dtype != np.int32 or buffers.ndim != 2:
        raise ValueError("buffers must be an int32 array [P, n]")
    needed = metadata_size(int(tile.max(initial=1)))
    if len(buffers) != problems or buffers.shape[1] < needed:
        raise ValueError(f"buffers must be [{problems}, {needed} or more], not {list(buffers.shape)}")
    if not buffers.flags.writeable:
        raise ValueError("buffers must be writable")


def _require(name: str, rule: str, array: I64, holds: npt.NDArray[np.bool_]) -> None:
    if not holds.all():
        problem = int(np.argwhere(~holds)[0][0])
        raise ValueError(f"{name} must be {rule}, not {array[problem].tolist()} (problem {problem})")
