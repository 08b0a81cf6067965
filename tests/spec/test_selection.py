"""R1-R6: the order of keys, the picks, the weights, the known cases, and shapes."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import spec
from spec.selection import inverse, key, score

KNOWN = json.loads((Path(spec.__file__).parents[1] / "oracle/cases/known/selection.json").read_text())


def row(sparse: dict) -> np.ndarray:
    full = np.full(spec.NUM_EXPERTS, np.float32(sparse.get("fill", 0)))
    for expert, value in sparse.get("at", {}).items():
        full[int(expert)] = np.float32(value)
    return full


def hexes(weights: np.ndarray) -> list:
    return [[f"{word:08x}" for word in words] for words in weights.view(np.uint32).tolist()]


@pytest.mark.parametrize("case", KNOWN, ids=[case["name"] for case in KNOWN])
def test_known_case(case):
    logits = np.stack([row(sparse) for sparse in case["logits"]])
    ids, weights = spec.route(logits, row(case["bias"]), float(case["scale"]), case["renormalize"])
    assert ids.tolist() == case["ids"]
    assert hexes(weights) == case["weights_hex"]


def test_r1_score_is_the_sigmoid():
    x = np.linspace(-20, 20, 256, dtype=np.float32)
    np.testing.assert_array_equal(score(x).view(np.uint32), spec.sigmoid(x).view(np.uint32))


def test_r2_key_is_score_plus_bias_and_a_nan_key_is_7fffffff():
    bias = np.array([0.25, -0.5, np.nan, np.inf], np.float32)
    keys = key(np.full(4, 0.5, np.float32), bias)
    assert keys.view(np.uint32).tolist() == [0x3F400000, 0, 0x7FFFFFFF, 0x7F800000]


def test_r2_keys_order_as_float32_values_and_nan_is_above_infinity():
    ascending = np.array(
        [0xFF800000, 0xFF7FFFFF, 0xBF800000, 0x80800000, 0x80000002, 0x80000001, 0x00000000, 0x00000001,
         0x00000002, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF], np.uint32)  # fmt: skip
    ordered = spec.ordered_key(ascending.view(np.float32))
    assert ordered.dtype == np.int32
    assert (np.diff(ordered.astype(np.int64)) > 0).all()


def test_r2_zeros_are_equal_and_so_are_all_nans():
    zeros = spec.ordered_key(np.array([0.0, -0.0], np.float32))
    words = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], np.uint32)
    nans = spec.ordered_key(words.view(np.float32))
    assert zeros.tolist() == [0, 0]
    assert nans.tolist() == [0x7FFFFFFF] * 4


def picks(**at: float) -> list[int]:
    keys = np.full(spec.NUM_EXPERTS, -np.inf, np.float32)
    for expert, value in at.items():
        keys[int(expert[1:])] = value
    return spec.select(keys).tolist()


def test_r3_largest_key_first():
    assert picks(e9=1.0, e200=3.0, e5=2.0)[:3] == [200, 5, 9]


def test_r3_lowest_id_among_equals_also_across_the_cutoff():
    keys = np.zeros((1, spec.NUM_EXPERTS), np.float32)
    keys[0, [100, 20, 30]] = 1.0
    assert spec.select(keys).tolist() == [[20, 30, 100, 0, 1, 2, 3, 4]]


def test_r3_minus_zero_ties_with_plus_zero():
    assert picks(e7=-0.0, e8=0.0)[:2] == [7, 8]


def test_r3_fewer_than_eight_keys_above_minus_infinity_pick_no_expert_twice():
    assert picks(e3=0.0, e250=0.0) == [3, 250, 0, 1, 2, 4, 5, 6]


def test_r3_nan_keys_come_first_in_id_order():
    assert picks(e40=np.nan, e4=np.inf, e30=np.nan)[:3] == [30, 40, 4]


def test_r4_ids_are_int32_in_the_order_picked():
    ids, _ = spec.route(np.arange(256, dtype=np.float32) / 32, np.zeros(256, np.float32), 1.0)
    assert ids.dtype == np.int32
    assert ids.tolist() == [255, 254, 253, 252, 251, 250, 249, 248]


def test_r5_the_sum_runs_in_the_order_picked():
    # Each small score is half a place of the first one: added one by one to it they vanish.
    picked = np.array([1.0] + [2.0**-24] * 7, np.float32)
    assert inverse(picked, 1.0, True) == spec.div_full(1.0, spec.add_rn(np.float32(1.0), spec.SUM_EPSILON))
    assert inverse(picked[::-1], 1.0, True) < inverse(picked, 1.0, True)


def test_r5_epsilon_keeps_a_sum_of_zeros_finite():
    zero = np.zeros(8, np.float32)
    assert inverse(zero, 1.0, True) == spec.div_full(1.0, spec.SUM_EPSILON)
    assert spec.weigh(zero, 1.0, True).tolist() == [0.0] * 8


@pytest.mark.parametrize(
    ("scale", "expected"),
    [(2.5, 2.5), (10**400, np.inf), (-1e39, -np.inf), (Fraction(1, 3), np.float32(1) / np.float32(3)),
     (float("inf"), np.inf), (np.float64(1e-60), 0.0), (2**24 + 1, 2.0**24)],
    ids=lambda x: str(x)[:8],
)  # fmt: skip
def test_r5_scale_is_rounded_to_float32(scale, expected):
    assert inverse(np.ones(8, np.float32), scale, False) == np.float32(expected)


def test_r5_scale_nan_gives_the_one_nan():
    weights = spec.weigh(np.ones(8, np.float32), float("-nan"), True)
    assert weights.view(np.uint32).tolist() == [spec.NAN_BITS] * 8


def test_r6_weights_come_from_the_score_without_the_bias():
    logits = np.zeros(256, np.float32)
    bias = np.where(np.arange(256) % 32 == 0, np.float32(2.0**25), np.float32(0.0))
    ids, weights = spec.route(logits, bias, 3.0, False)
    assert ids.tolist() == [0, 32, 64, 96, 128, 160, 192, 224]
    assert weights.tolist() == [1.5] * 8


class TestShapes:
    rng = np.random.default_rng(5)
    logits = rng.standard_normal((2, 3, 4, 256)).astype(np.float32)
    bias = rng.standard_normal((2, 3, 256)).astype(np.float32)
    scale = rng.standard_normal((2, 3)).astype(np.float32)

    @pytest.mark.parametrize("renormalize", [True, False])
    def test_problems_with_their_own_bias_and_scale_equal_single_rows(self, renormalize):
        ids, weights = spec.route(self.logits, self.bias, self.scale, renormalize)
        assert (ids.shape, weights.shape) == ((2, 3, 4, 8), (2, 3, 4, 8))
        for p in np.ndindex(2, 3):
            for t in range(4):
                one, weight = spec.route(self.logits[p][t], self.bias[p], float(self.scale[p]), renormalize)
                assert one.tolist() == ids[p][t].tolist()
                assert weight.view(np.uint32).tolist() == weights[p][t].view(np.uint32).tolist()

    def test_one_bias_and_one_scale_serve_all(self):
        shared = spec.route(self.logits, self.bias[0, 0], 2.0)
        again = spec.route(self.logits.reshape(-1, 256), self.bias[0, 0], np.float32(2.0))
        np.testing.assert_array_equal(shared[0].reshape(-1, 8), again[0])
        np.testing.assert_array_equal(shared[1].reshape(-1, 8), again[1])

    def test_rows_of_stride_zero(self):
        rows = np.broadcast_to(self.logits[0, 0, 0], (8, 256))
        ids, _ = spec.route(rows, self.bias[0, 0], 1.0)
        assert len(np.unique(ids, axis=0)) == 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"logits": np.zeros((2, 255), np.float32)}, "logits must have shape"),
            ({"bias": np.array(1.0, np.float32)}, "bias must have shape"),
            ({"bias": np.zeros((3, 256), np.float32)}, "bias must have leading axes"),
            ({"scale": np.ones(2, np.float32)}, "scale must have leading axes"),
            ({"scale": True}, "scale must be a real number"),
            ({"scale": "1"}, "scale must be a real number"),
        ],
        ids=["logits", "bias-scalar", "bias-axes", "scale-axes", "scale-bool", "scale-text"],
    )
    def test_what_does_not_fit_is_named(self, change, message):
        fits = {"logits": np.zeros((2, 256), np.float32), "bias": np.zeros(256, np.float32), "scale": 1.0}
        with pytest.raises(ValueError, match=message):
            spec.route(**(fits | change))

    def test_another_dtype_is_refused(self):
        with pytest.raises(TypeError, match="logits must be a float32 array"):
            spec.route(np.zeros(256), np.zeros(256, np.float32), 1.0)
