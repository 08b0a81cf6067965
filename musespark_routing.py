"""Muse Spark's decode routing: the one door to the three implementations.

`MUSESPARK_ROUTING_BACKEND` chooses among them when this module is imported: ``cute`` or ``triton`` (CUDA
tensors, compute capability 9.0 or newer) or ``spec`` (CPU tensors, the NumPy specification). Unset, a machine
with such a device gets ``cute`` where it imports, else ``triton``; every other machine gets ``spec``. A value
that is unknown or cannot work here is an ImportError; what was asked for is never replaced by something else.

`MUSESPARK_ROUTING_RECORD` names a folder where `route` also records its calls (`oracle.traffic.record`).
Unset, `route` is the backend's own function.

The contract of every function is that of `spec.contract`; the clauses stand in docs/specification.md.
"""

import ctypes
import importlib
import os
from types import ModuleType
from typing import Any, Final

from spec.layout import (
    META_CTA_BATCH,
    META_CTA_LIMIT,
    META_EXPANDED_TO_PERMUTED,
    META_NUM_CTAS,
    META_PADDED_TOKENS,
    META_PERMUTED_TO_TOKEN,
    metadata_size,
)
from spec.torch_operator import offer

__all__ = [
    "META_CTA_BATCH",
    "META_CTA_LIMIT",
    "META_EXPANDED_TO_PERMUTED",
    "META_NUM_CTAS",
    "META_PADDED_TOKENS",
    "META_PERMUTED_TO_TOKEN",
    "backend",
    "compile_routing",
    "compiled_routing",
    "metadata_size",
    "prepare",
    "route",
]

VARIABLE: Final = "MUSESPARK_ROUTING_BACKEND"
RECORD: Final = "MUSESPARK_ROUTING_RECORD"
MODULES: Final = {"cute": "impl_cute.host", "triton": "impl_triton.host", "spec": "spec.host"}
MINIMUM_CAPABILITY: Final = (9, 0)


def _nvml_capabilities() -> list[tuple[int, int]] | None:
    """Return the compute capabilities of all devices of this host, or None without NVML.

    NVML is asked first because it creates no CUDA context: this import must not forbid a later fork.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    count, found = ctypes.c_uint(), []
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return None
    for index in range(count.value):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        status = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        status |= nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
        if status != 0:
            return None
        found.append((major.value, minor.value))
    return found


def _why_no_device() -> str | None:
    """Return why the kernels cannot run here, or None where a visible device has the capability they need."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return "torch is not installed, and the kernels take its CUDA tensors"
    count = torch.cuda.device_count()
    if count == 0:
        return "torch sees no CUDA device"
    capabilities = set(_nvml_capabilities() or ())
    able = {capability for capability in capabilities if capability >= MINIMUM_CAPABILITY}
    # NVML may know nothing, or know devices that CUDA_VISIBLE_DEVICES hides.
    if not able or able != capabilities:
        capabilities = {torch.cuda.get_device_capability(index) for index in range(count)}
        able = {capability for capability in capabilities if capability >= MINIMUM_CAPABILITY}
    if able:
        return None
    return f"no CUDA device has compute capability 9.0 or newer (found {sorted(capabilities)})"


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(MODULES[name])
    except ImportError as error:
        remedy = f"mend that, or set {VARIABLE}=spec"
        raise ImportError(f"{VARIABLE}={name} cannot work here: {error}; {remedy}") from error


def _choose() -> tuple[str, ModuleType]:
    """Return the backend's name and the module whose functions this door hands out."""
    asked = os.environ.get(VARIABLE)
    if not asked:
        if _why_no_device() is None:
            try:
                return "cute", _load("cute")
            except ImportError:
                return "triton", _load("triton")
        return "spec", _load("spec")
    if asked not in MODULES:
        raise ImportError(f"{VARIABLE} must be one of {', '.join(MODULES)}, or unset, not {asked!r}")
    if asked != "spec" and (reason := _why_no_device()) is not None:
        raise ImportError(
            f"{VARIABLE}={asked} cannot work here: {reason}; unset {VARIABLE}, or set it to spec"
        )
    return asked, _load(asked)


def _recorded(name: str, route: Any) -> Any:
    """Return a `route` that also records; loaded by name, since nothing else here may reach so far."""
    try:
        return importlib.import_module("oracle.traffic.record").recorded(route, name)
    except (ImportError, OSError, ValueError) as error:
        raise ImportError(f"{RECORD}={os.environ[RECORD]} cannot work here: {error}") from error


backend, _host = _choose()
route = _recorded(backend, _host.route) if os.environ.get(RECORD) else _host.route
prepare = _host.prepare
compile_routing = _host.compile_routing
compiled_routing = _host.compiled_routing
offer(route, "cpu" if backend == "spec" else "cuda")
