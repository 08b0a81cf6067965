"""Records the calls of `route`: inputs, range, tile and outputs, as safetensors files in a folder.

The door loads this module only where `FOLDER` is set, and hands out `recorded` of its backend's `route`. It
imports no torch: tensors are read through what they offer themselves.

A call that is recorded waits for the device twice. Its inputs are copied before the launch and its outputs
after it, so a file shows what the kernel was given even where the kernel overwrites it. Whatever goes wrong
here ends the recording, with one line in the log, and never the call.
"""

import atexit
import functools
import itertools
import json
import logging
import os
import platform
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.evidence import versions
from oracle.files import write_whole
from oracle.traffic import FORMAT
from spec.contract import check_route
from spec.layout import metadata_size

FOLDER: Final = "MUSESPARK_ROUTING_RECORD"
RATE: Final = "MUSESPARK_ROUTING_RECORD_RATE"
MEBIBYTES: Final = "MUSESPARK_ROUTING_RECORD_MIB"
DEFAULT_MEBIBYTES: Final = 256

_FILE_BYTES: Final = 8 << 20
_FILE_SECONDS: Final = 10.0
_LOG: Final = logging.getLogger("musespark_routing")

Array = npt.NDArray[Any]
Route = Callable[..., None]


@dataclass(frozen=True)
class Settings:
    """Where the files go, the share of calls that is recorded, and the bytes that one process may write."""

    folder: Path
    rate: float = 1.0
    limit: int = DEFAULT_MEBIBYTES << 20

    @staticmethod
    def read(environment: Mapping[str, str]) -> "Settings":
        """Read the three variables.

        Raises
        ------
        ValueError
            A rate that is no number above 0 and up to 1, or a size that is no positive integer.
        """
        rate_text = environment.get(RATE) or "1"
        try:
            rate = float(rate_text)
        except ValueError:
            rate = 0.0
        if not 0.0 < rate <= 1.0:
            raise ValueError(f"{RATE} must be a number above 0 and up to 1, not {rate_text!r}")
        size_text = environment.get(MEBIBYTES) or str(DEFAULT_MEBIBYTES)
        if not re.fullmatch(r"[0-9]{1,9}", size_text) or int(size_text) == 0:
            raise ValueError(f"{MEBIBYTES} must be a positive integer, not {size_text!r}")
        return Settings(Path(environment[FOLDER]), rate, int(size_text) << 20)


@dataclass(frozen=True)
class _Kind:
    """What calls have in common that share a file: their arrays then have one shape."""

    tokens: int
    renormalize: bool
    tile: int

    def __str__(self) -> str:
        parts = [f"b{self.tokens}", *([f"tile{self.tile}"] if self.tile else [])]
        return "-".join([*parts, *([] if self.renormalize else ["raw"])])


@dataclass
class _Pending:
    """Calls that wait to be written, by kind."""

    calls: dict[_Kind, list[dict[str, Array]]] = field(default_factory=dict)
    size: int = 0
    since: float = field(default_factory=time.monotonic)


def recorded(route: Route, backend: str, environment: Mapping[str, str] = os.environ) -> Route:
    """Return a `route` that also records, as the environment's variables ask for.

    Parameters
    ----------
    route
        The function of the backend's host.
    backend
        ``cute``, ``triton`` or ``spec``.
    environment
        Has `FOLDER`, and may have `RATE` and `MEBIBYTES`.

    Raises
    ------
    ValueError
        A variable's value is not what it must be.
    OSError
        The folder cannot be made or written.
    ImportError
        safetensors is not installed.
    """
    recorder = Recorder(Settings.read(environment), backend)

    @functools.wraps(route)
    def recording(
        logits: Any,
        bias: Any,
        ids: Any,
        weights: Any,
        scale: Any,
        renormalize: bool = True,
        metadata: Any = None,
        local_expert_offset: int = 0,
        num_local_experts: int = 0,
        tile_n: int = 0,
        early_dependents: bool = False,
    ) -> None:
        arguments = (
            logits, bias, ids, weights, scale, renormalize, metadata,
            local_expert_offset, num_local_experts, tile_n, early_dependents,
        )  # fmt: skip
        before = recorder.before(arguments)
        route(*arguments)
        if before is not None:
            recorder.after(*before, ids, weights, metadata)

    return recording


class Recorder:
    """Collects calls and writes them out; safe for threads, and for processes that fork."""

    def __init__(self, settings: Settings, backend: str) -> None:
        from safetensors.numpy import save

        self._save = save
        self._settings = settings
        self._backend = backend
        self._device_type = "cpu" if backend == "spec" else "cuda"
        self._random = random.Random()  # by chance: one call in n would meet the same layers again and again
        settings.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(settings.folder, os.W_OK):
            raise PermissionError(f"{settings.folder} cannot be written")
        self._seen_capture = False
        self._device = ""
        self._start()
        atexit.register(self.flush)
        os.register_at_fork(after_in_child=self._start)

    def _start(self) -> None:
        """Begin anew, without what a parent process still holds and will write itself."""
        self._lock = threading.Lock()
        self._pending = _Pending()
        self._open = True
        self._taken = 0
        self._number = itertools.count()
        self._files = itertools.count()
        node = re.sub(r"[^A-Za-z0-9]+", "-", platform.node()) or "host"
        self._name = f"{node}-{os.getpid()}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"

    def before(self, arguments: tuple[Any, ...]) -> tuple[_Kind, dict[str, Array]] | None:
        """Copy the inputs of a call; None where it is not recorded."""
        number = next(self._number)
        if not self._open or self._random.random() >= self._settings.rate:
            return None
        try:
            call = check_route(*arguments, device_type=self._device_type)
        except ValueError:
            return None  # `route` says it
        try:
            if self._captures(arguments[0]):
                return None
            logits, bias, _, _, _, _, metadata, *_ = arguments
            kind = _Kind(call.batch, call.renormalize, call.tile)
            taken = {
                "call": np.array(number, np.int64),
                "logits": _copied(logits),
                "bias": _copied(bias),
                "scale": np.array(call.scale, np.float32),
                "row_stride": np.array(logits.stride(0), np.int64),
            }
            if metadata is not None:
                taken |= {
                    "local_expert_offset": np.array(call.offset, np.int32),
                    "num_local_experts": np.array(call.count, np.int32),
                    "metadata_before": _copied(metadata[: metadata_size(call.tile)]),
                }
            self._device = self._device or _device_name(logits.device)
        except Exception as error:
            self._close(error)
            return None
        return kind, taken

    def after(self, kind: _Kind, taken: dict[str, Array], ids: Any, weights: Any, metadata: Any) -> None:
        """Add the outputs of a call, and write a file where there is enough for one."""
        try:
            taken |= {"ids": _copied(ids), "weights": _copied(weights)}
            if metadata is not None:
                taken["metadata"] = _copied(metadata[: metadata_size(kind.tile)])
            size = sum(array.nbytes for array in taken.values())
            with self._lock:
                if self._taken + size > self._settings.limit:
                    full = self._open
                    self._open = False
                else:
                    full = False
                    self._taken += size
                    self._pending.size += size
                    self._pending.calls.setdefault(kind, []).append(taken)
                waited = time.monotonic() - self._pending.since
                due = full or self._pending.size >= _FILE_BYTES or waited >= _FILE_SECONDS
            if due:
                self._write()
            if full:
                _LOG.warning("recording ends: %s is reached in %s", MEBIBYTES, self._settings.folder)
        except Exception as error:
            self._close(error)

    def flush(self) -> None:
        """Write what is pending; what goes wrong is told to the log, since the process may be ending."""
        try:
            self._write()
        except Exception as error:
            self._close(error)

    def _write(self) -> None:
        """Write a file for each kind of call that is pending."""
        with self._lock:
            pending, self._pending = self._pending, _Pending()
        about = {
            "format": FORMAT,
            "backend": self._backend,
            "device": self._device,
            "versions": json.dumps(versions()),
        }
        for kind, calls in pending.calls.items():
            arrays = {name: np.stack([call[name] for call in calls]) for name in calls[0]}
            arrays["renormalize"] = np.array([kind.renormalize])
            if kind.tile:
                arrays["tile_n"] = np.array([kind.tile], np.int32)
            path = self._settings.folder / f"{self._name}-{next(self._files):05}-{kind}.safetensors"
            write_whole(path, self._save(arrays, about))

    def _captures(self, logits: Any) -> bool:
        """Whether the call goes into a CUDA graph, where nothing may be copied to the host."""
        torch: Any = sys.modules.get("torch")
        if self._device_type != "cuda" or torch is None:
            return False
        with torch.cuda.device(logits.device):
            capturing = bool(torch.cuda.is_current_stream_capturing())
        if capturing and not self._seen_capture:
            self._seen_capture = True
            _LOG.warning("calls inside a CUDA graph are not recorded, neither its capture nor its replays")
        return capturing

    def _close(self, error: Exception) -> None:
        self._open = False
        _LOG.warning("recording ends: %s: %s", type(error).__name__, error)


def _copied(tensor: Any) -> Array:
    """Return a contiguous copy in this process's memory."""
    return np.array(tensor.detach().cpu().numpy(), order="C", copy=True)


def _device_name(device: Any) -> str:
    torch: Any = sys.modules.get("torch")
    if torch is None or device.type != "cuda":
        return str(device.type)
    return str(torch.cuda.get_device_name(device))
