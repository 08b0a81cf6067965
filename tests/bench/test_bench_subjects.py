"""What is timed is what is right: every kind of subject, on a pretended card."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import spec.host
from oracle import ptxsim
from oracle.bench import floors, kernels, subjects
from oracle.bench.points import BATCHES, INPUTS, TILES, Point, points, problem
from oracle.problem import POISON_WORD
from oracle.ptxsim import SimulationError


def pretend_host(monkeypatch, name, route):
    host = ModuleType(f"impl_{name}.host")
    host.prepared = []

    def prepare(renormalize, **options):
        host.prepared.append((renormalize, options))

    host.route, host.prepare = route, prepare
    monkeypatch.setitem(sys.modules, host.__name__, host)
    return host


def checked(made, clock):
    graph = clock.capture(made.enqueue)
    return kernels.check(made, clock, graph)


@pytest.mark.parametrize("tile", [0, *TILES])
@pytest.mark.parametrize("inputs", list(INPUTS))
def test_our_kernel_is_called_as_the_contract_says(pretended, clock, inputs, tile):
    host = pretend_host(pretended, "cute", spec.host.route)
    made = subjects.subject(Point("cute", 4, tile, inputs))
    assert host.prepared == [(True, {})]
    assert checked(made, clock()) == 0


def test_early_dependents_are_asked_for_and_the_bits_are_the_same(pretended, clock):
    given = []

    def route(*arguments, early_dependents=False):
        given.append(early_dependents)
        spec.host.route(*arguments)

    host = pretend_host(pretended, "triton", route)
    made = subjects.subject(Point("triton-early", 4, 8))
    assert checked(made, clock()) == 0
    assert host.prepared == [(True, {"early_dependents": True})]
    assert set(given) == {True}


@pytest.mark.parametrize("field", ["ids", "weights", "metadata"])
def test_one_wrong_word_is_counted(pretended, clock, field):
    def wrong(logits, bias, ids, weights, scale, renormalize, metadata, *rest):
        spec.host.route(logits, bias, ids, weights, scale, renormalize, metadata, *rest)
        written = {"ids": ids, "weights": weights, "metadata": metadata}[field].view(torch.int32)
        written.view(-1)[-1] += 1  # of the metadata that is the guard

    pretend_host(pretended, "triton", wrong)
    made = subjects.subject(Point("triton", 2, 8))
    made.poison()
    made.enqueue(1)
    assert made.differing() == 1


def test_a_kernel_that_writes_nothing_does_not_pass(pretended, clock):
    pretend_host(pretended, "cute", lambda *arguments: None)
    assert checked(subjects.subject(Point("cute", 8)), clock()) == 2 * 8 * 8


def test_the_eager_formula_is_enqueued_and_held_to_nothing(pretended, clock):
    made = subjects.subject(Point("torch", 8))
    assert checked(made, clock()) is None
    made.call()


def floor_on_simulator(launched):
    def enqueue(name, addresses, threads, stream):
        launched.append((name, threads, stream))

    return enqueue


@pytest.mark.parametrize("tokens", BATCHES, ids=lambda tokens: f"b{tokens}")
def test_the_floor_loads_each_row_behind_the_wait_and_stores_its_largest_word_sixteen_times(tokens):
    logits = problem(Point("floor", tokens)).logits
    ids = np.full((1, tokens, 8), POISON_WORD, np.int32)
    weights = ids.copy()
    memory = ptxsim.Memory(launches=1)
    buffers = [
        memory.add("logits", logits, dependent=True, writable=False),
        memory.add("ids", ids, writable=True),
        memory.add("weights", weights, writable=True),
    ]
    program = ptxsim.parse(floors.FLOOR, "floor")
    ptxsim.launch(program, memory, [buffer.address for buffer in buffers], block=floors.WARP * tokens)
    largest = logits.view(np.int32).max(axis=-1)[..., None]
    assert (ids == largest).all()
    assert (weights == largest).all()


def test_a_floor_without_its_wait_is_an_error():
    test = test_the_floor_loads_each_row_behind_the_wait_and_stores_its_largest_word_sixteen_times
    original = floors.FLOOR
    try:
        floors.FLOOR = original.replace("griddepcontrol.wait;\n", "")
        with pytest.raises(SimulationError):
            test(1)
    finally:
        floors.FLOOR = original


@pytest.mark.parametrize("name", ["empty", "wait"])
def test_the_empty_kernels_run(name):
    program = ptxsim.parse(floors.TEXTS[name], name)
    assert ptxsim.launch(program, ptxsim.Memory(launches=1), [], block=32).launches == 1


@pytest.mark.parametrize("kernel", ["floor", "wait", "empty"])
def test_floors_are_launched_on_the_current_stream_with_a_warp_a_row(pretended, kernel):
    launched = []

    def enqueue(name, addresses, threads, stream):
        launched.append((name, len(addresses), threads, stream))

    pretended.setattr(floors, "enqueue", enqueue)
    made = subjects.subject(Point(kernel, 2))
    made.enqueue(2)
    assert launched == [(kernel, 3 if kernel == "floor" else 0, 64, 77)] * 2
    wrong = made.differing()
    assert wrong == (32 if kernel == "floor" else 0), "nothing was written, which is right for two of them"


def test_flashinfer_gets_each_launch_as_one_call(pretended, clock):
    given = []
    from oracle.peers import flashinfer

    def driver():
        return SimpleNamespace(launch=lambda calls, stream: given.append((calls.copy(), stream)))

    pretended.setattr(flashinfer, "driver", driver)
    made = subjects.subject(Point("flashinfer", 4, 64))
    made.enqueue(5)
    ((calls, stream),) = given
    assert stream == 77
    assert len(calls) == 5
    assert len(np.unique(calls)) == 1
    assert [int(calls[0][name]) for name in ("tokens", "tile", "offset", "count")] == [4, 64, 0, 256]
    assert int(calls[0]["ids"]) == 0
    assert all(
        int(calls[0][name])
        for name in ("logits", "bias", "replay", "weights", "permuted_to_token", "padded_tokens")
    )
    made.poison()
    assert made.differing() > 0, "nothing was written"


def test_flashinfer_that_writes_the_right_words_is_right():
    from oracle.backends import flashinfer as adapter
    from oracle.problem import Outputs

    batch = problem(Point("flashinfer", 8, 8))
    found = adapter.allocate(batch, Outputs.poisoned(batch), from_logits=True)
    ids, weights = spec.route(batch.logits, batch.bias, batch.scale, True)
    found["replay"][...], found["weights"][...] = ids, weights
    whole = Outputs.poisoned(batch).metadata
    numbers = (np.array([number], np.int32) for number in (0, 256, 8))
    spec.write_metadata_bulk(whole, ids, *numbers)
    for field, following in zip(spec.FIELDS, [*spec.FIELDS[1:], None], strict=True):
        if field.clause != "M8":
            found[field.name][...] = whole[:, field.offset : following.offset if following else None]
    assert subjects._flashinfer_differing(batch, found, adapter.assemble) == 0
    found["cta_limit"][0, 1] += 1
    assert subjects._flashinfer_differing(batch, found, adapter.assemble) == 1


def test_vllm_gets_its_own_outputs_and_the_epsilon(pretended):
    from oracle.peers import vllm

    given = {}

    def fused(logits, bias, picks, scale, **named):
        given.update(named, picks=picks)

    module = SimpleNamespace(fused_musespark1x_routing=fused)
    pretended.setattr(vllm, "load", lambda torch: module)
    made = subjects.subject(Point("vllm", 2))
    made.enqueue(1)
    assert given["picks"] == 8
    assert given["router_score_division_eps"] == spec.SUM_EPSILON
    assert given["topk_ids"].dtype == torch.int32
    assert made.differing() == 32


def test_points_cover_every_row_of_the_tables():
    all_points = points()
    assert len(all_points) == len(set(all_points))
    for kernel in ("cute", "triton"):
        natural = {(p.tile, p.batch) for p in all_points if p.kernel == kernel and p.inputs == "natural"}
        assert natural == {(tile, b) for tile in (0, *TILES) for b in BATCHES}
        tied = {(p.inputs, p.tile, p.batch) for p in all_points if p.kernel == kernel} - {
            ("natural", tile, b) for tile, b in natural
        }
        assert tied == {(i, tile, b) for i in INPUTS if i != "natural" for tile in (0, 8) for b in BATCHES}


@pytest.mark.parametrize("inputs", [name for name in INPUTS if name != "natural"])
def test_tied_inputs_have_a_tie_at_the_eighth_pick(inputs):
    batch = problem(Point("cute", 8, 0, inputs))
    keys = np.sort(spec.add_rn(spec.sigmoid(batch.logits[0]), batch.bias[0]), axis=-1)[:, ::-1]
    assert (keys[:, 7] == keys[:, 8]).all()


def test_natural_inputs_have_no_tie_among_the_picks():
    batch = problem(Point("cute", 8))
    keys = np.sort(spec.add_rn(spec.sigmoid(batch.logits[0]), batch.bias[0]), axis=-1)[:, ::-1]
    assert (keys[:, :8] > keys[:, 1:9]).all()
