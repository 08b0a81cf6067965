"""The case families: reproducible one by one, inside the contract, and each of its kind."""

import numpy as np
import pytest

import spec
from oracle import cases
from oracle.cases import known
from oracle.cases.family import generator
from oracle.cases.permuting import Points, logits_for
from oracle.compare import PERMITTED, expect
from oracle.plan import ALL_RANGES, SAMPLE_RANGES
from oracle.problem import Ranges

SELECTION = [name for name, family in cases.FAMILIES.items() if family.kind == "selection"]
PERMUTATION = [name for name in cases.FAMILIES if name.startswith("permute-")]
CLAUSES = {*(f"A{n}" for n in range(1, 9)), *(f"R{n}" for n in range(1, 7)), *(f"M{n}" for n in range(1, 9))}


def selection(name: str, count: int = 24, tokens: int = 3):
    return cases.batch(cases.FAMILIES[name], 0, np.arange(count), tokens, True)


def keys_of(batch):
    return spec.add_rn(spec.sigmoid(batch.logits), batch.bias[:, None, :])


def points(*rows: tuple[int, int, int, int]) -> Points:
    return Points(*np.array(rows, np.int64).T)


def permuted(name: str, at: Points):
    return cases.batch(cases.FAMILIES[name], 0, at.index(), int(at.tokens[0]), True, at.ranges())


@pytest.mark.parametrize("name", SELECTION)
def test_a_problem_of_a_family_comes_out_the_same_alone(name):
    together = selection(name)
    alone = cases.batch(cases.FAMILIES[name], 0, np.array([17]), 3, True)
    assert np.array_equal(together.logits[17:18].view(np.uint32), alone.logits.view(np.uint32))
    assert np.array_equal(together.bias[17:18].view(np.uint32), alone.bias.view(np.uint32))
    assert together.row_stride[17] == alone.row_stride[0]


@pytest.mark.parametrize("name", [*SELECTION[1:], *PERMUTATION])
def test_another_seed_makes_other_problems(name):
    family = cases.FAMILIES[name]
    at = points((3, 8, 37, 101))
    ranges = at.ranges() if family.kind == "permutation" else None
    indices = at.index() if ranges else np.arange(16)
    one, two = (cases.batch(family, seed, indices, 3, True, ranges) for seed in (1, 2))
    assert not np.array_equal(one.logits.view(np.uint32), two.logits.view(np.uint32)) or not np.array_equal(
        one.bias.view(np.uint32), two.bias.view(np.uint32)
    )


@pytest.mark.parametrize("name", SELECTION)
def test_every_row_stride_is_one_that_the_contract_allows(name):
    batch = selection(name)
    assert batch.logits.dtype == batch.bias.dtype == batch.scale.dtype == np.float32
    assert (batch.row_stride % 4 == 0).all()
    assert ((batch.row_stride == 0) | (batch.row_stride >= 256)).all()
    repeated = batch.logits[batch.row_stride == 0].view(np.uint32)
    assert np.array_equal(repeated, np.repeat(repeated[:, :1], 3, axis=1))


def test_every_clause_is_some_familys():
    assert CLAUSES - {"A5", "A6", "A7"} == {
        clause for family in cases.FAMILIES.values() for clause in family.clauses
    }


def test_strides_beyond_2_to_the_31_and_of_zero_occur():
    strides = set(selection("strided-rows", 64).row_stride.tolist())
    assert 0 in strides
    assert max(strides) > 2**31


def test_nan_family_has_signalling_quiet_and_negative_nan_bits():
    bits = set(selection("nan", 64).logits.view(np.uint32)[np.isnan(selection("nan", 64).logits)].tolist())
    assert {0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001} <= bits


def test_masked_family_leaves_fewer_than_eight_finite_keys_and_eight_and_more():
    finite = np.isfinite(keys_of(selection("masked", 128))).sum(axis=-1)
    assert finite.min() < 8
    assert (finite == 8).any()
    assert finite.max() > 8


@pytest.mark.parametrize("name", ["near-ties", "near-scores"])
def test_near_ties_are_mostly_within_eight_units_of_the_last_place(name):
    keys = np.sort(spec.ordered_key(keys_of(selection(name))), axis=-1)
    gaps = np.diff(keys[..., -16:].astype(np.int64), axis=-1)
    assert np.median(gaps) <= 8
    assert (gaps == 1).any()


def test_cutoff_ties_straddle_the_eighth_pick():
    keys = -np.sort(-spec.ordered_key(keys_of(selection("cutoff-ties"))).astype(np.int64), axis=-1)
    assert (keys[..., 7] == keys[..., 8]).all()


def test_subnormal_family_has_distinct_subnormal_keys_among_the_picks():
    keys = np.abs(keys_of(selection("subnormal-bias", 64)))
    subnormal = (keys > 0) & (keys < np.finfo(np.float32).tiny)
    assert subnormal.sum() > 1000


def test_small_totals_lie_below_about_and_above_the_epsilon():
    batch = selection("small-totals", 200)
    scores = np.take_along_axis(spec.sigmoid(batch.logits), expect(batch).ids, axis=-1)
    totals = scores.astype(np.float64).sum(axis=-1)
    assert (totals < 1e-20).any()
    assert ((totals > 1e-16) & (totals < 1e-14)).any()
    assert (totals > 1e-10).any()


def test_exact_family_has_distinct_keys_and_sums_of_four_and_eight():
    batch = selection("exact", 64, 8)
    keys = np.sort(keys_of(batch), axis=-1)[..., -9:]
    assert (np.diff(keys, axis=-1) > 1e-4).all()
    totals = np.take_along_axis(spec.sigmoid(batch.logits), expect(batch).ids, axis=-1).sum(axis=-1)
    assert set(totals.ravel().tolist()) == {4.0, 8.0}
    assert PERMITTED["torch"].families == ("exact",)


def test_known_selection_cases_have_the_right_values_of_their_file():
    for number, case in enumerate(known.entries("selection")):
        batch = cases.batch(known.SELECTION, 0, np.array([number]), len(case["logits"]), case["renormalize"])
        right = expect(batch)
        words = [[f"{word:08x}" for word in row] for row in right.weights[0].view(np.uint32).tolist()]
        assert right.ids[0].tolist() == case["ids"], case["name"]
        assert words == case["weights_hex"], case["name"]


def test_known_metadata_cases_pick_their_ids_and_have_the_right_fields_of_their_file():
    at = known.metadata_points()
    for number, case in enumerate(known.entries("metadata")):
        here = at.take(np.array([number]))
        tokens = int(here.tokens[0])
        batch = cases.batch(known.METADATA, 0, np.array([number]), tokens, True, here.ranges())
        right = expect(batch)
        assert right.ids[0].tolist() == case["ids"], case["name"]
        fields = spec.metadata(
            right.ids[0], case["local_expert_offset"], case["num_local_experts"], case["tile_n"]
        )
        for name in (
            "padded_tokens",
            "num_ctas",
            "cta_batch",
            "cta_limit",
            "expanded_to_permuted",
            "permuted_to_token",
        ):
            assert np.array_equal(getattr(fields, name), case[name]), (case["name"], name)


def test_logits_for_ids_pick_them_in_order_whatever_the_order():
    rng = np.random.default_rng(5)
    ids = np.stack([rng.permutation(256)[:8] for _ in range(64)])
    picked, _ = spec.route(logits_for(ids), np.zeros(256, np.float32), 1.0)
    assert np.array_equal(picked, ids)


SHARD = points((6, 8, 64, 64), (6, 8, 0, 64), (6, 8, 37, 101), (6, 8, 128, 128))


def local_picks(name: str, at: Points = SHARD):
    batch = permuted(name, at)
    ids = expect(batch).ids
    assert batch.ranges is not None
    local = (ids >= batch.ranges.offset[:, None, None]) & (
        ids < (batch.ranges.offset + batch.ranges.count)[:, None, None]
    )
    return ids, local


def test_permute_mixed_has_local_remote_and_shared_picks_in_one_problem():
    ids, local = local_picks("permute-mixed")
    for row, here in zip(ids, local, strict=True):
        assert here.any()
        assert not here.all()
        assert len(np.unique(row[here])) < here.sum()


def test_permute_shared_has_all_tokens_on_the_same_eight_experts_in_several_orders():
    ids, local = local_picks("permute-shared")
    assert local.any(axis=(1, 2)).all()
    for row in ids:
        assert len(np.unique(row)) == 8
        assert len({tuple(picks) for picks in row.tolist()}) > 1


def test_permute_distinct_picks_no_expert_twice():
    ids, _ = local_picks("permute-distinct")
    assert all(len(np.unique(row)) == row.size for row in ids)


def test_permute_all_local_and_none_local_are_what_they_say():
    assert local_picks("permute-all-local")[1].all()
    assert not local_picks("permute-none-local")[1].any()


def test_permute_edges_splits_equal_keys_by_the_range():
    ids, local = local_picks("permute-edges", points(*((8, 8, 64, 64) for _ in range(1))))
    split = [0 < here.sum() < here.size for here in local[0]]
    assert any(split)
    assert ids.shape == (1, 8, 8)


@pytest.mark.parametrize("name", PERMUTATION)
def test_a_permutation_family_makes_a_problem_at_the_narrowest_and_the_widest_range(name):
    at = points(
        *(
            (b, 8, o, n)
            for b in (4,)
            for o, n in ((0, 1), (255, 1), (0, 256), (5, 3), (1, 255), (0, 255), (4, 249))
        )
    )
    ids = expect(permuted(name, at)).ids
    assert all(len(set(row)) == 8 for problem in ids.tolist() for row in problem)


def test_the_range_sample_has_twelve_fixed_ranges_and_one_drawn_and_all_has_every_range():
    assert len(set(SAMPLE_RANGES.fixed)) >= 12
    assert SAMPLE_RANGES.drawn
    assert {(0, 256), (0, 1), (255, 1), (0, 64), (64, 64), (128, 64), (192, 64), (128, 128)} <= set(
        SAMPLE_RANGES.fixed
    )
    assert len(set(ALL_RANGES.fixed)) == len(ALL_RANGES.fixed) == 256 * 257 // 2
    assert all(n >= 1 and o >= 0 and o + n <= 256 for o, n in ALL_RANGES.fixed)


def test_ranges_of_points_are_int32_in_order():
    at = SHARD.ranges()
    assert isinstance(at, Ranges)
    assert at.offset.dtype == np.int32
    assert at.offset.tolist() == [64, 0, 37, 128]


@pytest.mark.filterwarnings("error")
def test_seeds_and_indices_of_64_bits_that_differ_in_the_last_make_other_numbers():
    top = 2**64 - 1
    drawn = {
        int(generator(seed, name, index).integers(0, 1 << 62))
        for seed in (0, 1, 2**63, 2**63 + 1, top - 1, top)
        for name in ("ties", "nan", "raw-bits")
        for index in (0, 1, 2**63, top - 1, top)
    }
    assert len(drawn) == 6 * 3 * 5
