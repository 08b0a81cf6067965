"""The plan of a run: what it covers, each point once, in chunks of bounded size."""

from collections import Counter

import numpy as np
import pytest

import spec
from oracle import cases
from oracle.plan import Plan, RangeChoice, Target, match_families

CUTE = Target("cute", "sim")
TRITON = Target("triton", "sim")


def test_the_default_run_has_every_batch_and_tile_with_thirteen_ranges_once_a_backend():
    points = Counter()
    for chunk in Plan((CUTE, TRITON)).chunks():
        if chunk.ranges is None or chunk.family == "known-metadata":
            continue
        assert chunk.targets == (CUTE, TRITON)
        points.update((chunk.tokens, int(tile)) for tile in chunk.ranges.tile)
    assert set(points) == {(b, tile) for b in range(1, 9) for tile in range(1, 257)}
    assert set(points.values()) == {13}


def test_the_default_run_has_fifty_thousand_rows_without_metadata_a_backend():
    plan = Plan((CUTE,))
    rows = Counter()
    for chunk in plan.chunks():
        if chunk.ranges is None:
            rows[chunk.family] += len(chunk) * chunk.tokens
    assert sum(rows.values()) >= 50_000
    assert set(rows) == {name for name, family in cases.FAMILIES.items() if family.kind == "selection"}


def test_a_selection_family_meets_every_b_with_and_without_renormalize():
    chunks = [*Plan((CUTE,), ("ties",), count=32).chunks()]
    assert {(chunk.tokens, chunk.renormalize) for chunk in chunks} == {
        (b, r) for b in range(1, 9) for r in (True, False)
    }
    assert sorted(np.concatenate([chunk.index for chunk in chunks]).tolist()) == list(range(32))


def test_every_b_and_tile_meets_most_permutation_families_and_both_variants():
    met = {}
    for chunk in Plan((CUTE,), match_families(["permute-*"])).chunks():
        for tile in chunk.ranges.tile.tolist():
            met.setdefault(tile, set()).add((chunk.family, chunk.renormalize))
    assert all(len(of_tile) == 14 for of_tile in met.values())


def test_known_metadata_cases_run_where_their_b_and_tile_are_asked_for():
    every = [*Plan((CUTE,), ("known-metadata",)).chunks()]
    some = [*Plan((CUTE,), ("known-metadata",), batch=(8,), tile=(192,)).chunks()]
    assert sum(map(len, every)) == 22
    assert [(chunk.tokens, chunk.ranges.tile.tolist()) for chunk in some] == [(8, [192]), (8, [192])]


def test_chunks_keep_their_metadata_buffers_small():
    for chunk in Plan((CUTE,), match_families(["permute-*"]), batch=(8,)).chunks():
        assert len(chunk) * spec.metadata_size(int(chunk.ranges.tile.max())) <= 1 << 22
        assert len(chunk) <= 256


def test_the_seed_draws_other_ranges_and_the_same_seed_the_same():
    def drawn(seed):
        plan = Plan((CUTE,), ("permute-mixed",), (1,), tuple(range(1, 65)), RangeChoice((), True), seed=seed)
        return {
            (int(o), int(n))
            for c in plan.chunks()
            for o, n in zip(c.ranges.offset, c.ranges.count, strict=True)
        }

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert len(drawn(1)) > 50


def test_torch_is_asked_only_what_the_table_permits():
    chunks = [*Plan((CUTE, Target("torch", "cpu")), ("exact", "ties", "permute-mixed"), (2,), (8,)).chunks()]
    asked = {chunk.family for chunk in chunks if Target("torch", "cpu") in chunk.targets}
    assert asked == {"exact"}


def test_families_are_matched_by_pattern_in_table_order_and_a_pattern_without_match_is_an_error():
    assert match_families(["ties", "known-*"]) == ("known-selection", "ties", "known-metadata")
    with pytest.raises(ValueError, match="no family 'tie': there are known-selection"):
        match_families(["tie"])
