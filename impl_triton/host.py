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
from spec.constants import ROW_STRIDE_MULTIPLE
from spec.contract import check_prepare
from spec.repeated import RepeatedCheck

_WITHOUT_DEVICE: Final = "sm_90a"

_compiled: dict[tuple[int, bool, bool, bool], "Routing"] = {}
_lock = threading.Lock()
_check = RepeatedCheck("cuda", torch)
# What torch.cuda's own functions ask, once there are tensors on a device.
_current: Any = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


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
            run = kernel.run  # this loads the module on the current device
            _load(kernel.function)
            self._launch, self._fixed, self._apart = _launcher(run, kernel.function, kernel.packed_metadata)

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
        self.enqueue(
            logits.data_ptr(), bias.data_ptr(), ids.data_ptr(), weights.data_ptr(),
            None if metadata is None else metadata.data_ptr(),
            logits.shape[0], logits.stride(0), scale, offset, count, tile,
        )  # fmt: skip

    def enqueue(
        self,
        logits: int,
        bias: int,
        ids: int,
        weights: int,
        metadata: int | None,
        batch: int,
        row_stride: int,
        scale: float,
        offset: int,
        count: int,
        tile: int,
    ) -> None:
        """Launch with addresses for tensors: Triton would ask the driver about the address of each tensor."""
        # The last three stand for the compile-time arguments.
        given = (
            logits, bias, ids, weights, metadata, batch, row_stride // ROW_STRIDE_MULTIPLE, scale, offset,
            count, tile, None, None, None,
        )  # fmt: skip
        if self._apart:
            self._launch(1, 1, 1, _stream(self._device), *self._fixed, given)
        else:
            self._launch(1, 1, 1, _stream(self._device), *self._fixed, *given)


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
    routing = _compiled.get(variant) or _routing(*variant)
    routing.enqueue(
        logits_at, bias_at, ids_at, weights_at, metadata_at, call.batch, call.row_stride, call.scale,
        call.offset, call.count, call.tile,
    )  # fmt: skip


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


def _launcher(run: Any, function: int, packed: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return what to call for a launch, its arguments from stream to kernel, and if those are one tuple.

    Triton's launcher looks for scratch memory and hooks at every launch. This kernel has none, so what the
    launcher calls in the end can be called instead. In which order differs between versions: the launcher is
    asked, with marks for arguments. Where it does anything else than pass them on, it is called as ever.
    """
    as_ever = (function, packed, None, None, None)
    scratch = getattr(run, "global_scratch_size", 0) or getattr(run, "profile_scratch_size", 0)
    launch = getattr(run, "launch", None)
    if launch is None or scratch:
        return run, as_ever, False
    stream, marks = object(), tuple(object() for _ in compiler.SIGNATURE)
    called: list[tuple[Any, ...]] = []
    run.launch = lambda *arguments: called.append(arguments)
    try:
        run(1, 1, 1, stream, *as_ever, *marks)
    finally:
        run.launch = launch
    given = called[0] if len(called) == 1 else ()
    if given[:4] == (1, 1, 1, stream):
        if given[-len(marks) :] == marks:
            return launch, given[4 : -len(marks)], False
        if given[-1] == marks:
            return launch, given[4:-1], True
    return run, as_ever, False


def _load(function: int) -> None:
    """Load the kernel's code now: CUDA might otherwise wait for the first launch, perhaps in a capture."""
    load = getattr(ctypes.CDLL("libcuda.so.1"), "cuFuncLoad", None)
    if load is not None:  # drivers older than CUDA 12.4 have none, and load on their own
        status = load(ctypes.c_void_p(function))
        if status:
            raise RuntimeError(f"CUDA cannot load the kernel: cuFuncLoad returned {status}")


def _current_device() -> int | None:
    return torch.cuda.current_device() if torch.cuda.is_available() else None
