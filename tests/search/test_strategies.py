"""What is drawn is within the contract, and the structures that faults hide in are common."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import spec
from oracle.search.strategies import groups
from oracle.search.whole import Whole, batch_of, turned

VARIANTS = ((False, True), (False, False), (True, True), (True, False))


@settings(max_examples=15, phases=[Phase.generate])
@given(groups(VARIANTS))
def test_every_problem_drawn_is_within_the_contract_and_of_its_batchs_group(drawn):
    batch = batch_of(drawn)
    assert len({whole.group for whole in drawn}) == 1
    assert 1 <= batch.tokens <= 8
    assert batch.logits.dtype == batch.bias.dtype == np.float32
    assert ((batch.row_stride == 0) | (batch.row_stride >= 256)).all()
    assert (batch.row_stride % 4 == 0).all()
    still = batch.logits[batch.row_stride == 0].view(np.uint32)
    assert np.array_equal(still, np.repeat(still[:, :1], batch.tokens, axis=1))
    assert all(0 <= elements <= 3 for elements in batch.shift)
    if batch.ranges is not None:
        offset, count, tile = batch.ranges.offset, batch.ranges.count, batch.ranges.tile
        assert (offset >= 0).all()
        assert (count >= 1).all()
        assert (offset + count <= 256).all()
        assert ((tile >= 1) & (tile <= 256)).all()


@pytest.fixture(scope="module")
def many() -> list[Whole]:
    """Return some hundred problems of many batches."""
    seen: list[Whole] = []

    @settings(max_examples=40, phases=[Phase.generate], database=None, derandomize=True)
    @given(groups(VARIANTS))
    def collect(drawn):
        seen.extend(drawn[::9])

    collect()
    return seen


def keys(whole: Whole) -> np.ndarray:
    with np.errstate(all="ignore"):
        return spec.ordered_key(spec.add_rn(spec.sigmoid(whole.logits), whole.bias[None, :])).astype(np.int64)


def share(many: list[Whole], holds) -> float:
    return float(np.mean([bool(holds(whole)) for whole in many]))


def test_ties_lie_across_the_cutoff_across_lanes_and_within_a_lane(many):
    def cutoff(whole):
        order = -np.sort(-keys(whole), axis=1)
        return (order[:, 7] == order[:, 8]).any()

    def tied_picks(whole, same_lane):
        ids, _ = spec.route(whole.logits, whole.bias, whole.scale, whole.renormalize)
        key = np.take_along_axis(keys(whole), ids.astype(np.int64), axis=1)
        tie = key[:, 1:] == key[:, :-1]
        lanes = (ids[:, 1:] // 8 == ids[:, :-1] // 8) == same_lane
        return (tie & lanes).any()

    assert share(many, cutoff) > 0.3
    assert share(many, lambda whole: tied_picks(whole, True)) > 0.2
    assert share(many, lambda whole: tied_picks(whole, False)) > 0.05


def test_keys_of_picks_differ_in_the_last_bit_often(many):
    def adjacent(whole):
        order = -np.sort(-keys(whole), axis=1)[:, :9]
        return (np.diff(order) == -1).any()

    assert share(many, adjacent) > 0.04


def test_ranges_split_ties_often(many):
    def split(whole):
        offset, count, _ = whole.ranges
        key = keys(whole)
        low = offset > 0 and (key[:, offset] == key[:, offset - 1]).any()
        high = offset + count < 256 and (key[:, offset + count] == key[:, offset + count - 1]).any()
        return low or high

    with_range = [whole for whole in many if whole.ranges is not None]
    assert len(with_range) > 50
    assert share(with_range, split) > 0.3


def test_masks_of_minus_infinity_and_nan_of_several_kinds_occur(many):
    assert share(many, lambda whole: (whole.logits == -np.inf).any() or (whole.bias == -np.inf).any()) > 0.02
    nans = {int(w) for whole in many for w in whole.logits.view(np.uint32)[np.isnan(whole.logits)].ravel()}
    assert {0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF} <= nans


def test_every_stride_kind_and_alignment_and_batch_size_occurs(many):
    strides = {whole.row_stride for whole in many}
    assert {0, 256, 2**31 - 4, 2**31, 2**31 + 4} <= strides
    assert len({len(whole.logits) for whole in many}) >= 5
    assert len({whole.shift for whole in many}) >= 8


def test_a_turned_problem_moves_experts_and_range_together_unless_the_range_would_wrap():
    whole = Whole(
        np.arange(256, dtype=np.float32)[None], np.zeros(256, np.float32), np.float32(1), True,
        ranges=(100, 20, 8),
    )  # fmt: skip
    assert turned(whole, 8).ranges == (108, 20, 8)
    assert turned(whole, 8).logits[0, 8] == 0.0
    assert turned(whole, 140).ranges == (100, 20, 8)
    assert replace(turned(turned(whole, 8), 248), ranges=None).logits[0, 7] == 7.0
