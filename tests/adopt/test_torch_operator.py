"""`torch.ops.musespark_routing.route`: what torch knows of it, its errors, and when it is there."""

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from spec import torch_operator

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"b": 1},
        {"b": 8, "tile": 5, "renormalize": False},
        {"tile": 0},
        {"stride": 512},
        {"early_dependents": True, "gradients": True},
    ],
    ids=[
        "metadata",
        "one-token",
        "raw-weights",
        "no-metadata",
        "a-slice-of-wider-rows",
        "gradients-and-early-dependents",
    ],
)
def test_every_check_that_torch_has_for_operators_passes(door, call, shape):
    arguments = call(**{name: value for name, value in shape.items() if name != "gradients"})
    arguments["logits"].requires_grad_("gradients" in shape)
    results = torch.library.opcheck(torch.ops.musespark_routing.route.default, (), arguments)
    assert set(results) == {
        "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"
    }  # fmt: skip


@pytest.mark.parametrize("tile", [0, 8])
@pytest.mark.parametrize("renormalize", [True, False])
def test_the_operator_writes_what_route_writes(door, call, outputs, tile, renormalize):
    for b in range(1, 9):
        right, tested = call(b, tile, renormalize), call(b, tile, renormalize)
        door.route(**right)
        torch.ops.musespark_routing.route(**tested)
        assert outputs(tested) == outputs(right) != outputs(call(b, tile, renormalize))


def test_no_gradient_is_recorded_and_inference_tensors_are_taken(door, call):
    arguments = call()
    arguments["logits"].requires_grad_()
    torch.ops.musespark_routing.route(**arguments)
    assert not arguments["weights"].requires_grad
    with torch.inference_mode():
        torch.ops.musespark_routing.route(**call())


@pytest.mark.parametrize("backend", ["spec", "impl_cute", "impl_triton"])
def test_the_schema_is_the_signature_of_every_backends_route(door, backend):
    signature = inspect.signature(importlib.import_module(f"{backend}.host").route)
    schema = torch.ops.musespark_routing.route.default._schema
    expected = [
        (each.name, None if each.default is inspect.Parameter.empty else each.default)
        for each in signature.parameters.values()
    ]
    assert [(each.name, each.default_value) for each in schema.arguments] == expected
    written = {
        each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write
    }
    assert written == {"ids", "weights", "metadata"}
    assert not schema.returns


def test_a_compiler_is_told_to_leave_strides_and_that_it_may_compile(door):
    tags = torch.ops.musespark_routing.route.default.tags
    assert {torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag} <= set(tags)


WRONG = {
    "nine tokens": lambda t: {"logits": torch.zeros(9, 256)},
    "no tokens": lambda t: {"logits": torch.zeros(0, 256)},
    "double logits": lambda t: {"logits": t["logits"].double()},
    "columns apart": lambda t: {"logits": torch.zeros(3, 512)[:, ::2]},
    "odd rows": lambda t: {"logits": torch.zeros(3, 257)[:, :256]},
    "short bias": lambda t: {"bias": torch.zeros(255)},
    "long ids": lambda t: {"ids": t["ids"].long()},
    "ids of more tokens": lambda t: {"ids": torch.zeros(4, 8, dtype=torch.int32)},
    "weights in columns": lambda t: {"weights": torch.zeros(8, 3).t()},
    "short metadata": lambda t: {"metadata": t["metadata"][:708]},
    "no experts": lambda t: {"num_local_experts": 0},
    "an offset below 0": lambda t: {"local_expert_offset": -1},
    "experts past the last": lambda t: {"num_local_experts": 241},
    "no tile": lambda t: {"tile_n": 0},
}
DATA = {
    "logits off 16 bytes": lambda t: {"logits": torch.zeros(3 * 256 + 1)[1:].view(3, 256)},
    "weights over ids": lambda t: {"weights": t["ids"].view(torch.float32)},
}


@pytest.mark.parametrize("wrong", [*WRONG, *DATA])
def test_what_breaks_the_contract_is_the_same_value_error(door, call, outputs, wrong):
    arguments = call()
    arguments |= (WRONG | DATA)[wrong](arguments)
    before = outputs(arguments)
    with pytest.raises(ValueError, match="must") as expected:
        door.route(**arguments)
    with pytest.raises(ValueError, match="must") as raised:
        torch.ops.musespark_routing.route(**arguments)
    assert str(raised.value) == str(expected.value)
    assert outputs(arguments) == before


@pytest.mark.parametrize("wrong", WRONG)
def test_what_shapes_show_is_refused_without_data(door, call, wrong):
    arguments = call()
    arguments |= WRONG[wrong](arguments)
    with pytest.raises(ValueError, match="must") as expected:
        door.route(**arguments)
    with FakeTensorMode() as mode, pytest.raises(ValueError, match="must") as raised:
        torch.ops.musespark_routing.route(**described(mode, arguments))
    assert str(raised.value) == str(expected.value)


def test_the_device_is_checked_without_data(door, call):
    with FakeTensorMode() as mode:
        arguments = described(mode, call())
        arguments["logits"] = torch.empty(3, 256, device="cuda:0")
        with pytest.raises(ValueError, match=r"^logits must be on a cpu device, not on cuda:0$"):
            torch.ops.musespark_routing.route(**arguments)


@pytest.mark.parametrize("tile", [0, 8])
def test_where_tensors_lie_is_left_open_without_data(door, call, tile):
    with FakeTensorMode() as mode:
        torch.ops.musespark_routing.route(**described(mode, call(tile=tile)))


def described(mode, arguments):
    return {
        name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


# Statements of one process each; `imported(name)` says whether a module is.
ORDERS = {
    "the door, then torch": """
        import musespark_routing
        assert not imported("torch")
        import torch
        assert not imported("torch._dynamo")
        torch.ops.musespark_routing.route.default
    """,
    "torch, then the door": """
        import torch, musespark_routing
        torch.ops.musespark_routing.route.default
    """,
    "the door, a question about torch, then torch": """
        import musespark_routing, importlib.util
        assert importlib.util.find_spec("torch") is not None
        import torch
        torch.ops.musespark_routing.route.default
    """,
    "the door twice, then torch, then the door again": """
        import musespark_routing, importlib
        importlib.reload(musespark_routing)
        import torch
        importlib.reload(musespark_routing)
        del sys.modules["musespark_routing"]
        import musespark_routing
        torch.ops.musespark_routing.route.default
        import torch._dynamo
        importlib.reload(musespark_routing)
    """,
    "the door where torch cannot be imported": """
        sys.modules["torch"] = None
        import musespark_routing
        musespark_routing.metadata_size(8)
    """,
    "the door where there is no torch": """
        sys.path[:] = [path for path in sys.path if "site-packages" not in path] + [numpy_alone]
        import musespark_routing
        try:
            import torch
        except ModuleNotFoundError as error:
            assert error.name == "torch"
        else:
            raise AssertionError("torch is there")
    """,
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_operator_is_there_once_both_are_imported(order, tmp_path):
    (tmp_path / "numpy").symlink_to(Path(importlib.import_module("numpy").__file__).parent)
    before = f"import sys\nnumpy_alone = {str(tmp_path)!r}\nimported = lambda name: name in sys.modules\n"
    code = f"{before}{inspect.cleandoc(ORDERS[order])}\nprint('there')"
    environment = os.environ | {"MUSESPARK_ROUTING_BACKEND": "spec"}
    environment.pop("MUSESPARK_ROUTING_RECORD", None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "there\n"


def test_the_operator_calls_what_the_door_hands_out(door, call, monkeypatch):
    seen = []
    monkeypatch.setattr(torch_operator._offered, "route", lambda *given, **named: seen.append((given, named)))
    torch.ops.musespark_routing.route(**call(tile=0))
    assert len(seen) == 1
