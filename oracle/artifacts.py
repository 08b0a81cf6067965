"""Compiled kernels on disk, shared between processes: each variant is compiled once.

They lie in `spec.folders.cache_folder`. An entry is one zip file: the PTX, the cubin, and a JSON of the rest.
"""

import fcntl
import importlib.util
import io
import json
import platform
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from oracle.errors import CannotRunError
from oracle.files import write_whole
from spec.compilers import COMPILERS
from spec.folders import cache_folder, digest

_FORMAT: Final = 2


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel, as ``impl_X.compiler.Compiled`` has it.

    ptx, cubin
        What the compiler made.
    entry
        The kernel's name in the PTX.
    threads, dynamic_shared
        Of a CTA; bytes.
    row_ctas
        The grid has a CTA a token row, not one in all.
    cluster
        The CTAs of a launch form one cluster.
    """

    ptx: str
    cubin: bytes
    entry: str
    threads: int
    dynamic_shared: int
    row_ctas: bool
    cluster: bool

    def grid(self, tokens: int) -> int:
        """Return the CTAs of a launch of so many token rows."""
        return tokens if self.row_ctas else 1

    def cluster_ctas(self, tokens: int) -> int | None:
        """Return the CTAs of the cluster that such a launch asks for; None where it asks for none."""
        return self.grid(tokens) if self.cluster else None


_IN_JSON: Final[dict[str, Any]] = {
    "entry": str,
    "threads": int,
    "dynamic_shared": int,
    "row_ctas": bool,
    "cluster": bool,
}
"""Fields of `Compiled` that an entry has in its JSON."""


def compiled_backends() -> tuple[str, ...]:
    """Return the backends that have kernels to compile."""
    return tuple(COMPILERS)


def missing_compiler(backend: str) -> str | None:
    """Why the kernels of ``backend`` cannot be compiled here, in one line; None if they can."""
    compiler = COMPILERS[backend]
    if importlib.util.find_spec(compiler.package) is None:
        return f"the package {compiler.package} is not there"
    return compiler.complaint()


@lru_cache(maxsize=16)
def artifact(
    backend: str,
    metadata: bool,
    renormalize: bool,
    arch: str = "sm_90a",
    options: str = "",
    early_dependents: bool = False,
) -> Compiled:
    """Return one variant of a backend's kernel, from the disk if it was compiled before.

    Parameters
    ----------
    backend
        ``cute`` or ``triton``.
    metadata, renormalize, early_dependents
        The variant.
    arch
        What it is compiled for.
    options
        Of the backend's own ``compile_kernel``.

    Raises
    ------
    CannotRunError
        The compiler is missing or fails, or the cache folder cannot be written.
    """
    reason = missing_compiler(backend)
    if reason is not None:
        raise CannotRunError(reason)
    path = entry_path(backend, metadata, renormalize, arch, options, early_dependents)
    found = _load(path)
    if found is not None:
        return found
    with locked(path.with_suffix(".lock")):
        found = _load(path)
        if found is None:
            found = _compile(backend, metadata, renormalize, arch, options, early_dependents)
            write_whole(path, _packed(found))
    return found


def entry_path(
    backend: str,
    metadata: bool,
    renormalize: bool,
    arch: str = "sm_90a",
    options: str = "",
    early_dependents: bool = False,
) -> Path:
    """Where the variant lies on disk: its name holds a hash of all that its code depends on."""
    compiler = COMPILERS[backend]
    words = [backend, "metadata" if metadata else "plain", "renormalize" if renormalize else "raw"]
    variant = "-".join([*words, *(["early"] if early_dependents else []), arch])
    facts = (_FORMAT, variant, compiler.installed(), platform.python_version(), options)
    return cache_folder() / f"{variant}-{digest(facts, _sources(compiler.package))}.zip"


def _sources(package: str) -> list[Path]:
    """Return what the kernels are made from: the backend's modules, and the two of spec that they import."""
    spec_folder, folder = _package_folder("spec"), _package_folder(package)
    return [*sorted(folder.glob("*.py")), spec_folder / "constants.py", spec_folder / "layout.py"]


def _package_folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise CannotRunError(f"the package {package} is not there")
    return Path(next(iter(found.submodule_search_locations)))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``, so that one process alone makes what lies beside it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise CannotRunError(f"cannot write the cache, set MUSESPARK_ROUTING_CACHE: {error}") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(
    backend: str, metadata: bool, renormalize: bool, arch: str, options: str, early_dependents: bool
) -> Compiled:
    try:
        compiler = import_module(f"{COMPILERS[backend].package}.compiler")
        made: Any = compiler.compile_kernel(metadata, renormalize, arch, options, early_dependents)
    except Exception as error:
        raise CannotRunError(f"compiling {backend} for {arch} failed: {_innermost(error)}") from error
    rest = {name: getattr(made, name) for name in _IN_JSON}
    return Compiled(ptx=made.ptx, cubin=bytes(made.cubin), **rest)


def _innermost(error: BaseException) -> str:
    """Say what an error came from: compilers wrap it, and put what is wrong last."""
    while error.__cause__ is not None:
        error = error.__cause__
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return f"{type(error).__name__}: {' '.join(plain.split())[-600:]}"


def _packed(compiled: Compiled) -> bytes:
    content = io.BytesIO()
    rest = {name: getattr(compiled, name) for name in _IN_JSON}
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("kernel.ptx", compiled.ptx)
        file.writestr("kernel.cubin", compiled.cubin)
        file.writestr("about.json", json.dumps(rest))
    return content.getvalue()


def _load(path: Path) -> Compiled | None:
    """Return the entry; None where there is none, or a damaged one (the zip's checksums tell)."""
    try:
        with zipfile.ZipFile(path) as file:
            about = json.loads(file.read("about.json"))
            ptx, cubin = file.read("kernel.ptx").decode(), file.read("kernel.cubin")
        return Compiled(ptx=ptx, cubin=cubin, **{name: kind(about[name]) for name, kind in _IN_JSON.items()})
    except (
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        EOFError,
        NotImplementedError,
    ):
        return None
