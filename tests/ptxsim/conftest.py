"""Small kernels for the simulator's tests: a body of PTX around which the loads and stores are written."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from oracle import ptxsim

CASE_FILES = (
    "isa_integer",
    "isa_carry",
    "isa_float",
    "isa_move",
    "isa_memory",
    "isa_warp",
    "isa_cluster",
    "isa_mbarrier",
)
HEADER = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def load(name: str) -> ModuleType:
    """Import a neighbouring file that is no test module."""
    full = f"ptxsim_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


load("isa_case")
load("planted")
load("planted_routing")
load("planted_cluster")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `form_case` every case of every instruction form."""
    if "form_case" in metafunc.fixturenames:
        cases = [case for name in CASE_FILES for case in load(name).cases()]
        metafunc.parametrize("form_case", cases, ids=[case.name for case in cases])


@pytest.fixture(scope="session")
def all_cases() -> list:
    """Every case of every instruction form."""
    return [case for name in CASE_FILES for case in load(name).cases()]


def _run(
    body: str,
    inputs: Sequence[np.ndarray] = (),
    outputs: int = 1,
    *,
    threads: int = 32,
    grid: int = 1,
    launches: int = 1,
    module: str = "",
    **keywords: object,
) -> list[np.ndarray]:
    """Run a kernel and return its outputs, uint64 ``[launches, grid * threads]`` each.

    The body finds input k of its thread in the 64-bit register ``%in<k>`` and leaves its results in
    ``%out<k>``; input and output buffers are parameters ``in<k>`` and ``out<k>``. Each input is uint64
    ``[grid * threads]`` or ``[launches, grid * threads]``.
    """
    params = [f".param .u64 in{k}" for k in range(len(inputs))] + [
        f".param .u64 out{k}" for k in range(outputs)
    ]
    text = [
        HEADER,
        module,
        f".visible .entry kernel({', '.join(params)})\n{{",
        ".reg .b64 %in<9>, %out<9>, %at, %where;",
        ".reg .b32 %thread;",
        f"mov.u32 %thread, %ctaid.x; mul.lo.u32 %thread, %thread, {threads};",
        "mul.wide.u32 %at, %thread, 8; mov.u32 %thread, %tid.x; mad.wide.u32 %at, %thread, 8, %at;",
    ]
    for k in range(len(inputs)):
        text += [
            f"ld.param.u64 %where, [in{k}];",
            "add.s64 %where, %where, %at;",
            f"ld.global.b64 %in{k}, [%where];",
        ]
    text.append(body)
    for k in range(outputs):
        text += [
            f"ld.param.u64 %where, [out{k}];",
            "add.s64 %where, %where, %at;",
            f"st.global.b64 [%where], %out{k};",
        ]
    text.append("ret;\n}")
    program = ptxsim.parse("\n".join(text))
    memory = ptxsim.Memory(launches)
    addresses = []
    for k, values in enumerate(inputs):
        array = np.ascontiguousarray(
            np.broadcast_to(np.asarray(values, np.uint64), (launches, grid * threads))
        )
        addresses.append(memory.add(f"in{k}", array).address)
    results = [np.zeros((launches, grid * threads), np.uint64) for _ in range(outputs)]
    for k, array in enumerate(results):
        addresses.append(memory.add(f"out{k}", array, writable=True).address)
    ptxsim.launch(program, memory, addresses, threads, grid=grid, **keywords)
    return results


@pytest.fixture(scope="session")
def run() -> Callable[..., list[np.ndarray]]:
    """Return the function that runs a body of PTX."""
    return _run
