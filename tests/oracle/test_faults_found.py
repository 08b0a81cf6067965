"""Tests of the tester: every kind of fault is found, with the right clause, and is told in full."""

import io

import numpy as np
import pytest

import spec
from oracle import check, replay
from oracle.compare import expect
from oracle.plan import Plan, RangeChoice, Target
from oracle.problem import POISON_WORD, Outputs
from oracle.ptxsim import SimulationError
from oracle.report import Reporter

FAULTY, OTHER, SPEC = Target("faulty", "cpu"), Target("other", "cpu"), Target("spec", "cpu")
SMALL = dict(
    families=("ties", "permute-all-local"), batch=(3,), tile=(4, 9), ranges=RangeChoice(((0, 256),)), count=4
)


@pytest.fixture
def found(plant, tmp_path):
    """Run a small plan with a fault; return the result and what was printed."""

    def run(fault, targets=(FAULTY,), **options):
        plant(fault)
        printed = io.StringIO()
        result = check.run(
            Plan(targets, **{**SMALL, **options}), 1, Reporter(printed, io.StringIO()), tmp_path
        )
        return result, printed.getvalue()

    return run


def field(name: str) -> int:
    return next(each.offset for each in spec.FIELDS if each.name == name)


def swap_two_picks(batch, outputs):
    outputs.ids[:, 1, 2:4] = outputs.ids[:, 1, 3:1:-1].copy()


def highest_id_first(batch, outputs):
    keys = spec.ordered_key(spec.add_rn(spec.sigmoid(batch.logits), batch.bias[:, None]))
    outputs.ids[...] = 255 - np.argsort(-keys[..., ::-1].astype(np.int64), axis=-1, kind="stable")[..., :8]


def pick_twice(batch, outputs):
    outputs.ids[:, 0, 1] = outputs.ids[:, 0, 0]


def leave_a_weight(batch, outputs):
    outputs.weights.view(np.int32)[:, 0, 0] = POISON_WORD


def flip_a_weight_bit(batch, outputs):
    outputs.weights.view(np.uint32)[:, 2, 7] ^= 1


def write(name, index, value):
    def fault(batch, outputs):
        if outputs.metadata is not None:
            outputs.metadata[:, field(name) + index] = value

    return fault


def row_limit_one_too_far(batch, outputs):
    if outputs.metadata is not None:
        for row in outputs.metadata:
            row[field("cta_limit") : field("cta_limit") + row[spec.META_NUM_CTAS]] += 1


def write_the_guard(batch, outputs):
    if outputs.metadata is not None:
        outputs.metadata[:, -1] = 0


def leave_padding_unwritten(batch, outputs):
    if outputs.metadata is not None:
        tail = outputs.metadata[:, field("permuted_to_token") :]
        tail[tail == -1] = POISON_WORD


FAULTS = {
    "R3-an-equal-key-with-a-higher-id": (highest_id_first, "R3", "ids"),
    "R4-two-picks-swapped": (swap_two_picks, "R4", "ids"),
    "R3-an-expert-picked-twice": (pick_twice, "R3", "ids"),
    "R5-R6-one-bit-of-one-weight": (flip_a_weight_bit, "R5/R6", "weights"),
    "R5-R6-a-weight-not-written": (leave_a_weight, "R5/R6", "weights"),
    "M2-a-wrong-expert-of-a-cta": (write("cta_batch", 1, 255), "M2", "cta_batch"),
    "M3-a-row-limit-too-far": (row_limit_one_too_far, "M3", "cta_limit"),
    "M4-a-count-not-written": (write("num_ctas", 0, POISON_WORD), "M4", "num_ctas"),
    "M5-a-wrong-padded-size": (write("padded_tokens", 0, 0), "M5", "padded_tokens"),
    "M6-a-wrong-row": (write("expanded_to_permuted", 9, -1), "M6", "expanded_to_permuted"),
    "M7-padding-not-written": (leave_padding_unwritten, "M7", "permuted_to_token"),
    "M8-an-unused-element-written": (write("unused", 1, 0), "M8", "unused"),
    "M8-a-cta-too-many-written": (write("cta_batch", 63, 0), "M8", "cta_batch"),
    "M8-a-route-past-the-last-written": (write("expanded_to_permuted", 24, -1), "M8", "expanded_to_permuted"),
    "M8-the-guard-written": (write_the_guard, "M8", "permuted_to_token"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_found_under_its_clause_and_field(found, fault):
    spoil, clause, name = FAULTS[fault]
    families = ("permute-natural",) if fault == "R4-two-picks-swapped" else SMALL["families"]
    result, printed = found(spoil, families=families)
    assert not result.passed
    assert any(
        line.split()[0] == clause and line.split()[1].startswith(name)
        for line in printed.splitlines()
        if line
    )


def test_r6_names_the_weight_of_the_variant_without_renormalize(found):
    def fault(batch, outputs):
        if not batch.renormalize:
            flip_a_weight_bit(batch, outputs)

    _, printed = found(fault)
    assert "R6    weights[2][7]: expected 0x" in printed
    assert "R5" not in printed


def test_no_fault_no_mismatch_and_every_word_counted(found):
    result, printed = found(lambda batch, outputs: None)
    assert result.passed
    assert printed == ""
    tally = result.tallies[FAULTY, "permute-all-local"]
    assert tally.launches == 2
    assert tally.bits == 32 * (2 * 2 * 3 * 8 + spec.metadata_size(4) + spec.metadata_size(9))


def test_a_fault_in_one_problem_of_one_family_is_counted_once_and_told_with_all_parameters(found):
    def fault(batch, outputs):
        if batch.family == "ties" and 2 in batch.index:
            outputs.ids[batch.index == 2, 0, 0] ^= 1

    result, printed = found(fault)
    assert {family: tally.mismatches for (_, family), tally in result.tallies.items()} == {
        "ties": 1,
        "permute-all-local": 0,
    }
    assert "MISMATCH faulty on cpu: R3" in printed
    assert "1 of 48 words differ: R3 ids 1" in printed
    assert "problem: family ties, seed 0, index 2, b 3, scale 0x" in printed
    assert "row stride 256" in printed
    assert "again: python -m oracle replay " in printed


def test_expected_and_actual_are_told_in_hex_and_decimal(found):
    _, printed = found(write("padded_tokens", 0, -2))
    assert "M5    padded_tokens[0]: expected 0x000000" in printed
    assert "actual 0xfffffffe (-2)" in printed


def test_two_backends_that_share_a_fault_are_said_to_agree_and_others_not(plant, found):
    plant(flip_a_weight_bit, "other")
    _, printed = found(flip_a_weight_bit, (FAULTY, OTHER, SPEC))
    assert "other on cpu writes the same wrong bits" in printed
    assert "spec on cpu is right here" in printed


def test_two_backends_with_different_faults_are_said_to_differ(plant, found):
    plant(lambda batch, outputs: outputs.weights.view(np.uint32).__ixor__(2), "other")
    _, printed = found(flip_a_weight_bit, (FAULTY, OTHER))
    assert "other on cpu is wrong too, with other bits" in printed


def race(launch: int) -> SimulationError:
    place = {
        "thread": 5,
        "line": 42,
        "text": "st.shared.b32 [%r1], %r2;",
        "address": 0x40,
        "buffer": "shared+64",
    }
    return SimulationError("race", "two threads write one word", launch=launch, **place)


def test_a_launch_that_the_simulator_stops_is_a_finding_and_the_others_are_compared(found):
    def fault(batch, outputs):
        stopped = np.nonzero(batch.index == 1)[0]
        if batch.ranges is None and len(stopped):
            raise race(int(stopped[0]))

    result, printed = found(fault, count=40)
    tally = result.tallies[FAULTY, "ties"]
    assert (tally.launches, tally.mismatches, result.left) == (40, 1, 0)
    assert tally.bits == 39 * 48 * 32
    assert "MISMATCH faulty on cpu: stopped by the simulator" in printed
    assert (
        "race: two threads write one word; thread 5, address 0x40 (shared+64); PTX line 42: st.shared"
        in printed
    )
    assert "index 1," in printed


def test_after_two_stopped_launches_the_rest_of_a_chunk_is_left_and_said_to_be(found):
    def fault(batch, outputs):
        raise race(len(batch) - 1)

    result, _ = found(fault, families=("ties",), count=40)
    tally = result.tallies[FAULTY, "ties"]
    assert (tally.launches, tally.mismatches, tally.bits, result.left) == (4, 4, 0, 36)
    assert not result.passed


def test_an_adapter_that_breaks_stops_the_run_with_its_place(found):
    from oracle.errors import CannotRunError

    def fault(batch, outputs):
        raise KeyError("sum")

    with pytest.raises(
        CannotRunError, match=r"faulty on cpu: KeyError at .*test_faults_found\.py:\d+ \(family ties\)"
    ):
        found(fault)


def test_at_most_six_findings_are_shown_and_each_kind_once(found):
    turn = iter(range(1000))

    def fault(batch, outputs):
        if outputs.metadata is not None:
            outputs.metadata[:, field("unused") + next(turn) % 2] = 0
            flip_a_weight_bit(batch, outputs)
        else:
            outputs.ids[:, 0, 0] = 300

    _, printed = found(fault, tile=tuple(range(1, 40)))
    assert 1 < printed.count("MISMATCH") <= 6
    assert len({line for line in printed.splitlines() if line.startswith("MISMATCH")}) == printed.count(
        "MISMATCH"
    )


def test_a_saved_finding_loads_as_the_same_bits(found, tmp_path):
    found(flip_a_weight_bit, families=("nan", "permute-natural"), batch=(3,))
    files = sorted(tmp_path.glob("*.npz"))
    assert files
    for path in files:
        target, batch, expected = replay.load(path)
        assert target == FAULTY
        again = expect(batch, expected)
        assert np.array_equal(again.ids, expected.ids)
        assert np.array_equal(again.weights.view(np.uint32), expected.weights.view(np.uint32))
        assert isinstance(again, Outputs)
        if expected.metadata is not None:
            assert np.array_equal(again.metadata, expected.metadata)
