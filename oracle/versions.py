"""Which versions of what take part: of this project, the arithmetic it models, NumPy and the compilers."""

import importlib.metadata
import platform
from typing import Final

_PROJECT: Final = "musespark-routing"
_COMPILERS: Final = {"CuTe DSL": "nvidia-cutlass-dsl", "Triton": "triton"}


def installed() -> dict[str, str]:
    """Return the versions of what takes part, as far as it is installed."""
    from oracle.peers import find

    found = {"python": platform.python_version()}
    for package in (_PROJECT, "numpy", *_COMPILERS.values(), "torch"):
        version = _version(package)
        if version is not None:
            found[package] = version
    return found | find.versions()


def told() -> str:
    """Return what `--version` prints."""
    from spec.arithmetic import ARCHITECTURE

    compilers = (f"{name} {_version(package) or 'not installed'}" for name, package in _COMPILERS.items())
    lines = [
        f"{_PROJECT} {_version(_PROJECT) or 'not installed'}",
        f"specification: the arithmetic of {ARCHITECTURE}",
        f"compilers: {', '.join(compilers)}",
        f"NumPy {_version('numpy')}, Python {platform.python_version()}",
    ]
    return "\n".join(lines)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
