"""The functions of the door on CUDA tensors: check, compile once, launch on the current stream.

The compiled function takes addresses, which the check has read anyway: to hand tensors over costs more than
the check.
"""

import functools
import threading
from typing import Any

import torch
import tvm_ffi  # noqa: F401  # the compiler imports it, which would be at the first call

from impl_cute.compiler import DEFAULT_ARCH, compile_object, load_object, names_arch
from impl_cute.stored import stored_function
from spec.constants import NUM_EXPERTS, TOP_K
from spec.contract import check_prepare
from spec.layout import metadata_size
from spec.repeated import RepeatedCheck

_check = RepeatedCheck("cuda", torch)
# What torch.cuda's own functions ask, once there are tensors on a device.
_current: Any = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class Routing:
    """One compiled variant, for the device that was the current one then.

    Attributes
    ----------
    launch
        The function that `impl_cute.compiler.load_object` describes.
    """

    def __init__(self, launch: Any, device: int) -> None:
        self.launch = launch
        self._device = device

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
        """Launch on the current stream of the device; checks nothing."""
        self.launch(
            logits.data_ptr(), logits.stride(0), bias.data_ptr(), ids.data_ptr(), weights.data_ptr(),
            logits.shape[0], scale, None if metadata is None else metadata.data_ptr(), offset, count, tile,
            _stream(self._device),
        )  # fmt: skip


_compiled: dict[tuple[int, bool, bool, bool], Routing] = {}
_loaded: set[tuple[int, bool, bool, bool]] = set()
_lock = threading.Lock()


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
    """Route b tokens in one launch on the current stream of ``logits``' device (R1-R6, with metadata M1-M8).

    The launch is programmatic dependent: the kernel reads ``bias`` before it waits for the kernels ahead of
    it in the stream, so none that may still be running then may write ``bias``: not the kernel just before,
    and where that one lets its dependents start before it has waited itself (as with ``early_dependents``
    here), not the one before that either, and so on. All else comes after the wait.

    Parameters
    ----------
    logits, bias
        float32 ``[b, 256]`` (1 <= b <= 8, row stride a multiple of 4) and ``[256]``, both on 16 bytes.
    ids, weights
        int32 and float32 ``[b, 8]``, contiguous, written.
    scale, renormalize
        R5 and R6: any real number, rounded to float32, and a bool.
    metadata
        None, or an int32 vector of at least ``metadata_size(tile_n)`` elements on 16 bytes, written.
    local_expert_offset, num_local_experts, tile_n
        This rank's experts and the GEMM's token tile, 1..256; looked at only with metadata.
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
        An argument is outside the contract (`spec.contract`); nothing has been written or launched.
    RuntimeError
        A CUDA graph is being captured and this variant is not compiled yet; nothing has been enqueued.
    """
    call, logits_at, bias_at, ids_at, weights_at, metadata_at = _check(
        logits, bias, ids, weights, scale, renormalize, metadata,
        local_expert_offset, num_local_experts, tile_n, early_dependents,
    )  # fmt: skip
    variant = call.variant
    device = variant[0]
    if device != _current():
        with torch.cuda.device(device):
            route(
                logits, bias, ids, weights, scale, renormalize, metadata,
                local_expert_offset, num_local_experts, tile_n, early_dependents,
            )  # fmt: skip
        return
    routing = _compiled.get(variant)
    if routing is None:
        routing = compiled_routing(*variant[1:])
    routing.launch(
        logits_at, call.row_stride, bias_at, ids_at, weights_at, call.batch, call.scale, metadata_at,
        call.offset, call.count, call.tile, _stream(device),
    )  # fmt: skip


def prepare(renormalize: bool = True, early_dependents: bool = False) -> None:
    """Compile and load, on the current device, every variant that `route` can take for these two.

    Each variant runs once on scratch tensors: that is what makes CUDA load a kernel for good.

    Parameters
    ----------
    renormalize, early_dependents
        What `route` will be given, a bool each.

    Raises
    ------
    ValueError
        One of them is no bool.
    RuntimeError
        A CUDA graph is being captured and something is left to compile or load.
    """
    for metadata in (False, True):
        routing = compiled_routing(metadata, renormalize, early_dependents)
        variant = (_current_device(), metadata, renormalize, early_dependents)
        if _has_device() and variant not in _loaded:
            _refuse_capture(renormalize, early_dependents)
            _run_once(routing, metadata)
            _loaded.add(variant)


def compile_routing(
    metadata: bool, renormalize: bool, options: str = "", early_dependents: bool = False
) -> Routing:
    """Compile one variant for the current device, or for sm_90a where there is none.

    Parameters
    ----------
    metadata, renormalize, early_dependents
        The variant, a bool each.
    options
        More options of `cute.compile`, as text; ``--gpu-arch`` overrides the current device's architecture.

    Returns
    -------
    Routing
        Takes (logits, bias, ids, weights, metadata or None, scale, offset, count, tile) and launches on the
        current stream without checking them.

    Raises
    ------
    ValueError
        ``metadata``, ``renormalize`` or ``early_dependents`` is no bool.
    RuntimeError
        A CUDA graph is being captured; nothing has been enqueued.
    """
    check_prepare(metadata, renormalize, early_dependents)
    _refuse_capture(renormalize, early_dependents)
    if not names_arch(options):
        options = f"--gpu-arch {_current_arch()} {options}"
    code = compile_object(metadata, renormalize, options, early_dependents)
    return Routing(load_object(code), _current_device())


def compiled_routing(metadata: bool, renormalize: bool, early_dependents: bool = False) -> Routing:
    """Return what `compile_routing` does, once per process and device; compiled only if the disk has none.

    Parameters
    ----------
    metadata, renormalize, early_dependents
        The variant, a bool each.

    Raises
    ------
    ValueError
        One of them is no bool.
    RuntimeError
        A CUDA graph is being captured and the variant is not compiled yet.
    """
    if not type(metadata) is type(renormalize) is type(early_dependents) is bool:
        check_prepare(metadata, renormalize, early_dependents)
    variant = (_current_device(), metadata, renormalize, early_dependents)
    routing = _compiled.get(variant)
    if routing is None:
        with _lock:
            routing = _compiled.get(variant)
            if routing is None:
                _refuse_capture(renormalize, early_dependents)
                launch = stored_function(metadata, renormalize, _current_arch(), early_dependents)
                routing = _compiled[variant] = Routing(launch, variant[0])
    return routing


@functools.cache
def _has_device() -> bool:
    return torch.cuda.is_available()


def _current_device() -> int:
    return torch.cuda.current_device() if _has_device() else 0


def _current_arch() -> str:
    if not _has_device():
        return DEFAULT_ARCH
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}a"


def _refuse_capture(renormalize: bool, early_dependents: bool) -> None:
    try:
        capturing = torch.cuda.is_current_stream_capturing()
    except RuntimeError:  # this torch has no CUDA, so nothing is captured
        return
    if capturing:
        raise RuntimeError(
            "a CUDA graph is being captured and this variant is not compiled and loaded: "
            f"call prepare(renormalize={renormalize}, early_dependents={early_dependents}) before the capture"
        )


def _run_once(routing: Routing, metadata: bool) -> None:
    tile = 1
    floats = torch.zeros(3, NUM_EXPERTS, dtype=torch.float32, device="cuda")
    words = torch.zeros(TOP_K + metadata_size(tile), dtype=torch.int32, device="cuda")
    ids, weights = words[:TOP_K].view(1, TOP_K), floats[2, :TOP_K].view(1, TOP_K)
    buffer = words[TOP_K:] if metadata else None
    routing(floats[:1], floats[1], ids, weights, buffer, 1.0, 0, 1, tile)
