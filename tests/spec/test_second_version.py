"""The two versions against each other: A1-A8 on any bits, R1-R6 on adversarial rows, M1-M8 on any picks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spec
from spec import scalar
from spec.selection import key

EDGES = [
    0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x33800000, 0x34000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001,
    0x40490FDB, 0x42FBFFFF, 0x42FC0000, 0x42FC0001, 0x43000000, 0x43150000, 0x43160000, 0x4B800000,
    0x7E7FFFFF, 0x7E800000, 0x7E800001, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
    0x7FFFFFFF,
]  # fmt: skip
BITS = st.one_of(
    st.sampled_from(EDGES + [edge | 1 << 31 for edge in EDGES]),
    st.integers(0, 2**32 - 1),
    st.floats(width=32).map(lambda x: int(np.float32(x).view(np.uint32))),
)
ARITY = {
    "mul_rn": 2,
    "add_rn": 2,
    "fma_rn": 3,
    "ex2_approx": 1,
    "ex2_approx_ftz": 1,
    "rcp_approx": 1,
    "div_full": 2,
    "sigmoid": 1,
}


def array(bits) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


def agree(function: str, operands: np.ndarray) -> None:
    actual = getattr(spec, function)(*(array(column) for column in operands.T)).view(np.uint32)
    expected = [getattr(scalar, function)(*row) for row in operands.tolist()]
    np.testing.assert_array_equal(actual, np.array(expected, np.uint32))


@pytest.mark.parametrize(("function", "arity"), ARITY.items(), ids=ARITY)
@given(data=st.data())
def test_arithmetic_on_any_bits(function, arity, data):
    rows = data.draw(st.lists(st.tuples(*[BITS] * arity), min_size=1, max_size=24))
    agree(function, np.array(rows, np.uint32))


@pytest.mark.parametrize(("function", "arity"), ARITY.items(), ids=ARITY)
def test_arithmetic_on_all_edges_and_many_random_bits(function, arity):
    signed = np.array(EDGES + [edge | 1 << 31 for edge in EDGES], np.uint32)
    pairs = np.stack(np.meshgrid(*[signed] * min(arity, 2)), axis=-1).reshape(-1, min(arity, 2))
    if arity == 3:  # the third operand: what cancels the product, and any edge
        product = spec.mul_rn(array(pairs[:, 0]), array(pairs[:, 1])).view(np.uint32)
        cancelling = np.column_stack([pairs, product ^ np.uint32(1 << 31)])
        pairs = np.concatenate([cancelling, np.column_stack([pairs, np.resize(signed[::-1], len(pairs))])])
    random = np.random.default_rng(arity).integers(0, 2**32, (3000, arity), dtype=np.uint32)
    agree(function, np.concatenate([pairs, random]))


# Few distinct values, so that ties, also across the cutoff, are the rule; and any bits at all.
FEW = st.sampled_from([0x00000000, 0x80000000, 0x3F800000, 0x3F800001, 0xFF800000, 0x7F800000, 0x7FC00000])
ROW = st.one_of(
    st.lists(FEW, min_size=256, max_size=256),
    st.integers(0, 2**63).map(
        lambda seed: np.random.default_rng(seed).integers(0, 2**32, 256, dtype=np.uint32).tolist()
    ),
    st.integers(0, 2**63).map(
        lambda seed: np.random.default_rng(seed).normal(0, 8, 256).astype(np.float32).view(np.uint32).tolist()
    ),
)


@settings(max_examples=25)
@given(logits=st.lists(ROW, min_size=1, max_size=2), bias=ROW, scale=BITS, renormalize=st.booleans())
def test_r1_to_r6_route(logits, bias, scale, renormalize):
    ids, weights = spec.route(array(logits), array(bias), array([scale])[0], renormalize)
    expected_ids, expected_weights = scalar.route(logits, bias, scale, renormalize)
    assert ids.tolist() == expected_ids
    assert weights.view(np.uint32).tolist() == expected_weights


@given(row=ROW)
def test_r3_select_on_any_keys(row):
    keys = key(array(row), np.zeros(256, np.float32))
    assert spec.select(keys).tolist() == scalar.pick(keys.view(np.uint32).tolist())


@given(first=BITS, second=BITS)
def test_r2_order_of_two_keys(first, second):
    low, high = (int(x) for x in spec.ordered_key(array([first, second])))
    expected = scalar.place(first), scalar.place(second)
    assert (low < high, low == high) == (expected[0] < expected[1], expected[0] == expected[1])


def test_r5_epsilon_is_the_same_float32():
    assert int(np.float32(spec.SUM_EPSILON).view(np.uint32)) == scalar.EPSILON


PICKS = st.integers(8, 256).flatmap(
    lambda experts: st.lists(
        st.integers(0, 2**63).map(lambda seed: np.random.default_rng(seed).permutation(experts)[:8].tolist()),
        min_size=1,
        max_size=8,
    )
)


@given(ids=PICKS, offset=st.integers(0, 255), count=st.integers(1, 256), tile=st.integers(1, 256))
def test_m1_to_m8_metadata(ids, offset, count, tile):
    count = min(count, 256 - offset)
    first = spec.metadata(np.array(ids), offset, count, tile)
    second = scalar.metadata(ids, offset, count, tile)
    for name, expected in second.items():
        actual = getattr(first, name)
        assert (actual.tolist() if isinstance(actual, np.ndarray) else actual) == expected, name
