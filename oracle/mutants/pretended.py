"""A pretended machine of three CUDA devices; tensors that are only what the contract reads of them.

Compiled kernels are replaced by recorders. For a process of its own: what is patched stays patched.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

STREAM: Final = 7000
_FUNCTION: Final = 1234
_TENSORS: Final = ("logits", "bias", "ids", "weights", "metadata")
_ARCHES: Final = ((9, 0), (10, 0), (10, 3))


@dataclass(frozen=True)
class Tensor:
    """Answers shape, stride, dtype, address and device; there is nothing that could be written."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: Any

    def stride(self, axis: int | None = None) -> Any:
        """Return all strides, or one."""
        return self.strides if axis is None else self.strides[axis]

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address

    def __getattr__(self, name: str) -> Any:
        if name == "ndim":
            return len(self.shape)
        raise AttributeError(f"a pretended tensor has no {name}")


class Built(NamedTuple):
    """One compilation: the current device, (metadata, renormalize, early_dependents), and what it is for."""

    device: int
    variant: tuple[bool, bool, bool]
    arch: str | None
    options: str


@dataclass
class Machine:
    """The current device, and what happened.

    built
        Every compilation.
    launched
        The device, the variant and the arguments by name of every launch.
    loaded, scratch
        Functions that were loaded, and what was allocated on the device.
    handed
        The tensors that a compiled variant is being called with.
    compiling, most_at_once
        Compilations going on, and the most there were.
    """

    backend: str
    devices: int = 3
    current: int = 0
    capturing: bool | None = False
    load_status: int = 0
    built: list[Built] = field(default_factory=list)
    launched: list[dict[str, Any]] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)
    scratch: list[str] = field(default_factory=list)
    handed: dict[str, Any] = field(default_factory=dict)
    compiling: int = 0
    most_at_once: int = 0

    def host(self) -> Any:
        """Import the backend's host anew, on this machine."""
        import sys

        import torch

        sys.modules.pop(f"impl_{self.backend}.host", None)
        self._patch(torch)
        host: Any = import_module(f"impl_{self.backend}.host")
        if self.backend == "cute":
            host.compile_object, host.load_object = self._compile_cute, self._load_cute
            host.stored_function = self._stored_cute
        else:
            host.compiler.build = self._build_triton
            library = SimpleNamespace(cuFuncLoad=self._load)
            host.ctypes = SimpleNamespace(CDLL=lambda name: library, c_void_p=int)
        call = host.Routing.__call__

        def handing(routing: Any, *arguments: Any) -> Any:
            self.handed = dict(zip(_TENSORS, arguments, strict=False))
            try:
                return call(routing, *arguments)
            finally:
                self.handed = {}

        host.Routing.__call__ = handing
        self.scratch.clear()  # of what the import tries out
        return host

    def _patch(self, torch: Any) -> None:
        cuda: Any = torch.cuda
        zeros, empty = (
            _ORIGINALS.setdefault("zeros", torch.zeros),
            _ORIGINALS.setdefault("empty", torch.empty),
        )
        cuda.is_available = lambda: self.devices > 0
        cuda.current_device = self._current
        cuda.device = self._on
        cuda.get_device_capability = lambda device=None: _ARCHES[self.current if device is None else device]
        cuda.is_current_stream_capturing = self._capturing
        torch._C._cuda_getDevice = self._current
        torch._C._cuda_getCurrentRawStream = lambda device: STREAM + device
        torch.zeros = lambda *shape, **how: self._made(zeros, shape, how)
        torch.empty = lambda *shape, **how: self._made(empty, shape, how)

    def _current(self) -> int:
        if not self.devices:
            raise RuntimeError("no CUDA device")
        return self.current

    def _capturing(self) -> bool:
        if self.capturing is None:
            raise RuntimeError("torch has no CUDA")
        return self.capturing

    @contextmanager
    def _on(self, device: Any) -> Iterator[None]:
        before, self.current = self.current, device
        try:
            yield
        finally:
            self.current = before

    def _made(self, make: Any, shape: tuple[Any, ...], how: dict[str, Any]) -> Any:
        device = str(how.get("device", "cpu"))
        self.scratch.append(device)
        return make(*shape, **(how | {"device": "cpu"} if device.startswith("cuda") else how))

    def _load(self, function: Any) -> int:
        self.loaded.append(int(function))
        return self.load_status

    def _compile_cute(
        self, metadata: bool, renormalize: bool, options: str, early_dependents: bool = False
    ) -> bytes:
        time.sleep(0.01)  # long enough for another thread to arrive
        words = options.replace("=", " ").split()
        arch = words[words.index("--gpu-arch") + 1] if "--gpu-arch" in words else None
        self.built.append(Built(self.current, (metadata, renormalize, early_dependents), arch, options))
        return bytes([metadata, renormalize, early_dependents])

    def _load_cute(self, code: bytes) -> Any:
        def launch(*arguments: Any) -> None:
            names = (
                "logits", "row_stride", "bias", "ids", "weights", "b", "scale", "metadata", "offset", "count",
                "tile", "stream",
            )  # fmt: skip
            self._record(self.current, tuple(map(bool, code)), dict(zip(names, arguments, strict=True)))

        return launch

    def _stored_cute(self, metadata: bool, renormalize: bool, arch: str, early_dependents: bool) -> Any:
        code = self._compile_cute(metadata, renormalize, f"--gpu-arch {arch}", early_dependents)
        return self._load_cute(code)

    def _build_triton(
        self,
        metadata: bool,
        renormalize: bool,
        arch: str,
        options: str = "",
        early_dependents: bool = False,
    ) -> Any:
        self.compiling += 1
        self.most_at_once = max(self.most_at_once, self.compiling)
        time.sleep(0.01)
        self.compiling -= 1
        variant = (metadata, renormalize, early_dependents)
        self.built.append(Built(self.current, variant, arch, options))

        def run(*arguments: Any) -> None:
            grid_and_more = arguments[:9]
            stream = arguments[3]
            if grid_and_more != (1, 1, 1, stream, _FUNCTION, "packed", None, None, None):
                raise TypeError(f"launched as {grid_and_more}")
            names = (
                "logits", "bias", "ids", "weights", "metadata", "b", "stride4", "scale", "offset", "count",
                "tile", "with_metadata", "renormalize", "early_dependents",
            )  # fmt: skip
            given = dict(zip(names, arguments[9:], strict=True))
            constants = ("with_metadata", "renormalize", "early_dependents")
            if any(given.pop(name) is not None for name in constants):
                raise TypeError("compile-time arguments are passed")
            given["row_stride"] = 4 * given.pop("stride4")
            given["stream"] = stream
            self._record(self.current, variant, given)

        return SimpleNamespace(
            run=run, function=_FUNCTION, packed_metadata="packed", asm={"ptx": ""}, built=len(self.built)
        )

    def _record(self, device: int, variant: tuple[bool, ...], given: dict[str, Any]) -> None:
        given |= {f"{name}_tensor": tensor for name, tensor in self.handed.items()}
        self.launched.append({"device": device, "variant": variant, **given})


_ORIGINALS: Final[dict[str, Any]] = {}


def original(name: str) -> Any:
    """Return a function of torch as it is on no pretended machine."""
    import torch

    return _ORIGINALS.get(name, getattr(torch, name))


def in_threads(number: int, ask: Any) -> list[Any]:
    """Return what ``ask`` returns in so many threads that start at once."""
    gate = threading.Barrier(number)
    answers: list[Any] = []

    def one() -> None:
        gate.wait()
        answers.append(ask())

    threads = [threading.Thread(target=one, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return answers
