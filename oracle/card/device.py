"""The card of this process: which it is, and what of the driver's API the tools here need.

cuda-bindings is imported on first use, so that the rest imports on machines without it.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.errors import CannotRunError

MINIMUM_CAPABILITY: Final = 9
_STATIC_SHARED_LIMIT: Final = 48 << 10


class CardError(CannotRunError):
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


def missing() -> str | None:
    """Why there is no card here for the kernels, in one line; None if there is. Creates no context."""
    try:
        if int(call("cuDeviceGetCount")) == 0:
            return "the CUDA driver sees no device"
        major, minor = _attributes(
            call("cuDeviceGet", 0), "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"
        )
    except CardError as error:
        return str(error)
    if major < MINIMUM_CAPABILITY:
        return f"device 0 has compute capability {major}.{minor}, and the kernels need {MINIMUM_CAPABILITY}.0"
    return None


def share(worker: int) -> None:
    """Let this process, worker number ``worker``, see one GPU alone; it must not have touched CUDA yet."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [str(index) for index in range(_nvml_count())] if listed is None else listed.split(",")
    if len(gpus) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]


def _nvml_count() -> int:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _attributes(number: Any, *names: str) -> list[int]:
    known = driver().CUdevice_attribute
    return [
        int(call("cuDeviceGetAttribute", getattr(known, f"CU_DEVICE_ATTRIBUTE_{name}"), number))
        for name in names
    ]


@cache
def current() -> Any:
    """Make device 0's primary context, the one that torch uses, current, and return the device."""
    number = call("cuDeviceGet", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", number))
    return number


def card() -> Card:
    """Return what this process runs on, or raise `CardError`."""
    number = current()
    names = ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT")
    major, minor, multiprocessors = _attributes(number, *names)
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


def load(code: bytes, entry: str, dynamic_shared: int = 0) -> Any:
    """Load one kernel from PTX or a cubin into the current context, and return the driver's function."""
    current()
    function = call("cuModuleGetFunction", call("cuModuleLoadData", code), entry.encode())
    if dynamic_shared > _STATIC_SHARED_LIMIT:
        attribute = driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", function, attribute, dynamic_shared)
    return function


def launch(
    function: Any,
    params: Sequence[bytes],
    threads: int,
    shared: int = 0,
    stream: int = 0,
    dependent: bool = False,
    grid: int = 1,
    cluster: int | None = None,
) -> None:
    """Launch a kernel.

    Parameters
    ----------
    function
        From `load`.
    params
        The bytes of each parameter.
    threads, shared
        Of a CTA; bytes of dynamic shared memory.
    stream
        The driver's handle.
    dependent
        Launch as a programmatic dependent of what is ahead in the stream.
    grid, cluster
        CTAs of the launch, and of each cluster; with None the launch asks for no clusters.
    """
    cuda = driver()
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared
    config.hStream = cuda.CUstream(stream)
    attributes = []
    if dependent:
        value = cuda.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        attributes.append(_attribute("PROGRAMMATIC_STREAM_SERIALIZATION", value))
    if cluster is not None:
        value = cuda.CUlaunchAttributeValue()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster, 1, 1
        attributes.append(_attribute("CLUSTER_DIMENSION", value))
    config.attrs, config.numAttrs = attributes, len(attributes)
    texts = [ctypes.create_string_buffer(param, len(param)) for param in params]
    pointers = (ctypes.c_void_p * max(len(texts), 1))(*(ctypes.addressof(text) for text in texts))
    call("cuLaunchKernelEx", config, function, ctypes.addressof(pointers), 0)


def _attribute(name: str, value: Any) -> Any:
    made = driver().CUlaunchAttribute()
    made.id = getattr(driver().CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    made.value = value
    return made


class Memory:
    """Room for an array in the card's memory; with ``filled`` it starts as a copy, else uninitialised."""

    def __init__(self, array: npt.NDArray[Any], filled: bool = True) -> None:
        current()
        self._array = np.ascontiguousarray(array)
        self.address = int(call("cuMemAlloc", max(self._array.nbytes, 1)))
        if filled and self._array.nbytes:
            call("cuMemcpyHtoD", self.address, self._array.ctypes.data, self._array.nbytes)

    def read(self) -> npt.NDArray[Any]:
        """Wait for the card and return what the memory holds, in the array's shape and dtype."""
        call("cuCtxSynchronize")
        out = np.empty_like(self._array)
        if out.nbytes:
            call("cuMemcpyDtoH", out.ctypes.data, self.address, out.nbytes)
        return out

    def free(self) -> None:
        """Give the memory back."""
        call("cuMemFree", self.address)
