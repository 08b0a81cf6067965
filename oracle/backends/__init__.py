"""Backends: one adapter a file, imported when asked for; adapters never repair outputs.

Each file of this folder is one, but for those that adapters share: ``flashinfer_logits.py`` holds
``flashinfer-logits`` as its class `FlashinferLogits`. So a new backend is a new file.
"""

import pkgutil
from importlib import import_module
from typing import Any, Final, Protocol

from oracle.problem import Batch, Outputs

_SHARED: Final = ("on_cuda", "simulated")
"""Files of this folder that adapters share."""

_ADAPTERS: Final = {
    module.name.replace("_", "-"): f"{__name__}.{module.name}:{module.name.title().replace('_', '')}"
    for module in pkgutil.iter_modules(__path__)
    if module.name not in _SHARED
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
        There is no such backend, and the message lists those there are; or its file has no such class.
    """
    if name not in _ADAPTERS:
        raise ValueError(f"no backend {name!r}: there are {', '.join(_ADAPTERS)}")
    module, adapter = _ADAPTERS[name].split(":")
    make: Any = getattr(import_module(module), adapter, None)
    if make is None:
        raise ValueError(
            f"{module.replace('.', '/')}.py has no class {adapter}, which backend {name} should be"
        )
    backend: Backend = make()
    return backend


def unavailable(name: str, device: str) -> str | None:
    """Say why backend ``name`` cannot run on ``device`` here, in one line; None if it can."""
    backend = get(name)
    if device not in backend.devices:
        return f"backend {name} does not run on {device}, only on {', '.join(backend.devices)}"
    return backend.unavailable(device)
