"""The adapter: what it packs, what it runs, why it cannot."""

import numpy as np
import pytest

import spec.host
from oracle import backends
from oracle.backends import cute, on_cuda
from oracle.compare import compare, expect
from oracle.problem import Batch, Outputs, Ranges


def problems(tokens, row_strides=(256, 260, 1024, 0), ranges=True):
    """Four problems with ties, one of each row stride and of each tile and range."""
    rng = np.random.default_rng(tokens)
    logits = np.round(rng.standard_normal((4, tokens, 256)).astype(np.float32) * 2)
    logits[3] = logits[3, :1]
    number = [np.array(n, np.int32) for n in ((0, 64, 255, 100), (256, 64, 1, 99), (1, 256, 8, 3))]
    return Batch(
        "by-hand",
        logits,
        np.round(rng.standard_normal((4, 256))).astype(np.float32),
        np.array([1.0, -2.5, np.inf, 0.0], np.float32),
        tokens % 2 == 0,
        np.array(row_strides, np.int64),
        Ranges(*number) if ranges else None,
    )


@pytest.mark.parametrize("ranges", [True, False], ids=["metadata", "plain"])
@pytest.mark.parametrize("tokens", range(1, 9))
def test_the_simulated_kernel_writes_what_is_specified(tokens, ranges):
    batch = problems(tokens, (256, 260, (1 << 31) + 4, 0), ranges)
    outputs = Outputs.poisoned(batch)
    backends.get("cute").run(batch, outputs, "sim")
    assert not compare(expect(batch), outputs).any()


@pytest.mark.parametrize("ranges", [True, False], ids=["metadata", "plain"])
def test_a_route_is_called_once_a_problem_and_its_outputs_come_back(ranges):
    batch, calls = problems(3, ranges=ranges), []

    def route(*arguments):
        calls.append(arguments)
        spec.host.route(*arguments)

    outputs = Outputs.poisoned(batch)
    on_cuda.route_each(route, batch, outputs, "cpu")
    assert not compare(expect(batch), outputs).any()
    assert [logits.stride() for logits, *_ in calls] == [(stride, 1) for stride in (256, 260, 1024, 0)]
    assert all(len(arguments) == (10 if ranges else 6) for arguments in calls)


def test_parameters_stand_in_the_order_of_the_kernel():
    values = {name: name for name in reversed(cute.PARAMETERS)}
    assert cute.parameters(values) == list(cute.PARAMETERS)
    del values["metadata"]
    assert cute.parameters(values) == [name for name in cute.PARAMETERS if name != "metadata"]


def test_it_says_that_the_compiler_is_missing(monkeypatch):
    monkeypatch.setattr(cute, "missing_compiler", lambda backend: f"no compiler for {backend}")
    for device in ("sim", "cuda"):
        assert backends.unavailable("cute", device) == "no compiler for cute"


def test_it_says_that_the_device_is_missing(monkeypatch):
    monkeypatch.setattr(on_cuda, "missing_device", lambda: "no device")
    assert backends.unavailable("cute", "cuda") == "no device"
    assert backends.unavailable("cute", "sim") is None
