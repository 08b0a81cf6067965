"""The host functions against a machine of two pretended CUDA devices: nothing here needs one."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import torch

from impl_cute import host
from spec.contract import check_route
from spec.layout import metadata_size
from spec.repeated import RepeatedCheck

UNTOUCHED = -7
STREAM = 77


class OnCuda:
    """A CPU tensor that claims to lie on a CUDA device."""

    def __init__(self, tensor, index=0):
        self.tensor, self.device = tensor, torch.device("cuda", index)
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.stride, self.data_ptr = tensor.stride, tensor.data_ptr


class Machine:
    """Two devices, the current one, and a record of what was compiled and launched."""

    def __init__(self):
        self.current, self.capturing = 0, False
        self.compiled, self.launched = [], []

    def compile(self, metadata, renormalize, options, early_dependents):
        time.sleep(0.02)  # long enough for another thread to arrive
        variant = (metadata, renormalize, early_dependents)
        self.compiled.append((self.current, variant, options))
        return bytes(variant)

    def load(self, code):
        return lambda *arguments: self.launched.append((tuple(map(bool, code)), *arguments))

    def stored(self, metadata, renormalize, arch, early_dependents):
        return self.load(self.compile(metadata, renormalize, arch, early_dependents))

    @contextmanager
    def on(self, device):
        before, self.current = self.current, device
        try:
            yield
        finally:
            self.current = before


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(host, "_compiled", {})
    monkeypatch.setattr(host, "_loaded", set())
    monkeypatch.setattr(host, "_has_device", lambda: True)
    monkeypatch.setattr(host, "compile_object", machine.compile)
    monkeypatch.setattr(host, "load_object", machine.load)
    monkeypatch.setattr(host, "stored_function", machine.stored)
    monkeypatch.setattr(host, "_check", RepeatedCheck("cuda", torch))
    monkeypatch.setattr(host, "_current", lambda: machine.current)
    monkeypatch.setattr(host, "_stream", lambda device: STREAM + device)
    monkeypatch.setattr(torch.cuda, "device", machine.on)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: machine.current)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: [(9, 0), (10, 3)][machine.current])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: machine.capturing)
    return machine


@pytest.fixture
def scratch(monkeypatch):
    """Let `prepare` make its scratch tensors on the CPU."""
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, **how: zeros(*shape, **how | {"device": "cpu"}))


def call(tokens=3, tile=8, index=0, row_stride=260):
    """Right arguments of `route`."""
    rows = torch.zeros(7 * row_stride + 256).as_strided((tokens, 256), (row_stride, 1))
    tensors = {
        "logits": rows,
        "bias": torch.zeros(256),
        "ids": torch.full((tokens, 8), UNTOUCHED, dtype=torch.int32),
        "weights": torch.full((tokens, 8), float(UNTOUCHED)),
        "metadata": torch.full((metadata_size(tile),), UNTOUCHED, dtype=torch.int32),
    }
    on_cuda = {name: OnCuda(tensor, index) for name, tensor in tensors.items()}
    return on_cuda | {"scale": 2.5, "local_expert_offset": 64, "num_local_experts": 32, "tile_n": tile}


def places(made):
    return {name: made[name].data_ptr() for name in ("logits", "bias", "ids", "weights", "metadata")}


def launched(logits, bias, ids, weights, metadata, numbers, row_stride=260, device=0):
    """What a launch of three tokens is given; numbers are scale, offset, count and tile."""
    scale, *rest = numbers
    return (logits, row_stride, bias, ids, weights, 3, scale, metadata, *rest, STREAM + device)


def test_route_hands_addresses_and_checked_numbers_to_the_variant(machine):
    made = call()
    for _ in range(2):
        host.route(**made, renormalize=False)
    assert (
        machine.launched == [((True, False, False), *launched(**places(made), numbers=(2.5, 64, 32, 8)))] * 2
    )


def test_a_compiled_routing_launches_what_it_is_called_with(machine):
    made = call()
    tensors = [made[name] for name in ("logits", "bias", "ids", "weights", "metadata")]
    for routing in (host.compiled_routing(True, False), host.compile_routing(True, False)):
        routing(*tensors, 2.5, 64, 32, 8)
    assert (
        machine.launched == [((True, False, False), *launched(**places(made), numbers=(2.5, 64, 32, 8)))] * 2
    )
    host.compiled_routing(False, True)(*tensors[:4], None, 1.0, 0, 0, 0)
    plain = places(made) | {"metadata": None}
    assert machine.launched[-1] == ((False, True, False), *launched(**plain, numbers=(1.0, 0, 0, 0)))


def test_route_without_metadata_looks_at_no_range_and_takes_the_plain_variant(machine):
    made = call()
    tensors = [made[name] for name in ("logits", "bias", "ids", "weights")]
    host.route(*tensors, 1e39, local_expert_offset="none", num_local_experts=None, tile_n=-1)
    numbers = (float("inf"), 0, 0, 0)
    plain = places(made) | {"metadata": None}
    assert machine.launched == [((False, True, False), *launched(**plain, numbers=numbers))]


def test_early_dependents_is_a_variant_of_its_own(machine):
    for early in (True, False, True):
        host.route(**call(), early_dependents=early)
    assert [variant for variant, *_ in machine.launched] == [(True, True, e) for e in (True, False, True)]
    assert [variant for _, variant, _ in machine.compiled] == [(True, True, True), (True, True, False)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logits", OnCuda(torch.zeros(9, 256))),
        ("logits", torch.zeros(3, 256)),
        ("bias", OnCuda(torch.zeros(512)[::2])),
        ("ids", OnCuda(torch.zeros(3, 8, dtype=torch.int64))),
        ("weights", OnCuda(torch.zeros(3, 8), index=1)),
        ("scale", True),
        ("renormalize", None),
        ("early_dependents", 1),
        ("metadata", OnCuda(torch.zeros(8, dtype=torch.int32))),
        ("local_expert_offset", 256),
        ("num_local_experts", 0),
        ("tile_n", 257),
    ],
    ids=[
        "nine-rows", "on-the-cpu", "strided-bias", "int64-ids", "weights-on-another-device", "bool-scale",
        "renormalize-none", "early-dependents-1", "short-metadata", "offset-past-the-experts",
        "no-local-experts", "tile-of-257",
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named_and_nothing_is_compiled_launched_or_written(machine, name, value):
    made = call()
    with pytest.raises(ValueError, match=name):
        host.route(**made | {name: value})
    assert machine.compiled == machine.launched == []
    assert all((made[output].tensor == UNTOUCHED).all() for output in ("ids", "weights", "metadata"))


def test_route_compiles_for_the_device_of_its_tensors_and_leaves_the_current_one(machine):
    host.route(**call(index=1))
    host.route(**call(index=0))
    assert [(device, arch) for device, _, arch in machine.compiled] == [(1, "sm_103a"), (0, "sm_90a")]
    assert [stream for *_, stream in machine.launched] == [STREAM + 1, STREAM]
    assert machine.current == 0


def test_whatever_the_numbers_a_variant_is_compiled_once(machine):
    for tokens, tile, row_stride in ((1, 1, 256), (8, 256, 1 << 16), (2, 16, 260)):
        host.route(**call(tokens, tile, row_stride=row_stride))
    assert len(machine.compiled) == 1
    assert len(machine.launched) == 3


def test_eight_threads_at_once_compile_a_variant_once(machine):
    gate, found = threading.Barrier(8), []

    def ask():
        gate.wait()
        found.append(host.compiled_routing(True, True))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(machine.compiled) == 1
    assert len(found) == 8
    assert len(set(found)) == 1


def test_prepare_compiles_and_runs_both_variants_once_and_a_capture_then_needs_neither(machine, scratch):
    host.prepare()
    host.prepare(renormalize=True)
    both = [(False, True, False), (True, True, False)]
    assert [variant for _, variant, _ in machine.compiled] == both
    assert [variant for variant, *_ in machine.launched] == both
    machine.capturing = True
    host.prepare()
    host.route(**call())
    assert len(machine.compiled) == 2
    assert len(machine.launched) == 3


def test_prepare_makes_the_pair_of_variants_that_it_is_asked_for(machine, scratch):
    host.prepare(False, early_dependents=True)
    pair = [(False, False, True), (True, False, True)]
    assert [variant for _, variant, _ in machine.compiled] == pair
    assert [variant for variant, *_ in machine.launched] == pair


def test_prepare_runs_on_tensors_that_the_contract_allows(machine, scratch, monkeypatch):
    called = []

    def spy(routing, *arguments):
        called.append(arguments)

    monkeypatch.setattr(host.Routing, "__call__", spy)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        host.prepare()
    finally:
        torch.set_default_dtype(before)
    for *tensors, buffer, scale, offset, count, tile in called:
        on_cuda = [OnCuda(tensor) for tensor in tensors]
        checked = (scale, True, None if buffer is None else OnCuda(buffer), offset, count, tile, False)
        check_route(*on_cuda, *checked, device_type="cuda")
    assert [buffer is None for _, _, _, _, buffer, *_ in called] == [True, False]


@pytest.mark.parametrize(
    "function",
    [
        lambda: host.route(**call(), early_dependents=True),
        lambda: host.prepare(True, True),
        lambda: host.compile_routing(False, True, early_dependents=True),
        lambda: host.compiled_routing(False, True, True),
    ],
    ids=["route", "prepare", "compile_routing", "compiled_routing"],
)
def test_compiling_during_a_capture_is_refused_and_prepare_is_named(machine, function):
    machine.capturing = True
    with pytest.raises(RuntimeError, match=r"prepare\(renormalize=True, early_dependents=True\)"):
        function()
    assert machine.compiled == machine.launched == []


def test_loading_during_a_capture_is_refused(machine):
    host.compiled_routing(False, True)
    host.compiled_routing(True, True)
    machine.capturing = True
    with pytest.raises(RuntimeError, match="prepare"):
        host.prepare()
    assert machine.launched == []


def test_compile_routing_compiles_anew_and_an_architecture_in_its_options_wins(machine):
    first = host.compile_routing(True, False, "--generate-line-info")
    assert host.compile_routing(True, False, "--gpu-arch=sm_120a") is not first
    assert [options for *_, options in machine.compiled] == [
        "--gpu-arch sm_90a --generate-line-info",
        "--gpu-arch=sm_120a",
    ]


@pytest.mark.parametrize("function", [host.compile_routing, host.compiled_routing])
@pytest.mark.parametrize(("metadata", "renormalize"), [(1, True), (True, 0), (None, False), (False, "yes")])
def test_a_variant_that_is_no_bool_is_refused(machine, function, metadata, renormalize):
    host.compiled_routing(True, True)
    with pytest.raises(ValueError, match="must be a bool"):
        function(metadata, renormalize)
    assert len(machine.compiled) == 1


def test_prepare_refuses_what_is_no_bool(machine):
    with pytest.raises(ValueError, match="renormalize"):
        host.prepare(1)
    with pytest.raises(ValueError, match="early_dependents must be a bool, not 0"):
        host.prepare(True, 0)
    assert machine.compiled == []


WITHOUT_A_DEVICE = """
import torch
from impl_cute import host
from impl_cute.compiler import compile_kernel
from spec.contract import check_route
if torch.cuda.is_available():
    raise SystemExit("hide the devices")
host.prepare(False)
routing = host.compiled_routing(True, False)
assert routing is host.compiled_routing(True, False)
compiled = []
compile_object = host.compile_object
host.compile_object = lambda *arguments: compiled.append(compile_object(*arguments)) or compiled[-1]
host.compile_routing(True, False)
assert compile_kernel(True, False, "sm_90a").cubin in compiled[0]
ids, weights = torch.zeros(1, 8, dtype=torch.int32), torch.zeros(1, 8)
try:
    host.route(torch.zeros(1, 256), torch.zeros(256), ids, weights, 1.0)
except ValueError as error:
    assert "logits must be on a cuda device" in str(error), error
else:
    raise SystemExit("a CPU tensor was accepted")
"""


def test_without_a_device_it_compiles_for_sm_90a_and_refuses_cpu_tensors(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    command = [sys.executable, "-c", WITHOUT_A_DEVICE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
