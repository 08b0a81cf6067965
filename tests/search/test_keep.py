"""Keeping: an entry makes the problem again bit for bit, in the plainest form that still fails."""

import json
from functools import partial

import numpy as np
import pytest

from oracle import cases
from oracle.cases import known
from oracle.check import judge
from oracle.compare import expect
from oracle.plan import Plan, Target
from oracle.search import keep
from oracle.search.whole import Whole, batch_of, first_wrong

TARGET = Target("planted", "cpu")


def bits(*words: int) -> np.ndarray:
    return np.array(words, np.uint32).view(np.float32)


def problem(ranges=None, row_stride=256, shift=(1, 1), tokens=2) -> Whole:
    logits, bias = np.zeros((tokens, 256), np.float32), np.zeros(256, np.float32)
    logits[0, 3:9] = bits(0x7F800001, 0xFFC00000, 0x7FC00000, 0x80000000, 0x00000001, 0x3DCCCCCD)
    logits[-1, 200:203] = (np.inf, -np.inf, 16777217.0)
    bias[7] = 0.1
    return Whole(logits, bias, bits(0x7F800001)[0], False, row_stride, ranges, shift)


def kept(name: str, whole: Whole) -> keep.Kept | None:
    (finding,) = judge(batch_of([whole]), (TARGET,)).findings
    return keep.add(name, finding, whole, partial(first_wrong, TARGET))


def test_a_selection_case_is_made_again_bit_for_bit(plant, known_copy):
    plant(lambda batch: np.isnan(batch.scale))
    before = (known_copy / "selection.json").read_text()
    whole = problem(row_stride=2**31, ranges=(0, 256, 8))
    where = kept("strange-bits", whole)
    assert where is not None
    assert where.path == known_copy / "selection.json"
    after = where.path.read_text()
    assert after.startswith(before[: before.rindex("\n]")])
    entry = json.loads(after)[where.number]
    assert list(entry)[:2] == ["name", "why"]
    assert entry["why"].startswith("found by search: planted on cpu broke R")
    assert entry["logits"][0]["at"]["3"] == "0x7f800001"
    batch = cases.batch(known.SELECTION, 0, np.array([where.number]), 2, False)
    for name in ("logits", "bias", "scale"):
        made, given = getattr(batch, name), np.asarray(getattr(whole, name))
        assert np.array_equal(made.view(np.uint32)[0], given.view(np.uint32)), name
    assert batch.row_stride[0] == 2**31
    right = expect(batch)
    assert right.ids[0].tolist() == entry["ids"]
    words = [[f"{word:08x}" for word in row] for row in right.weights[0].view(np.uint32).tolist()]
    assert words == entry["weights_hex"]


def test_a_metadata_case_needs_no_logits_where_its_ids_suffice(plant, known_copy):
    plant(lambda batch: np.full(len(batch), batch.ranges is not None), "metadata")
    before = (known_copy / "metadata.json").read_text()
    where = kept("any-metadata", problem(ranges=(0, 256, 3)))
    assert where is not None
    assert where.path.read_text().startswith(before[:-1])
    entry = known.entries("metadata")[where.number]
    assert "logits" not in entry
    assert entry["padded_tokens"] == 3 * entry["num_ctas"]
    assert len(entry["permuted_to_token"]) == entry["padded_tokens"]


def test_a_metadata_case_has_its_logits_where_they_matter(plant, known_copy):
    def broken(batch):
        return (batch.logits.view(np.uint32) == 0x7F800001).any(axis=(1, 2)) & (batch.ranges is not None)

    plant(broken, "metadata")
    whole = problem(ranges=(0, 256, 3))
    where = kept("metadata-of-nan", whole)
    assert where is not None
    at = known.metadata_points().take(np.array([where.number]))
    batch = cases.batch(known.METADATA, 0, np.array([where.number]), 2, True, at.ranges())
    assert np.array_equal(batch.logits[0].view(np.uint32), whole.logits.view(np.uint32))
    plan = Plan((TARGET,), (known.METADATA.name,))
    wrong = [chunk for chunk in plan.chunks() if judge(chunk.make(), (TARGET,)).findings]
    assert {(chunk.tokens, where.number in chunk.index) for chunk in wrong} == {(2, True)}


def test_what_fails_only_at_an_alignment_is_not_kept(plant, known_copy):
    plant(lambda batch: np.full(len(batch), batch.shift == (0, 0)))
    before = {path.name: path.read_bytes() for path in known_copy.iterdir()}
    assert kept("aligned", problem(shift=(0, 0))) is None
    assert {path.name: path.read_bytes() for path in known_copy.iterdir()} == before


@pytest.mark.parametrize("name", ["", "Upper", "a b", "-a", "a-", "../x", "two-finite-keys"])
def test_a_name_that_is_none_or_taken_is_refused(name):
    with pytest.raises(ValueError, match="a case"):
        keep.check_name(name)


def test_a_plain_problem_is_described_in_a_line_a_vector():
    whole = Whole(np.zeros((1, 256), np.float32), np.full(256, 0.1, np.float32), np.float32(1), True)
    whole.logits[0, 5] = -np.inf
    assert keep.described(whole) == ["logits[0]: 0 but [5] -inf", "bias: 0.1"]
