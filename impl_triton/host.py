"""The functions of the door for CUDA tensors, in Triton: check, compile once, launch.

The compiled kernel is launched directly, not through Triton's JIT dispatch: what runs is what
`compiler.build` made, whatever the arguments are, and the host path stays short.
"""

import ctypes
import functools
import threading
from typing import Any, Final

import torch

from impl_triton import compiler
from spec.contract import check_prepare, check_route

_WITHOUT_DEVICE: Final = "sm_90a"

_compiled: dict[tuple[int, bool, bool, bool], "Routing"] = {}
_lock = threading.Lock()


class Routing:
    """One compiled variant, loaded on one device.

    Attributes
    ----------
    kernel
        Triton's compiled kernel; ``kernel.asm["ptx"]`` is what a launch runs.
    """

    def __init__(self, kernel: Any, device: int | None) -> None:
        self.kernel = kernel
        self._device = device
        if device is not None:
            self._run = kernel.run  # this loads the module on the current device
            _load(kernel.function)
            self._function = kernel.function
            self._packed = kernel.packed_metadata

    def __call__(
        self,
        logits: torch.Tensor,
        bias: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        metadata: torch.Tensor | None,
        scale: float,
        offset: int,
        count: int,
        tile: int,
    ) -> None:
        """Launch on the current stream of the device it was compiled on; checks nothing."""
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        # Addresses, not tensors: Triton would ask the driver about each tensor's address. The last
        # three arguments stand for the compile-time ones.
        self._run(
            1, 1, 1, stream, self._function, self._packed, None, None, None,
            logits.data_ptr(), bias.data_ptr(), ids.data_ptr(), weights.data_ptr(),
            None if metadata is None else metadata.data_ptr(),
            logits.shape[0], logits.stride(0) // 4, scale, offset, count, tile, None, None, None,
        )  # fmt: skip


def route(
    logits: torch.Tensor,
    bias: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    scale: float,
    renormalize: bool = True,
    metadata: torch.Tensor | None = None,
    local_expert_offset: int = 0,
    num_local_experts: int = 0,
    tile_n: int = 0,
    early_dependents: bool = False,
) -> None:
    """Route b tokens on the current stream of their device: ids, weights and, where asked, the metadata.

    The launch is programmatic dependent: the kernel reads ``bias`` before it waits for the kernels ahead of
    it in the stream, so none that may still be running then may write ``bias``: not the kernel just before,
    and where that one lets its dependents start before it has waited itself (as with ``early_dependents``
    here), not the one before that either, and so on. All else comes after the wait.

    Parameters
    ----------
    logits
        float32 ``[b, 256]``, 1 <= b <= 8, column stride 1, row stride a multiple of 4 elements, on 16 bytes.
    bias
        float32 ``[256]``, contiguous, on 16 bytes; used for selection only (R2).
    ids, weights
        int32 and float32 ``[b, 8]``, contiguous, written (R4, R6).
    scale
        Any real number, rounded to float32 (R5).
    renormalize
        Whether the weights are divided by their sum (R5).
    metadata
        None, or an int32 vector of at least ``metadata_size(tile_n)`` elements on 16 bytes, written (M1-M8).
    local_expert_offset, num_local_experts
        This rank's experts: 0 <= offset, 1 <= n, offset + n <= 256.
    tile_n
        The GEMM's token tile in rows, 1..256.
    early_dependents
        On, the kernel executes ``griddepcontrol.launch_dependents`` first, for callers whose next kernel
        waits before it touches anything. A next kernel that is launched with the programmatic stream
        serialization attribute then runs beside this one: it must execute ``griddepcontrol.wait``
        (``cudaGridDependencySynchronize``) before it reads anything that this or an earlier kernel writes,
        and before it writes anything that this kernel reads or writes. Kernels launched without the
        attribute are not affected. Results are the same.

    Raises
    ------
    ValueError
        An argument is outside the contract (`spec.contract`); nothing has been launched.
    RuntimeError
        A CUDA graph is being captured and the variant is not compiled yet; nothing has been enqueued.
    """
    call = check_route(
        logits, bias, ids, weights, scale, renormalize, metadata,
        local_expert_offset, num_local_experts, tile_n, early_dependents, device_type="cuda",
    )  # fmt: skip
    device = logits.device.index
    if device == torch.cuda.current_device():
        routing = _routing(device, metadata is not None, call.renormalize, call.early_dependents)
        routing(logits, bias, ids, weights, metadata, call.scale, call.offset, call.count, call.tile)
        return
    with torch.cuda.device(device):
        routing = _routing(device, metadata is not None, call.renormalize, call.early_dependents)
        routing(logits, bias, ids, weights, metadata, call.scale, call.offset, call.count, call.tile)


def prepare(renormalize: bool = True, early_dependents: bool = False) -> None:
    """Compile and load on the current device every variant that `route` can take for these two.

    Parameters
    ----------
    renormalize, early_dependents
        What `route` will be given, a bool each.

    Raises
    ------
    ValueError
        One of them is no bool.
    RuntimeError
        A CUDA graph is being captured.
    """
    for metadata in (False, True):
        compiled_routing(metadata, renormalize, early_dependents)


def compile_routing(
    metadata: bool, renormalize: bool, options: str = "", early_dependents: bool = False
) -> Routing:
    """Compile one variant for the current device and load it; with no device, compile it for sm_90a.

    Parameters
    ----------
    metadata, renormalize, early_dependents
        The variant, a bool each.
    options
        ``name=value`` pairs with commas between: ``maxnreg`` (registers a thread), ``ptx_version``,
        ``ptx_options`` (text for ptxas), with Triton's meaning; ``arch`` (as ``sm_100a``), to compile without
        loading for an architecture that the current device does not have.

    Returns
    -------
    Routing
        Takes (logits, bias, ids, weights, metadata or None, scale, offset, count, tile) and launches on the
        current stream without checking them.

    Raises
    ------
    ValueError
        ``metadata``, ``renormalize`` or ``early_dependents`` is no bool, or ``options`` is not of that form.
    RuntimeError
        A CUDA graph is being captured.
    """
    check_prepare(metadata, renormalize, early_dependents)
    with _lock:
        return _compile(_current_device(), metadata, renormalize, early_dependents, options)


def compiled_routing(metadata: bool, renormalize: bool, early_dependents: bool = False) -> Routing:
    """Return what `compile_routing` returns, compiled once per process and device; errors as there."""
    check_prepare(metadata, renormalize, early_dependents)
    return _routing(_current_device(), metadata, renormalize, early_dependents)


def _routing(device: int | None, metadata: bool, renormalize: bool, early_dependents: bool) -> Routing:
    """Return the variant for ``device``, which is the current one (None where there is none)."""
    key = (-1 if device is None else device, metadata, renormalize, early_dependents)
    routing = _compiled.get(key)
    if routing is None:
        with _lock:
            routing = _compiled.get(key)
            if routing is None:
                routing = _compile(device, metadata, renormalize, early_dependents, "")
                _compiled[key] = routing
    return routing


def _compile(
    device: int | None, metadata: bool, renormalize: bool, early_dependents: bool, options: str
) -> Routing:
    build = functools.partial(compiler.build, metadata, renormalize, early_dependents=early_dependents)
    if device is None:
        return Routing(build(_WITHOUT_DEVICE, options), None)
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"a CUDA graph is being captured, and this variant is not yet compiled for cuda:{device}: "
            f"call prepare(renormalize={renormalize}, early_dependents={early_dependents}) before the capture"
        )
    major, minor = torch.cuda.get_device_capability(device)
    arch = f"sm_{major}{minor}a"
    runs_here = compiler.parse_options(options).get("arch", arch) == arch
    return Routing(build(arch, options), device if runs_here else None)


def _load(function: int) -> None:
    """Load the kernel's code now: CUDA might otherwise wait for the first launch, perhaps in a capture."""
    load = getattr(ctypes.CDLL("libcuda.so.1"), "cuFuncLoad", None)
    if load is not None:  # drivers older than CUDA 12.4 have none, and load on their own
        status = load(ctypes.c_void_p(function))
        if status:
            raise RuntimeError(f"CUDA cannot load the kernel: cuFuncLoad returned {status}")


def _current_device() -> int | None:
    return torch.cuda.current_device() if torch.cuda.is_available() else None
