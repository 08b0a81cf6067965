"""``python -m oracle.peers DIR``: fills a folder with the published kernels' files.

Downloads the two packages with pip, keeps vLLM's one routing file and what nvcc makes of FlashInfer's
sources, and deletes the rest. Without nvcc on the machine, PyPI's CUDA compiler serves for this run.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from oracle.errors import CannotRunError
from oracle.peers import build, manifest

VERSIONS: Final = {"flashinfer-python": "0.7.2.post1", "vllm": "0.33.0"}
"""The releases that the comparisons are made for."""

_NVCC_RELEASE: Final = "13.0.*"
_NVCC_PACKAGES: Final = (
    "nvidia-cuda-nvcc",
    "nvidia-cuda-crt",
    "nvidia-nvvm",
    "nvidia-cuda-runtime",
    "nvidia-cuda-cccl",
)


def main(arguments: list[str]) -> int:
    """Fill the folder that ``arguments`` names; return the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m oracle.peers DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fill(folder)
    except (CannotRunError, OSError) as error:
        print(error, file=sys.stderr)
        return 3
    for name, entry in manifest.read(folder).items():
        print(f"{name} {entry.version}: {', '.join(entry.files)} ({entry.made_by})")
    print(f"use them with MUSESPARK_PEERS={folder.resolve()}")
    return 0


def fill(folder: Path) -> None:
    """Make every file of ``folder``, and its manifest last."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        _tell("vllm: downloading the wheel for one file of it")
        file = _unpacked("vllm", build.VLLM_MEMBER, place) / build.VLLM_MEMBER
        vllm = manifest.entry(folder, VERSIONS["vllm"], build.vllm(file, folder), (build.VLLM_FILE,))
        _tell("flashinfer-python: downloading the sources")
        data = _unpacked("flashinfer-python", "flashinfer/data/", place) / "flashinfer" / "data"
        nvcc = build.find_nvcc() or _nvcc_from_registry(place)
        _tell(f"flashinfer-python: compiling with {nvcc}")
        made_by = build.flashinfer(data, folder, nvcc)
        files = (build.LIBRARY, build.PTX)
        flashinfer = manifest.entry(folder, VERSIONS["flashinfer-python"], made_by, files)
    manifest.write(folder, {"flashinfer": flashinfer, "vllm": vllm})


def _unpacked(distribution: str, prefix: str, place: Path) -> Path:
    """Download a wheel into ``place``, unpack what starts with ``prefix``, delete the wheel."""
    wheels = place / "wheels"
    requirement = f"{distribution}=={VERSIONS[distribution]}"
    _pip("download", "--no-deps", "--only-binary=:all:", "--dest", str(wheels), requirement)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        members = [name for name in file.namelist() if name.startswith(prefix)]
        if not members:
            raise CannotRunError(f"{wheel.name} has no {prefix}")
        file.extractall(place, members)
    wheel.unlink()
    return place


def _nvcc_from_registry(place: Path) -> Path:
    """Install the CUDA compiler into ``place`` and return it; its parts must be of one release."""
    _tell("no nvcc here: installing PyPI's for this run")
    packages = [f"{name}=={_NVCC_RELEASE}" for name in _NVCC_PACKAGES]
    _pip("install", "--no-deps", "--target", str(place / "cuda"), *packages)
    for nvcc in (place / "cuda" / "nvidia").glob("cu*/bin/nvcc"):
        return nvcc
    raise CannotRunError(f"{' '.join(packages)} brought no nvcc")


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode != 0:
        raise CannotRunError(f"pip {arguments[0]} failed: {arguments[-1]}")


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
