"""Shrinking: to the smallest problem that a plain judge still fails, at every kind of part."""

import numpy as np
import pytest

from oracle.search.smaller import cost, fill_of, shrink
from oracle.search.whole import Whole


def problem(seed: int, tokens: int = 8, metadata: bool = True) -> Whole:
    rng = np.random.default_rng(seed)
    return Whole(
        rng.standard_normal((tokens, 256), np.float32),
        rng.standard_normal(256, np.float32),
        np.float32(0.7310586),
        False,
        (1 << 31) + 4,
        (40, 120, 200) if metadata else None,
        (3, 2),
    )


def judged(fails):
    """Make a judge of a condition on one problem, and count the batches that it is asked."""
    asked = []

    def judge(wholes):
        asked.append(len(wholes))
        assert len({whole.group for whole in wholes}) == 1
        return next((place for place, whole in enumerate(wholes) if fails(whole)), None)

    return judge, asked


def test_where_everything_fails_the_smallest_problem_of_all_is_left():
    judge, asked = judged(lambda whole: True)
    smallest = shrink(problem(0), judge)
    assert len(smallest.logits) == 1
    assert not smallest.logits.view(np.uint32).any()
    assert not smallest.bias.view(np.uint32).any()
    assert (smallest.scale, smallest.renormalize, smallest.row_stride) == (1.0, True, 256)
    assert (smallest.ranges, smallest.shift) == (None, (1, 1))
    assert len(asked) < 60


def test_the_one_row_and_the_two_experts_that_matter_are_left():
    judge, asked = judged(lambda whole: (whole.logits[:, 37] > whole.logits[:, 201] + 0.25).any())
    smallest = shrink(problem(1), judge)
    assert smallest.logits.shape == (1, 256)
    row = smallest.logits[0]
    assert (row != row[0]).sum() == 1
    assert row[37] > row[201] + 0.25
    assert not smallest.bias.any()
    assert len(asked) < 100


@pytest.mark.parametrize(
    ("fails", "left"),
    [
        (lambda w: w.ranges is not None and w.ranges[2] >= 5, lambda w: w.ranges == (0, 256, 5)),
        (lambda w: w.ranges is not None and w.ranges[0] > 2, lambda w: w.ranges == (3, 1, 1)),
        (
            lambda w: w.ranges is not None and w.ranges[0] + w.ranges[1] < 256,
            lambda w: w.ranges == (0, 1, 1),
        ),
        (lambda w: not w.renormalize, lambda w: (w.renormalize, w.ranges) == (False, None)),
        (lambda w: w.row_stride >= 1 << 31, lambda w: w.row_stride == 1 << 31),
        (lambda w: w.row_stride > 256, lambda w: w.row_stride == 260),
        (lambda w: w.shift[0] == 3, lambda w: w.shift == (3, 1)),
        (lambda w: len(w.logits) >= 5, lambda w: len(w.logits) == 5),
        (lambda w: w.scale < 1, lambda w: w.scale == 0.0),
    ],
    ids=["tile", "offset", "end", "renormalize", "far-stride", "stride", "shift", "tokens", "scale"],
)
def test_one_part_that_matters_is_left_at_its_smallest(fails, left):
    judge, _ = judged(fails)
    smallest = shrink(problem(2), judge)
    assert fails(smallest)
    assert left(smallest)


def test_experts_move_down_where_only_their_distance_matters():
    row = np.zeros((1, 256), np.float32)
    row[0, [201, 209]] = 1.0
    judge, _ = judged(lambda w: (w.logits[0, :-8] * w.logits[0, 8:] == 1).sum() == 1)
    smallest = shrink(Whole(row, np.zeros(256, np.float32), np.float32(1), True), judge)
    assert np.nonzero(smallest.logits[0] != smallest.logits[0, 100])[0].tolist() == [0, 8]


def test_rows_of_stride_zero_stay_equal():
    whole = problem(3)
    equal = Whole(np.repeat(whole.logits[:1], 8, axis=0), whole.bias, whole.scale, True, 0, None, (1, 1))
    judge, _ = judged(lambda w: w.row_stride == 0 and w.logits[0, 9] != 0 and len(w.logits) > 1)
    smallest = shrink(equal, judge)
    assert smallest.row_stride == 0
    assert len(smallest.logits) == 2
    assert np.array_equal(smallest.logits[0], smallest.logits[1])


def test_nan_bits_that_matter_are_kept():
    whole = problem(4, metadata=False)
    whole.bias.view(np.uint32)[77] = 0xFF800001
    judge, _ = judged(lambda w: (w.bias.view(np.uint32) == 0xFF800001).any())
    smallest = shrink(whole, judge)
    assert (smallest.bias.view(np.uint32) == 0xFF800001).sum() >= 1
    assert not smallest.logits.any()


def test_the_cost_falls_with_every_simplification_and_the_fill_is_what_most_have():
    whole = problem(5)
    assert cost(Whole(whole.logits[:1], whole.bias, whole.scale, False)) < cost(whole)
    row = np.zeros(256, np.float32)
    row[:100] = 3.0
    assert fill_of(row) == 0
    row[:200] = 3.0
    assert fill_of(row) == np.float32(3.0).view(np.uint32)
