"""Section 3's table: where each field of the metadata buffer starts."""

import numpy as np
import pytest

import spec


def test_offsets_are_those_of_the_layout():
    assert [(field.name, field.offset, field.clause) for field in spec.FIELDS] == [
        ("padded_tokens", 0, "M5"),
        ("num_ctas", 1, "M4"),
        ("unused", 2, "M8"),
        ("cta_batch", 4, "M2"),
        ("cta_limit", 68, "M3"),
        ("expanded_to_permuted", 132, "M6"),
        ("permuted_to_token", 196, "M7"),
    ]


def test_every_list_starts_on_16_bytes():
    lists = [field for field in spec.FIELDS if field.name not in {"padded_tokens", "num_ctas", "unused"}]
    assert [field.offset * 4 % spec.ALIGNMENT for field in lists] == [0] * 4


@pytest.mark.parametrize("tile", [1, 7, 8, 256, np.int32(5)], ids=repr)
def test_size_is_header_rows_and_guard(tile):
    assert spec.metadata_size(tile) == 196 + 64 * int(tile) + 1
    assert type(spec.metadata_size(tile)) is int


@pytest.mark.parametrize(
    "tile", [0, 257, -1, True, np.True_, 8.0, "8", None, 10**5000], ids=lambda tile: type(tile).__name__
)
def test_a_tile_outside_1_to_256_is_named(tile):
    with pytest.raises(ValueError, match="tile_n must be an integer"):
        spec.metadata_size(tile)
