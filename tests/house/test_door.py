"""The door: which backend the environment gets, and that nothing asked for is silently replaced."""

import ast
import importlib
import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A torch that pretends: `count` devices of capability `capability`, and no NVML on the host.
PRETEND = """
import sys, types
from unittest import mock
torch = types.ModuleType("torch")
torch.library, torch.Tag = mock.MagicMock(), mock.MagicMock()
torch.cuda = types.SimpleNamespace()
torch.cuda.device_count = lambda: {count}
torch.cuda.get_device_capability = lambda index: {capability}
sys.modules["torch"] = torch
import importlib
real = importlib.import_module
def import_module(name, package=None):
    if name in {missing}:
        raise ImportError(name + " is missing")
    if name in ("impl_cute.host", "impl_triton.host"):
        host = types.SimpleNamespace(route=name, prepare=name, compile_routing=name, compiled_routing=name)
        return host
    return real(name, package)
importlib.import_module = import_module
"""


def door(code: str, backend: str | None, pretend: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MUSESPARK_ROUTING_BACKEND"}
    if backend is not None:
        environment["MUSESPARK_ROUTING_BACKEND"] = backend
    script = pretend + "\nimport musespark_routing as door\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def pretend(count: int = 1, capability: tuple[int, int] = (9, 0), missing: tuple[str, ...] = ()) -> str:
    return PRETEND.format(count=count, capability=capability, missing=missing) + (
        "import ctypes\ndef no_library(name):\n    raise OSError(name)\nctypes.CDLL = no_library\n"
    )


def test_spec_backend_routes_cpu_tensors():
    done = door(
        """
        import torch
        logits = torch.zeros(2, 256)
        logits[1, 200] = 1
        ids, weights = torch.empty(2, 8, dtype=torch.int32), torch.empty(2, 8)
        metadata = torch.full((door.metadata_size(8),), -7, dtype=torch.int32)
        door.prepare(early_dependents=True)
        door.route(
            logits, torch.zeros(256), ids, weights, 1.0, True, metadata, 0, 256, 8, early_dependents=True
        )
        print(door.backend, ids[0].tolist(), ids[1].tolist(), metadata[:2].tolist())
        """,
        "spec",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "spec [0, 1, 2, 3, 4, 5, 6, 7] [200, 0, 1, 2, 3, 4, 5, 6] [72, 9]"


@pytest.mark.parametrize(
    ("case", "backend", "setting", "expected"),
    [
        ("a-device-and-both-backends-gives-cute", None, pretend(), "cute"),
        ("a-device-without-cute-gives-triton", None, pretend(missing=("impl_cute.host",)), "triton"),
        ("an-empty-variable-is-an-unset-one", "", pretend(), "cute"),
        ("no-device-gives-spec", None, pretend(count=0), "spec"),
        ("an-old-device-gives-spec", None, pretend(capability=(8, 0)), "spec"),
        ("triton-asked-for-is-triton", "triton", pretend(), "triton"),
        ("spec-asked-for-is-spec-also-with-a-device", "spec", pretend(), "spec"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith(("a", "n", "t", "s")) else "",
)
def test_chosen_backend(case, backend, setting, expected):
    done = door("print(door.backend)", backend, setting)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected


@pytest.mark.parametrize(
    ("backend", "setting", "words"),
    [
        ("cutlass", pretend(), "must be one of cute, triton, spec, or unset, not 'cutlass'"),
        ("CUTE", pretend(), "not 'CUTE'"),
        ("cute", pretend(count=0), "cute cannot work here: torch sees no CUDA device; unset"),
        (
            "triton",
            pretend(capability=(8, 6)),
            "no CUDA device has compute capability 9.0 or newer (found [(8, 6)])",
        ),
        ("cute", pretend(missing=("torch",)), "torch is not installed"),
        ("cute", pretend(missing=("impl_cute.host",)), "cute cannot work here: impl_cute.host is missing"),
    ],
)
def test_what_was_asked_for_is_an_import_error_that_says_why(backend, setting, words):
    done = door("", backend, setting)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("ImportError: MUSESPARK_ROUTING_BACKEND")
    assert words in done.stderr


def test_the_door_names_no_backend_in_an_import():
    tree = ast.parse((ROOT / "musespark_routing.py").read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert modules - set(sys.stdlib_module_names) == {"spec.layout", "spec.torch_operator"}


@pytest.mark.parametrize("function", ["route", "prepare", "compile_routing", "compiled_routing"])
def test_every_backend_takes_the_same_arguments(function):
    hosts = [importlib.import_module(name) for name in ("impl_cute.host", "impl_triton.host", "spec.host")]
    takes = [inspect.signature(getattr(host, function)).parameters.values() for host in hosts]
    named = [[(each.name, each.default, each.kind) for each in parameters] for parameters in takes]
    assert named[0] == named[1] == named[2]
    assert named[0][-1][:2] == ("early_dependents", False)


def test_spec_backend_writes_nothing_before_everything_is_read():
    done = door(
        """
        import torch
        ids, weights = torch.full((1, 8), -7, dtype=torch.int32), torch.zeros(1, 8)
        try:
            door.route(torch.zeros(1, 256), torch.zeros(256), ids, torch._neg_view(weights), 1.0)
        except (RuntimeError, ValueError):
            print(ids.tolist())
        """,
        "spec",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([[-7] * 8])
