"""Finds a published kernel: in the folder that ``MUSESPARK_PEERS`` names, else in the installed package."""

import hashlib
import importlib.metadata
import importlib.util
import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from oracle.artifacts import locked
from oracle.errors import CannotRunError
from oracle.peers import build, manifest
from spec.folders import cache_folder

VARIABLE: Final = "MUSESPARK_PEERS"
"""The environment variable that names a folder made by ``ci/peers``."""

_NO_NVCC: Final = "no nvcc for FlashInfer's kernel: not on PATH, in /usr/local/cuda, or from nvidia-cuda-nvcc"
_DISTRIBUTIONS: Final = {"flashinfer": "flashinfer-python", "vllm": "vllm"}


@dataclass(frozen=True)
class Peer:
    """A published kernel's files, ready to load.

    version
        Of the package they come from.
    folder
        Where they lie, under the names of `oracle.peers.build`.
    """

    version: str
    folder: Path


def missing(name: str) -> str | None:
    """Why the files of ``flashinfer`` or ``vllm`` cannot be had here, in one line; None if they can."""
    try:
        _version(name)
    except CannotRunError as error:
        return str(error)
    return None


def versions() -> dict[str, str]:
    """Return the versions of the packages whose kernels are here, by distribution."""
    return {_DISTRIBUTIONS[name]: _version(name) for name in _DISTRIBUTIONS if missing(name) is None}


def _version(name: str) -> str:
    named = os.environ.get(VARIABLE)
    return manifest.verified(Path(named), name).version if named else _installed(name)[1]


@lru_cache(maxsize=4)
def find(name: str) -> Peer:
    """Return the files of ``flashinfer`` or ``vllm``; those of an installed package are made once.

    Raises
    ------
    CannotRunError
        They cannot be had, for the reason of `missing`, or the build failed.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Peer(manifest.verified(Path(named), name).version, Path(named))
    source, version = _installed(name)
    return prepared(name, source, version, cache_folder())


def prepared(name: str, source: Path, version: str, cache: Path) -> Peer:
    """Return the files of ``name`` made from ``source``, from the cache folder if they were made before."""
    digest = hashlib.sha256(repr((name, version, str(source))).encode())
    for file in build.sources():
        digest.update(file.read_bytes())
    folder = cache / f"{name}-{digest.hexdigest()[:24]}"
    with locked(folder.with_suffix(".lock")):
        if not (folder / manifest.NAME).exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix=f".{name}-") as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                manifest.write(made, {name: make(name, source, version, made)})
                made.rename(folder)
    return Peer(manifest.verified(folder, name).version, folder)


def make(name: str, source: Path, version: str, folder: Path) -> manifest.Entry:
    """Make the files of ``name`` from ``source`` in ``folder`` and return their manifest entry."""
    if name == "vllm":
        return manifest.entry(folder, version, build.vllm(source, folder), (build.VLLM_FILE,))
    nvcc = build.find_nvcc()
    if nvcc is None:
        raise CannotRunError(_NO_NVCC)
    made_by = build.flashinfer(source, folder, nvcc)
    return manifest.entry(folder, version, made_by, (build.LIBRARY, build.PTX))


def _installed(name: str) -> tuple[Path, str]:
    """Return the installed package's sources, found without importing it, and its version."""
    distribution = _DISTRIBUTIONS[name]
    package = importlib.util.find_spec(name)
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        package = None
    if package is None or not package.submodule_search_locations:
        raise CannotRunError(f"{distribution} is not installed, and {VARIABLE} is not set (see ci/peers)")
    root = Path(next(iter(package.submodule_search_locations)))
    source = root / "data" if name == "flashinfer" else root.parent / build.VLLM_MEMBER
    if not source.exists():
        raise CannotRunError(f"{distribution} is installed without {source}")
    if name == "flashinfer" and build.find_nvcc() is None:
        raise CannotRunError(_NO_NVCC)
    return source, version
