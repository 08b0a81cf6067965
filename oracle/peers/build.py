"""Makes the files ready: compiles our driver around FlashInfer's kernel, copies vLLM's routing file.

One run of nvcc makes both the shared library and the PTX, so that the simulator runs what the card runs.
"""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from oracle.errors import CannotRunError
from oracle.files import write_whole

ARCH: Final = "sm_90a"
LIBRARY: Final = "flashinfer.so"
PTX: Final = "flashinfer.ptx"
VLLM_FILE: Final = "vllm_fused_routing.py"
VLLM_MEMBER: Final = "vllm/models/muse_spark/common/ops/fused_routing.py"
"""Where vLLM's package has the kernel; relative to the folder that holds the package."""

_SOURCE: Final = "flashinfer_driver.cu"
_INCLUDES: Final = (
    "cccl/cub",
    "cccl/libcudacxx/include",
    "cccl/thrust",
    "include",
    "csrc",
    "csrc/nv_internal/include",
    "cutlass/include",
    "spdlog/include",
)
_FLAGS: Final = (
    "-std=c++17",
    "-O3",
    "--expt-relaxed-constexpr",
    "-DENABLE_BF16",
    "-diag-suppress=20012",
    f"-gencode=arch=compute_{ARCH.removeprefix('sm_')},code=[{ARCH},compute_{ARCH.removeprefix('sm_')}]",
    "-shared",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-ffunction-sections",
    "-Xlinker=--gc-sections",
    "--keep",
)


def folder() -> Path:
    """Where our driver and its stub headers lie."""
    return Path(__file__).parent


def sources() -> list[Path]:
    """Every file of ours that goes into the library, in a fixed order."""
    return [folder() / _SOURCE, *sorted((folder() / "stubs").rglob("*.h")), Path(__file__)]


def find_nvcc() -> Path | None:
    """Return the CUDA compiler: on PATH, in the toolkit's usual place, from PyPI's package, or None."""
    for program in ("nvcc", "/usr/local/cuda/bin/nvcc"):
        found = shutil.which(program)
        if found is not None:
            return Path(found)
    package = importlib.util.find_spec("nvidia")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        for found_in in sorted(Path(place).glob("cu*/bin/nvcc"), reverse=True):
            return found_in
    return None


def nvcc_version(nvcc: Path) -> str:
    """Return the release of a CUDA compiler, such as ``13.0.88``."""
    said = _run([str(nvcc), "--version"])
    release = re.search(r"release [0-9.]+, V([0-9.]+)", said)
    if release is None:
        raise CannotRunError(f"{nvcc} --version does not say its release")
    return release[1]


Run = Callable[[list[str]], subprocess.CompletedProcess[str]]


def _plainly(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def flashinfer(data: Path, target: Path, nvcc: Path, run: Run = _plainly) -> str:
    """Compile the driver against FlashInfer's sources into ``target``: `LIBRARY` and `PTX`.

    Parameters
    ----------
    data
        The ``data`` folder of the flashinfer package.
    target
        An existing folder.
    nvcc
        The CUDA compiler.
    run
        Runs it.

    Returns
    -------
    What made them, for the manifest.

    Raises
    ------
    CannotRunError
        The compiler refused, in its own words.
    """
    made_by = f"nvcc {nvcc_version(nvcc)} for {ARCH}"
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        includes = [f"-I{folder() / 'stubs'}", *(f"-I{data / name}" for name in _INCLUDES)]
        # PyPI's toolkit has lib where the compiler looks for lib64.
        libraries = f"-L{nvcc.resolve().parent.parent / 'lib'}"
        made = Path(scratch) / LIBRARY
        source = folder() / _SOURCE
        places = [*includes, libraries, f"--keep-dir={scratch}", "-o", str(made)]
        _run([str(nvcc), *_FLAGS, *places, str(source)], run)
        made.replace(target / LIBRARY)
        (Path(scratch) / source.with_suffix(".ptx").name).replace(target / PTX)
    return made_by


def vllm(file: Path, target: Path) -> str:
    """Copy vLLM's routing file into ``target`` as `VLLM_FILE`, and say so for the manifest."""
    write_whole(target / VLLM_FILE, file.read_bytes())
    return f"a copy of {VLLM_MEMBER}"


def _run(command: list[str], run: Run = _plainly) -> str:
    try:
        done = run(command)
    except OSError as error:
        raise CannotRunError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        said = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line]
        first = said[0] if said else (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CannotRunError(f"{Path(command[0]).name} exited {done.returncode}: {first[:300]}")
    return done.stdout
