"""The card of this process: which it is, and what of the driver's API the tools here need.

cuda-bindings is imported on first use, so that the rest imports on machines without it.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any


class CardError(RuntimeError):
    """No card, or the driver refused a call; the text says which."""


@dataclass(frozen=True)
class Card:
    """One device: its name, its architecture as ``sm_90``, the driver's version and its multiprocessors."""

    name: str
    arch: str
    driver: str
    multiprocessors: int


@cache
def driver() -> Any:
    """Return cuda-bindings' driver module, initialised, or raise `CardError`."""
    try:
        module = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise CardError(f"cuda-bindings is needed to reach the card: {error}") from error
    try:
        (error_code,) = module.cuInit(0)
    except RuntimeError as error:  # no libcuda on this machine
        raise CardError(f"no CUDA driver: {error}") from error
    if int(error_code) != 0:
        raise CardError(f"no CUDA device: cuInit says {error_code.name}")
    return module


def call(name: str, *arguments: Any) -> Any:
    """Call one function of the driver API: return its result, several as a tuple, none as None."""
    code, *results = getattr(driver(), name)(*arguments)
    if int(code) != 0:
        raise CardError(f"{name}: {code.name}")
    if len(results) > 1:
        return tuple(results)
    return results[0] if results else None


@cache
def current() -> Any:
    """Make device 0's primary context, the one that torch uses, current, and return the device."""
    number = call("cuDeviceGet", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", number))
    return number


def card() -> Card:
    """Return what this process runs on, or raise `CardError`."""
    number = current()
    attribute = driver().CUdevice_attribute
    major, minor, multiprocessors = (
        int(call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), number))
        for name in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT")
    )
    name = call("cuDeviceGetName", 128, number).split(b"\0")[0].decode()
    return Card(name, f"sm_{major}{minor}", driver_version(), multiprocessors)


def driver_version() -> str:
    """Return the driver's version as NVML says it, or the CUDA version it supports where NVML is missing."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return f"CUDA {call('cuDriverGetVersion')}"
    text = ctypes.create_string_buffer(96)
    nvml.nvmlInit_v2()
    nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(96))
    return text.value.decode()
