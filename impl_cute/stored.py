"""Compiled variants on disk: what one process has compiled, the next one loads.

An entry is the code and its digest, in one file of `spec.folders.cache_folder`. A folder that cannot be
written, or an entry that is damaged, costs a compilation and no more.
"""

import contextlib
import hashlib
import importlib.metadata
import logging
import os
import platform
from pathlib import Path
from typing import Any, Final

import spec.constants
import spec.layout
from impl_cute.compiler import compile_object, load_object
from spec.folders import cache_folder, digest

_FORMAT: Final = 1
_LOG: Final = logging.getLogger("musespark_routing")
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_COMPILERS: Final = (
    "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base",
    "nvidia-cutlass-dsl-libs-core",
    "nvidia-cutlass-dsl-libs-cu12",
    "nvidia-cutlass-dsl-libs-cu13",
    "apache-tvm-ffi",
)
_SETTINGS: Final = "CUTE_DSL_"

_unwritable: Final[set[Path]] = set()


def stored_function(metadata: bool, renormalize: bool, arch: str, early_dependents: bool) -> Any:
    """Return one variant's function, as `load_object` does, compiled only where the disk does not have it.

    Parameters
    ----------
    metadata, renormalize, early_dependents
        The variant.
    arch
        As in `compile_kernel`.
    """
    path = entry_path(metadata, renormalize, arch, early_dependents)
    code = _read(path)
    if code is not None:
        with contextlib.suppress(RuntimeError):  # of code that is not for this machine after all
            return load_object(code)
    code = compile_object(metadata, renormalize, f"--gpu-arch {arch}", early_dependents)
    _write(path, code)
    return load_object(code)


def entry_path(metadata: bool, renormalize: bool, arch: str, early_dependents: bool) -> Path:
    """Where the variant lies on disk: its name holds a hash of all that the code depends on."""
    words = ["metadata" if metadata else "plain", "renormalize" if renormalize else "raw"]
    variant = "-".join(["cute", *words, *(["early"] if early_dependents else []), arch])
    settings = sorted(item for item in os.environ.items() if item[0].startswith(_SETTINGS))
    facts = (_FORMAT, variant, _versions(), platform.python_version(), _processor(), settings)
    ours = Path(__file__).parent.glob("*.py")
    sources = [*sorted(ours), *(Path(str(module.__file__)) for module in (spec.constants, spec.layout))]
    return cache_folder() / f"{variant}-{digest(facts, sources)}.o"


def _versions() -> list[str]:
    found = []
    for name in _COMPILERS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return found


def _processor() -> str:
    """Return what the processor can do: code is compiled for this one, and folders are shared by machines."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            if line.startswith(("flags", "Features")):
                return f"{platform.machine()} {line}"
    return platform.machine()


def _read(path: Path) -> bytes | None:
    """Return the code; None where there is none, or a damaged one."""
    try:
        entry = path.read_bytes()
    except OSError:
        return None
    code = entry[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == entry[:_DIGEST_BYTES] else None


def _write(path: Path, code: bytes) -> None:
    """Keep the code, in one step; a folder that cannot be written is told to the log, once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
        try:
            part.write_bytes(hashlib.sha256(code).digest() + code)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        if path.parent not in _unwritable:
            _unwritable.add(path.parent)
            _LOG.warning("compiled kernels are not kept, each process compiles its own: %s", error)
