import numpy as np
import pytest

import spec
from oracle.compare import PERMITTED, compare, expect
from oracle.peers.variations import ULPS, ids_given, ids_reported, rows_undefined
from oracle.problem import POISON_WORD, Batch, Outputs, Ranges

ULP = np.float32(2.0**-23)


def one(bias: np.ndarray, logits: np.ndarray | None = None, tile: int = 4) -> Batch:
    """One problem of one token, whose keys are 1/2 + ``bias`` unless it has logits."""
    rows = np.zeros(256, np.float32) if logits is None else logits
    ranges = Ranges(*(np.array([value], np.int32) for value in (0, 256, tile)))
    scale, stride = np.ones(1, np.float32), np.array([256])
    return Batch("made", rows.reshape(1, 1, 256), bias.reshape(1, 256), scale, True, stride, ranges)


def answering(batch: Batch, ids: list[int]) -> Outputs:
    """A kernel's answer with these ids, and metadata that follows from them."""
    outputs = Outputs.poisoned(batch)
    outputs.ids[0, 0] = ids
    outputs.weights[...] = 0.125
    assert outputs.metadata is not None
    assert batch.ranges is not None
    spec.write_metadata(outputs.metadata[0], outputs.ids[0], 0, 256, int(batch.ranges.tile[0]))
    return outputs


def falling(gap: float) -> np.ndarray:
    """Keys that fall by ``gap`` from expert to expert, from about 1."""
    return (np.float64(0.5) - gap * np.arange(256)).astype(np.float32)


def differing(batch: Batch, answer: Outputs) -> int:
    return int(compare(ids_reported(batch, expect(batch), answer), answer)[0])


def test_r3_close_keys_may_come_in_another_order_and_metadata_follows():
    batch = one(falling(2 * ULP))
    assert differing(batch, answering(batch, [1, 0, 2, 3, 4, 5, 6, 8])) == 0


def test_r3_keys_further_apart_than_that_may_not():
    batch = one(falling((ULPS + 2) * ULP))
    assert differing(batch, answering(batch, [0, 1, 2, 3, 4, 5, 6, 7])) == 0
    assert differing(batch, answering(batch, [1, 0, 2, 3, 4, 5, 6, 7])) > 0
    assert differing(batch, answering(batch, [0, 1, 2, 3, 4, 5, 6, 8])) > 0


def test_r3_large_keys_are_close_in_units_of_their_own_last_place():
    batch = one(falling(ULP) * np.float32(2.0**20))
    assert differing(batch, answering(batch, [1, 0, 2, 3, 4, 5, 6, 7])) == 0


def test_r3_an_infinite_key_comes_first():
    bias = np.zeros(256, np.float32)
    bias[100:108] = np.inf
    batch = one(bias)
    assert differing(batch, answering(batch, [*range(100, 108)])) == 0
    assert differing(batch, answering(batch, [0, *range(100, 107)])) > 0


def test_r3_no_expert_is_picked_twice():
    batch = one(falling(0.0))
    answer = answering(batch, [*range(8)])
    answer.ids[0, 0, 1] = 0
    assert differing(batch, answer) == 1


def test_r3_experts_with_the_same_logit_and_bias_come_in_the_order_of_their_ids():
    batch = one(falling(0.0))
    assert differing(batch, answering(batch, [1, 0, 2, 3, 4, 5, 6, 7])) > 0


@pytest.mark.parametrize("wrong", [-1, 256, POISON_WORD])
def test_r3_an_id_that_is_none_is_wrong(wrong: int):
    batch = one(falling(0.0))
    answer = answering(batch, [*range(8)])
    answer.ids[0, 0, 3] = wrong
    assert differing(batch, answer) == 1


def test_m6_metadata_that_does_not_follow_from_the_reported_ids_is_wrong():
    batch = one(falling(2 * ULP))
    answer = answering(batch, [1, 0, 2, 3, 4, 5, 6, 8])
    assert answer.metadata is not None
    answer.metadata[0, spec.META_EXPANDED_TO_PERMUTED] += 1
    assert differing(batch, answer) == 1


def test_a_kernel_given_the_ids_must_leave_ids_and_weights_alone():
    batch = one(falling(0.01))
    expected = expect(batch)
    answer = Outputs.poisoned(batch)
    assert answer.metadata is not None
    assert expected.metadata is not None
    answer.metadata[...] = expected.metadata
    assert compare(ids_given(batch, expected, answer), answer)[0] == 0
    answer.ids[0, 0, 0] = 0
    answer.metadata[0, 0] += 1
    assert compare(ids_given(batch, expected, answer), answer)[0] == 2


@pytest.mark.parametrize(
    ("bias", "may_vary"),
    [
        pytest.param({3: np.nan}, True, id="a NaN key has no order"),
        pytest.param(
            dict.fromkeys(range(249), -np.inf), True, id="seven keys above -inf leave one pick open"
        ),
        pytest.param(dict.fromkeys(range(248), -np.inf), False, id="eight keys above -inf are enough"),
        pytest.param({3: np.inf}, False, id="an infinite key has its order"),
    ],
)
def test_r3_only_rows_without_an_order_may_have_any_ids(bias: dict[int, float], may_vary: bool):
    values = falling(0.0)
    for expert, value in bias.items():
        values[expert] = value
    batch = one(values)
    expected = expect(batch)
    answer = answering(batch, [*range(8)])
    answer.ids[...] = 9
    for variation in (rows_undefined, ids_reported):
        right = variation(batch, expected, answer)
        assert np.array_equal(right.ids, answer.ids) == may_vary
        assert np.array_equal(right.ids, expected.ids) != may_vary


def test_every_published_kernel_says_what_it_is_not_held_to():
    for name in ("vllm", "flashinfer", "flashinfer-logits"):
        assert len(PERMITTED[name].why) > 20
