"""Compiles the CUDA C++ of this package: with nvcc for the card, with the host's C++ for its tests.

Sizes, offsets and constants reach the sources through a header generated from `spec`, so that none is
restated there.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import spec
from oracle.errors import CannotRunError
from oracle.problem import POISON_WORD

FOLDER: Final = Path(__file__).parent
_HEADER: Final = "generated.h"
_NAMES: Final = (
    "NUM_EXPERTS",
    "TOP_K",
    "MAX_TOKENS",
    "MAX_TILE",
    "MAX_CTAS",
    "NAN_BITS",
    "NEG_LOG2E_BITS",
    "META_PADDED_TOKENS",
    "META_NUM_CTAS",
    "META_CTA_BATCH",
    "META_CTA_LIMIT",
    "META_EXPANDED_TO_PERMUTED",
    "META_PERMUTED_TO_TOKEN",
)


class BuildError(CannotRunError):
    """A compiler is missing or refused a source; the text says which."""


def header() -> str:
    """Return the generated header: one constant a line, each from `spec` or `oracle.problem`."""
    constants = {name: getattr(spec, name) for name in _NAMES} | {"POISON_WORD": POISON_WORD}
    lines = [f"constexpr unsigned {name} = {value}u;" for name, value in constants.items()]
    return "\n".join(["#pragma once", *lines, ""])


def _compiler(arch: str | None) -> list[str]:
    """Return the command line up to the source: nvcc for ``arch``, or the host's C++ for None."""
    if arch is None:
        program = shutil.which("g++") or shutil.which("c++")
        if program is None:
            raise BuildError(
                "no C++ compiler on PATH: g++ is needed to compile the card's models for this host"
            )
        flags = ["-O2", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", "-pthread", "-x", "c++"]
        return [program, *flags]
    program = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if program is None:
        raise BuildError(
            "no nvcc on PATH or in /usr/local/cuda/bin: the CUDA toolkit is needed to compile for the card"
        )
    code = f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}"
    return [program, "-O3", "-std=c++17", "--fmad=false", code, "-shared", "-Xcompiler", "-fPIC,-pthread"]


def library(source: str, arch: str | None) -> Path:
    """Compile one source of this package into a shared library, once for each content, and return its path.

    Parameters
    ----------
    source
        A file name in this folder.
    arch
        ``"sm_90"`` and the like: for the card; ``None``: for this host, without its CUDA parts.

    Raises
    ------
    BuildError
        No compiler, or the compiler's own words.
    """
    command = _compiler(arch)
    digest = hashlib.sha256(repr((command, header())).encode())
    for path in [*sorted(FOLDER.glob("*.h")), FOLDER / source]:
        digest.update(path.read_bytes())
    cache = Path(tempfile.gettempdir()) / f"musespark-routing-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    target = cache / f"{Path(source).stem}-{arch or 'host'}-{digest.hexdigest()[:24]}.so"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = Path(folder) / target.name
        (Path(folder) / _HEADER).write_text(header(), encoding="utf-8")
        line = [*command, f"-I{folder}", f"-I{FOLDER}", "-o", str(made), str(FOLDER / source)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"{' '.join(line)}\n{done.stdout}{done.stderr}")
        made.replace(target)
    return target


def load(source: str, arch: str | None) -> ctypes.CDLL:
    """Compile ``source`` as `library` does and load it."""
    return ctypes.CDLL(str(library(source, arch)))
