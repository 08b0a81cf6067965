"""Which versions of what take part: of this project, the arithmetic it models, NumPy and the compilers."""

import importlib.metadata
import platform
from typing import Final

_PROJECT: Final = "musespark-routing"
_PACKAGES: Final = ("numpy", "nvidia-cutlass-dsl", "triton", "torch")


def installed() -> dict[str, str]:
    """Return the versions of what takes part, as far as it is installed."""
    from oracle.peers import find

    found = {"python": platform.python_version()}
    for package in (_PROJECT, *_PACKAGES):
        version = _version(package)
        if version is not None:
            found[package] = version
    return found | find.versions()


def told() -> str:
    """Return what `--version` prints."""
    from spec.compilers import COMPILERS
    from spec.constants import ARCHITECTURE

    compilers = (
        f"{backend}: {compiler.complaint() or f'{compiler.distribution} {compiler.installed()}'}"
        for backend, compiler in COMPILERS.items()
    )
    lines = [
        f"{_PROJECT} {_version(_PROJECT) or 'not installed'}",
        f"specification: the arithmetic of {ARCHITECTURE}",
        *compilers,
        f"numpy {_version('numpy')}",
        f"python {platform.python_version()}",
    ]
    return "\n".join(lines)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
