"""M1-M8: the permutation metadata of TRT-LLM-gen grouped GEMMs, for many problems at once."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spec.constants import MAX_CTAS, MAX_TILE, MAX_TOKENS, NUM_EXPERTS, TOP_K
from spec.layout import (
    META_CTA_BATCH,
    META_CTA_LIMIT,
    META_EXPANDED_TO_PERMUTED,
    META_NUM_CTAS,
    META_PADDED_TOKENS,
    META_PERMUTED_TO_TOKEN,
    metadata_size,
)

I32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Metadata:
    """The fields of one problem's metadata, each exactly as long as it is written (M8).

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


def metadata(ids: I32, local_expert_offset: int, num_local_experts: int, tile_n: int) -> Metadata:
    """Return the metadata of one problem."""
    buffer = np.zeros(metadata_size(tile_n), np.int32)
    write_metadata(buffer, ids, local_expert_offset, num_local_experts, tile_n)
    padded, ctas = int(buffer[META_PADDED_TOKENS]), int(buffer[META_NUM_CTAS])
    lengths = {META_CTA_BATCH: ctas, META_CTA_LIMIT: ctas, META_EXPANDED_TO_PERMUTED: ids.size,
               META_PERMUTED_TO_TOKEN: padded}
    return Metadata(padded, ctas, *(buffer[at:at + n] for at, n in lengths.items()))


def write_metadata(buffer: I32, ids: I32, local_expert_offset: int, num_local_experts: int, tile_n: int) -> None:
    """Write one problem's metadata into an int32 vector, and nothing else (M8)."""
    write_metadata_bulk(buffer[None], ids[None], np.array([local_expert_offset], np.int32),
                        np.array([num_local_experts], np.int32), np.array([tile_n], np.int32))


def write_metadata_bulk(buffers: I32, ids: I32, offset: I32, count: I32, tile: I32) -> None:
    """Write the metadata of P problems, each with its own range and tile."""
    problems, tokens, _ = ids.shape
    p = np.arange(problems)
    local = ids - offset[:, None, None]
    is_local = (local >= 0) & (local < count[:, None, None])
    slot = np.where(is_local, local, NUM_EXPERTS)
    counts = np.zeros((problems, NUM_EXPERTS + 1), np.int32)
    rank = np.empty_like(slot)
    for t in range(tokens):
        rank[:, t] = counts[p[:, None], slot[:, t]]
        counts[p[:, None], slot[:, t]] += 1
    counts = counts[:, :NUM_EXPERTS]
    t_ = tile[:, None]
    ctas = (counts + t_ - 1) // t_
    ends = np.cumsum(ctas, axis=1, dtype=np.int32)
    first = ends - ctas
    total = ends[:, -1]
    buffers[:, META_PADDED_TOKENS] = total * tile
    buffers[:, META_NUM_CTAS] = total
    row_p, e = np.nonzero(ctas)
    n = ctas[row_p, e]
    row_p, e = np.repeat(row_p, n), np.repeat(e, n)
    c = np.arange(len(row_p)) - np.repeat(np.cumsum(total) - total, total)
    buffers[row_p, META_CTA_BATCH + c] = e
    buffers[row_p, META_CTA_LIMIT + c] = np.minimum((c + 1) * tile[row_p], first[row_p, e] * tile[row_p] + counts[row_p, e])
    firstx = np.concatenate([first, np.zeros((problems, 1), np.int32)], axis=1)
    row = np.where(is_local, firstx[p[:, None, None], slot] * tile[:, None, None] + rank, -1)
    buffers[:, META_EXPANDED_TO_PERMUTED:META_EXPANDED_TO_PERMUTED + tokens * TOP_K] = row.reshape(problems, -1)
    padded = total * tile
    most = int(padded.max(initial=0))
    area = buffers[:, META_PERMUTED_TO_TOKEN:META_PERMUTED_TO_TOKEN + most]
    np.copyto(area, -1, where=np.arange(most) < padded[:, None])
    where = np.nonzero(is_local)
    buffers[where[0], META_PERMUTED_TO_TOKEN + row[where]] = where[1]
