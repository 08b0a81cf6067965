import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from impl_triton import compiler, host
from spec.layout import metadata_size
from spec.repeated import RepeatedCheck

STREAM = 77
FUNCTION = 1234


class OnCuda:
    """A CPU tensor that says it lies on a CUDA device: enough for the checks and for a fake launch."""

    def __init__(self, tensor, index=0):
        self.tensor, self.device = tensor, torch.device("cuda", index)
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.stride, self.data_ptr = tensor.stride, tensor.data_ptr


class Machine:
    """A machine with two CUDA devices whose compiler and launches are recorded."""

    def __init__(self):
        self.device, self.capturing = 0, False
        self.built, self.loaded, self.launches = [], [], []

    def build(self, metadata, renormalize, arch, options="", early_dependents=False):
        time.sleep(0.02)  # long enough for a second thread to come by
        self.built.append((self.device, (metadata, renormalize, early_dependents), arch, options))
        return SimpleNamespace(run=self.run, function=FUNCTION, packed_metadata="packed")

    def run(self, *arguments):
        self.launches.append((self.device, arguments))

    @contextmanager
    def on(self, device):
        before, self.device = self.device, device
        try:
            yield
        finally:
            self.device = before


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(host, "_compiled", {})
    monkeypatch.setattr(host, "_load", machine.loaded.append)
    monkeypatch.setattr(compiler, "build", machine.build)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: machine.device)
    monkeypatch.setattr(host, "_current", lambda: machine.device)
    monkeypatch.setattr(host, "_stream", lambda device: STREAM + device)
    monkeypatch.setattr(host, "_check", RepeatedCheck("cuda", torch))
    monkeypatch.setattr(torch.cuda, "device", machine.on)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (10, 3) if device else (9, 0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: machine.capturing)
    return machine


def arguments(tokens=3, tile=8, index=0, row_stride=256):
    """Valid arguments of `route`, by name."""
    tensors = {
        "logits": torch.zeros(8 * row_stride + 256).as_strided((tokens, 256), (row_stride, 1)),
        "bias": torch.zeros(256),
        "ids": torch.full((tokens, 8), -7, dtype=torch.int32),
        "weights": torch.full((tokens, 8), -7.0),
        "metadata": torch.full((metadata_size(tile),), -7, dtype=torch.int32),
    }
    wrapped = {name: OnCuda(tensor, index) for name, tensor in tensors.items()}
    return wrapped | {"scale": 2.5, "local_expert_offset": 64, "num_local_experts": 32, "tile_n": tile}


def launched(machine):
    """The kernel's arguments of the one launch, by the compiler's names."""
    ((_, values),) = machine.launches
    assert values[:9] == (1, 1, 1, STREAM + machine.launches[0][0], FUNCTION, "packed", None, None, None)
    assert len(values) == 9 + len(compiler.SIGNATURE)
    return dict(zip(compiler.SIGNATURE, values[9:], strict=True))


def test_route_launches_one_program_with_the_addresses_and_numbers_of_the_call(machine):
    call = arguments(row_stride=1 << 10)
    host.route(**call)
    names = ("logits", "bias", "ids", "weights", "metadata")
    assert launched(machine) == {name: call[name].data_ptr() for name in names} | {
        "b": 3, "stride4": 256, "scale": 2.5, "offset": 64, "count": 32, "tile": 8,
        "with_metadata": None, "renormalize": None, "early_dependents": None,
    }  # fmt: skip
    assert machine.built == [(0, (True, True, False), "sm_90a", "")]


def test_early_dependents_is_a_variant_of_its_own(machine):
    for early in (True, False, True):
        host.route(**arguments(), early_dependents=early)
    assert [variant for _, variant, _, _ in machine.built] == [(True, True, True), (True, True, False)]
    assert len(machine.launches) == 3


class Launcher:
    """Triton's launcher as one of its versions is, above the C function that it calls in the end."""

    def __init__(self, apart, scratch=0, adds=()):
        self.apart, self.global_scratch_size, self.profile_scratch_size = apart, scratch, 0
        self.adds, self.launches, self.calls = adds, [], 0

    def launch(self, *arguments):
        self.launches.append(arguments)

    def __call__(self, x, y, z, stream, function, packed, metadata, enter, leave, *arguments):
        self.calls += 1
        if self.apart:
            fixed = (function, False, True, packed, metadata, enter, leave, None, None, "types")
            self.launch(x, y, z, stream, *fixed, (*arguments, *self.adds))
        else:
            fixed = (function, False, True, None, None, packed, metadata, enter, leave)
            self.launch(x, y, z, stream, *fixed, *arguments, *self.adds)


@pytest.mark.parametrize("apart", [False, True], ids=["arguments-in-a-row", "arguments-in-a-tuple"])
def test_a_launch_calls_what_tritons_launcher_calls(machine, monkeypatch, apart):
    launcher, asked = Launcher(apart), Launcher(apart)
    monkeypatch.setattr(machine, "run", launcher)
    call = arguments(row_stride=1 << 10)
    for _ in range(3):
        host.route(**call)
    assert launcher.calls == 1, "the launcher is asked once, and not called for a launch"
    names = ("logits", "bias", "ids", "weights", "metadata")
    given = (*(call[name].data_ptr() for name in names), 3, 256, 2.5, 64, 32, 8, None, None, None)
    asked(1, 1, 1, STREAM, FUNCTION, "packed", None, None, None, *given)
    assert launcher.launches == asked.launches * 3


@pytest.mark.parametrize("other", [{"scratch": 64}, {"adds": ("more",)}], ids=["scratch", "more-arguments"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_launcher_that_does_more_than_pass_on_is_called_for_every_launch(
    machine, monkeypatch, other, apart
):
    launcher = Launcher(apart, **other)
    monkeypatch.setattr(machine, "run", launcher)
    host.route(**arguments())
    before = launcher.calls
    host.route(**arguments())
    assert launcher.calls == before + 1
    assert launcher.launches[-1][3] == STREAM


def test_a_compiled_routing_launches_what_it_is_called_with(machine):
    call = arguments(row_stride=260)
    tensors = [call[name] for name in ("logits", "bias", "ids", "weights", "metadata")]
    host.compiled_routing(True, True)(*tensors, 2.5, 64, 32, 8)
    values = launched(machine)
    assert [values[name] for name in ("b", "stride4", "scale", "offset", "count", "tile")] == [
        3,
        65,
        2.5,
        64,
        32,
        8,
    ]
    assert values["metadata"] == tensors[4].data_ptr()


def test_route_without_metadata_takes_the_plain_variant(machine):
    call = arguments()
    host.route(call["logits"], call["bias"], call["ids"], call["weights"], -0.0, False)
    values = launched(machine)
    assert values["metadata"] is None
    assert str(values["scale"]) == "-0.0"
    assert machine.built == [(0, (False, False, False), "sm_90a", "")]


def test_route_runs_on_the_device_of_its_tensors_and_leaves_the_current_one(machine):
    host.route(**arguments(index=1))
    assert [device for device, _ in machine.launches] == [1]
    assert machine.built == [(1, (True, True, False), "sm_103a", "")]
    assert machine.device == 0
    host.route(**arguments(index=0))
    assert [device for device, _ in machine.launches] == [1, 0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logits", OnCuda(torch.zeros(9, 256))),
        ("logits", torch.zeros(3, 256)),
        ("bias", OnCuda(torch.zeros(256, dtype=torch.float64))),
        ("ids", OnCuda(torch.zeros(3, 8, dtype=torch.int64))),
        ("weights", OnCuda(torch.zeros(3, 16)[:, ::2])),
        ("scale", "2.5"),
        ("renormalize", 1),
        ("early_dependents", None),
        ("metadata", OnCuda(torch.zeros(metadata_size(8) - 1, dtype=torch.int32))),
        ("local_expert_offset", -1),
        ("num_local_experts", 0),
        ("tile_n", 257),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_wrong_argument_is_named_and_nothing_is_compiled_launched_or_written(machine, name, value):
    call = arguments()
    with pytest.raises(ValueError, match=name):
        host.route(**(call | {name: value}))
    assert machine.built == machine.launches == []
    for output in ("ids", "weights", "metadata"):
        assert (call[output].tensor == -7).all()


def test_prepare_compiles_and_loads_both_variants_and_route_does_neither_after_it(machine):
    host.prepare()
    assert machine.loaded == [FUNCTION] * 2
    assert machine.built == [(0, (metadata, True, False), "sm_90a", "") for metadata in (False, True)]
    host.prepare(True)
    for tokens, tile, row_stride in ((1, 1, 256), (8, 256, 1 << 20), (2, 16, 260)):
        host.route(**arguments(tokens, tile, row_stride=row_stride))
    assert len(machine.built) == len(machine.loaded) == 2


def test_prepare_makes_the_pair_of_variants_that_it_is_asked_for(machine):
    host.prepare(False, early_dependents=True)
    assert [variant for _, variant, _, _ in machine.built] == [(False, False, True), (True, False, True)]
    assert len(machine.loaded) == 2


def test_eight_threads_at_once_compile_a_variant_once(machine):
    gate, found = threading.Barrier(8), []

    def ask():
        gate.wait()
        found.append(host.compiled_routing(True, False))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(machine.built) == 1
    assert len(found) == 8
    assert all(routing is found[0] for routing in found)


@pytest.mark.parametrize(
    "call",
    [
        lambda: host.route(**arguments(), early_dependents=True),
        lambda: host.prepare(True, True),
        lambda: host.compile_routing(True, True, early_dependents=True),
        lambda: host.compiled_routing(True, True, True),
    ],
    ids=["route", "prepare", "compile_routing", "compiled_routing"],
)
def test_compiling_during_a_capture_is_refused_with_the_way_out(machine, call):
    machine.capturing = True
    with pytest.raises(RuntimeError, match=r"prepare\(renormalize=True, early_dependents=True\)"):
        call()
    assert machine.built == machine.launches == []


def test_a_prepared_variant_can_be_captured(machine):
    host.prepare()
    machine.capturing = True
    host.route(**arguments())
    assert len(machine.launches) == 1


def test_compile_routing_compiles_anew_with_its_options(machine):
    first, second = (host.compile_routing(False, True, "maxnreg=64") for _ in range(2))
    assert first is not second
    assert machine.built == [(0, (False, True, False), "sm_90a", "maxnreg=64")] * 2


def test_a_variant_for_another_architecture_is_compiled_and_not_loaded(machine):
    host.compile_routing(False, True, "arch=sm_90a")
    assert len(machine.loaded) == 1
    host.compile_routing(False, True, "arch=sm_120a")
    assert len(machine.built) == 2
    assert len(machine.loaded) == 1


@pytest.mark.parametrize("function", [host.compile_routing, host.compiled_routing])
@pytest.mark.parametrize("variant", [(1, True), (None, True), (True, 0), (False, "yes")])
def test_a_variant_that_is_no_bool_is_refused(machine, function, variant):
    with pytest.raises(ValueError, match="must be a bool"):
        function(*variant)
    with pytest.raises(ValueError, match="renormalize must be a bool"):
        host.prepare(1)
    with pytest.raises(ValueError, match="early_dependents must be a bool, not 0"):
        host.prepare(True, 0)
    assert machine.built == []
