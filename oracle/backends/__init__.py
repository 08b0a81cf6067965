"""Backends: one adapter a file, imported when asked for; adapters never repair outputs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:  # the names alone must come without NumPy: `--help` prints them
    from oracle.problem import Batch, Outputs

_ADAPTERS: Final = {
    "spec": "oracle.backends.spec:Spec",
    "cute": "oracle.backends.cute:Cute",
    "triton": "oracle.backends.triton:Triton",
    "torch": "oracle.backends.torch:Torch",
    "vllm": "oracle.backends.vllm:Vllm",
    "flashinfer": "oracle.backends.flashinfer:Flashinfer",
    "flashinfer-logits": "oracle.backends.flashinfer:FlashinferLogits",
}


class Backend(Protocol):
    """Something that answers routing problems.

    name
        As on the command line.
    devices
        Where it can run in principle, of ``sim``, ``cuda`` and ``cpu``; the first is the default.
    """

    name: str
    devices: tuple[str, ...]

    def unavailable(self, device: str) -> str | None:
        """Why this cannot run on ``device`` here, in one line; None if it can."""

    def run(self, batch: "Batch", outputs: "Outputs", device: str) -> None:
        """Answer ``batch``: write into the poisoned ``outputs`` exactly what the implementation writes."""


def names() -> tuple[str, ...]:
    """Return the names that `get` knows."""
    return tuple(_ADAPTERS)


def get(name: str) -> Backend:
    """Return the backend of that name; its adapter is imported now.

    Raises
    ------
    ValueError
        There is no such backend; the message lists those there are.
    """
    if name not in _ADAPTERS:
        raise ValueError(f"no backend {name!r}: there are {', '.join(_ADAPTERS)}")
    module, adapter = _ADAPTERS[name].split(":")
    make: Any = getattr(import_module(module), adapter)
    backend: Backend = make()
    return backend


def unavailable(name: str, device: str) -> str | None:
    """Say why backend ``name`` cannot run on ``device`` here, in one line; None if it can."""
    backend = get(name)
    if device not in backend.devices:
        return f"backend {name} does not run on {device}, only on {', '.join(backend.devices)}"
    return backend.unavailable(device)
