"""M1-M8: the known cases, what is written and what is not, every tile, and the bulk form."""

import json
from pathlib import Path

import numpy as np
import pytest

import spec
from spec import scalar

KNOWN = json.loads((Path(spec.__file__).parents[1] / "oracle/cases/known/metadata.json").read_text())
FIELDS = [field.name for field in spec.FIELDS if field.name != "unused"]
POISON = 0x5A5A5A5A
CLAUSES = {field.name: field.clause for field in spec.FIELDS}


def arguments(case: dict) -> tuple:
    return (np.array(case["ids"]), case["local_expert_offset"], case["num_local_experts"], case["tile_n"])


def plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def written(expected: dict, size: int, before: np.ndarray) -> np.ndarray:
    """Lay the fields over what the buffer held."""
    buffer = before.copy()
    for field in spec.FIELDS:
        if field.name != "unused":
            values = np.atleast_1d(np.array(expected[field.name], np.int32))
            buffer[field.offset : field.offset + len(values)] = values
    assert len(buffer) == size
    return buffer


@pytest.mark.parametrize("field", FIELDS, ids=[f"{CLAUSES[name]}-{name}" for name in FIELDS])
@pytest.mark.parametrize("case", KNOWN, ids=[case["name"] for case in KNOWN])
def test_known_case(case, field):
    assert plain(getattr(spec.metadata(*arguments(case)), field)) == case[field]


@pytest.mark.parametrize("case", KNOWN, ids=[f"M8-{case['name']}" for case in KNOWN])
def test_known_case_writes_its_fields_and_no_other_element(case):
    size = spec.metadata_size(case["tile_n"])
    buffer = np.full(size, POISON, np.int32)
    expected = written(case, size, buffer)
    spec.write_metadata(buffer, *arguments(case))
    np.testing.assert_array_equal(buffer, expected)


def test_m8_three_calls_into_one_buffer_leave_what_they_do_not_write():
    stale = [case for case in KNOWN if case["name"].startswith("full-then-stale")]
    assert [case["name"][-1] for case in stale] == ["1", "2", "3"]
    size = spec.metadata_size(stale[0]["tile_n"])
    buffer = np.full(size, POISON, np.int32)
    for case in stale:
        expected = written(case, size, buffer)
        spec.write_metadata(buffer, *arguments(case))
        np.testing.assert_array_equal(buffer, expected)
    assert buffer[spec.META_CTA_BATCH : spec.META_CTA_BATCH + 8].tolist() == list(range(8))
    assert buffer[[2, 3, -1]].tolist() == [POISON] * 3


def random_problem(rng: np.random.Generator) -> tuple[np.ndarray, int, int, int]:
    experts = int(rng.choice([8, 12, 40, 256]))
    ids = np.stack([rng.permutation(experts)[:8] for _ in range(rng.integers(1, 9))])
    offset = int(rng.integers(0, experts)) if rng.random() < 0.5 else 0
    count = int(rng.integers(1, 257 - offset))
    return ids, offset, count, int(rng.integers(1, 257))


@pytest.mark.parametrize("tokens", range(1, 9), ids=lambda b: f"b{b}")
def test_m1_to_m8_every_tile_equals_the_second_version(tokens):
    rng = np.random.default_rng(tokens)
    ids = np.stack([rng.permutation(20)[:8] for _ in range(tokens)])
    for tile in range(1, 257):
        first, second = spec.metadata(ids, 3, 12, tile), scalar.metadata(ids.tolist(), 3, 12, tile)
        assert {name: plain(getattr(first, name)) for name in FIELDS} == second


def test_m1_to_m8_every_range_equals_the_second_version():
    rng = np.random.default_rng(9)
    ids = np.stack([rng.permutation(32)[:8] + 224 for _ in range(3)])
    for offset in range(220, 256):
        for count in range(1, 257 - offset):
            first = spec.metadata(ids, offset, count, 2)
            second = scalar.metadata(ids.tolist(), offset, count, 2)
            assert {name: plain(getattr(first, name)) for name in FIELDS} == second


def test_bulk_writes_what_single_problems_do_each_with_its_own_tile_and_range():
    rng = np.random.default_rng(11)
    for tokens in (1, 3, 8):
        problems = [random_problem(rng) for _ in range(60)]
        ids = np.stack([np.resize(p[0], (tokens, 8)) for p in problems]).astype(np.int32)
        offset, count, tile = (np.array([p[i] for p in problems], np.int32) for i in (1, 2, 3))
        size = spec.metadata_size(256)
        bulk = np.full((60, size), POISON, np.int32)
        spec.write_metadata_bulk(bulk, ids, offset, count, tile)
        for p in range(60):
            one = np.full(size, POISON, np.int32)
            spec.write_metadata(one, ids[p], int(offset[p]), int(count[p]), int(tile[p]))
            np.testing.assert_array_equal(bulk[p], one)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.uint64], ids=lambda d: d.__name__)
def test_bulk_takes_any_integer_dtype(dtype):
    ids = np.arange(248, 256)[None, None].astype(dtype)
    buffer = np.full((1, spec.metadata_size(100)), POISON, np.int32)
    spec.write_metadata_bulk(buffer, ids, *(np.array([value], dtype) for value in (250, 6, 100)))
    assert buffer[0, :2].tolist() == [600, 6]


def test_bulk_of_no_problems_writes_nothing():
    none = np.zeros(0, np.int32)
    spec.write_metadata_bulk(np.zeros((0, 1000), np.int32), np.zeros((0, 3, 8), np.int32), none, none, none)


IDS = np.arange(8)[None]
WRONG = {
    "offset-negative": ({"local_expert_offset": -1}, "local_expert_offset must be 0 or more, not -1"),
    "offset-bool": ({"local_expert_offset": False}, "local_expert_offset must be an integer"),
    "count-zero": ({"num_local_experts": 0}, "num_local_experts must be 1 or more, not 0"),
    "range-too-long": ({"local_expert_offset": 200, "num_local_experts": 57}, "at most 256, not 200 [+] 57"),
    "tile-zero": ({"tile_n": 0}, "tile_n must be an integer in 1..256, not 0"),
    "tile-257": ({"tile_n": 257}, "tile_n must be an integer in 1..256, not 257"),
    "ids-list": ({"ids": IDS.tolist()}, "ids must be an array"),
    "ids-float": ({"ids": IDS.astype(np.float32)}, "ids must be an integer array"),
    "ids-seven-picks": ({"ids": IDS[:, :7]}, "ids must be "),
    "ids-nine-tokens": ({"ids": np.repeat(IDS, 9, axis=0)}, "ids must be "),
    "ids-negative": ({"ids": IDS - 1}, "ids must be global expert ids in 0..255"),
    "ids-256": ({"ids": IDS + 249}, "ids must be global expert ids in 0..255"),
    "ids-twice-in-a-row": ({"ids": np.array([[0, 1, 2, 3, 4, 5, 6, 0]])}, "ids must be eight different"),
    "buffer-short": ({"buffer": np.full(708, POISON, np.int32)}, "buffers must be .*709 or more"),
    "buffer-int64": ({"buffer": np.full(709, POISON)}, "buffers must be an int32 array"),
    "buffer-two-axes": ({"buffer": np.full((1, 709), POISON, np.int32)}, "buffer must be an array of 1 axes"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_named_and_nothing_is_written(change, message):
    given = {
        "buffer": np.full(spec.metadata_size(8), POISON, np.int32),
        "ids": IDS,
        "local_expert_offset": 0,
        "num_local_experts": 256,
        "tile_n": 8,
    } | change
    with pytest.raises(ValueError, match=message):
        spec.write_metadata(**given)
    assert (given["buffer"] == POISON).all()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("offset", [0, 256], "offset must be 0..255, not 256 .problem 1"),
        ("offset", [0], "offset must have shape .2."),
        ("count", [0, 1], "count must be 1..256 - offset, not 0 .problem 0"),
        ("count", [256, 257], "count must be 1..256 - offset, not 257 .problem 1"),
        ("tile", [1, 257], "tile must be 1..256, not 257 .problem 1"),
    ],
)
def test_bulk_names_the_argument_and_the_problem(name, value, message):
    buffers = np.full((2, spec.metadata_size(256)), POISON, np.int32)
    given = {"offset": np.array([0, 0]), "count": np.array([256, 256]), "tile": np.array([8, 8])}
    with pytest.raises(ValueError, match=message):
        spec.write_metadata_bulk(buffers, np.stack([IDS, IDS]), **(given | {name: np.array(value)}))
    assert (buffers == POISON).all()


def test_a_read_only_buffer_is_refused():
    buffer = np.full(spec.metadata_size(8), POISON, np.int32)
    buffer.flags.writeable = False
    with pytest.raises(ValueError, match="buffers must be writable"):
        spec.write_metadata(buffer, IDS, 0, 256, 8)
