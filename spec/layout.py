"""The metadata buffer: where each field of TRT-LLM-gen routing metadata starts, in int32 elements.

Every field starts on 16 bytes. Elements 2 and 3, and everything past what a clause lists, are never
written (M8).
"""

from dataclasses import dataclass
from typing import Final

from spec.constants import MAX_CTAS, MAX_TILE
from spec.values import as_integer, shown

META_PADDED_TOKENS: Final = 0
META_NUM_CTAS: Final = 1
META_CTA_BATCH: Final = 4
META_CTA_LIMIT: Final = META_CTA_BATCH + MAX_CTAS
META_EXPANDED_TO_PERMUTED: Final = META_CTA_LIMIT + MAX_CTAS
META_PERMUTED_TO_TOKEN: Final = META_EXPANDED_TO_PERMUTED + MAX_CTAS


@dataclass(frozen=True)
class Field:
    """One field of the buffer: its name, first element, and the clause that states its content."""

    name: str
    offset: int
    clause: str


FIELDS: Final = (
    Field("padded_tokens", META_PADDED_TOKENS, "M5"),
    Field("num_ctas", META_NUM_CTAS, "M4"),
    Field("unused", META_NUM_CTAS + 1, "M8"),
    Field("cta_batch", META_CTA_BATCH, "M2"),
    Field("cta_limit", META_CTA_LIMIT, "M3"),
    Field("expanded_to_permuted", META_EXPANDED_TO_PERMUTED, "M6"),
    Field("permuted_to_token", META_PERMUTED_TO_TOKEN, "M7"),
)
"""The fields in order: each ends where the next starts, the last at ``metadata_size`` - 1, the guard."""


def metadata_size(tile_n: int) -> int:
    """Elements of the int32 metadata buffer for one tile, the guard element included.

    Parameters
    ----------
    tile_n
        The GEMM's token tile in rows, any integer 1..256 (not bool).

    Raises
    ------
    ValueError
        ``tile_n`` is no integer or outside 1..256.
    """
    return META_PERMUTED_TO_TOKEN + MAX_CTAS * check_tile(tile_n) + 1


def check_tile(tile_n: object) -> int:
    """Return ``tile_n`` as an int in 1..256, or raise a ValueError that names it."""
    tile = as_integer("tile_n", tile_n)
    if not 1 <= tile <= MAX_TILE:
        raise ValueError(f"tile_n must be an integer in 1..{MAX_TILE}, not {shown(tile)}")
    return tile
