"""``python -m oracle.peers DIR``: fills a folder with the published kernels' files.

Downloads the two packages with pip, keeps vLLM's one routing file and what nvcc makes of FlashInfer's
sources, and deletes the rest. Without nvcc on the machine, PyPI's CUDA compiler serves for this run.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from oracle.children import Children
from oracle.commands.base import ENDING, FILE, Parser
from oracle.errors import CannotRunError
from oracle.exits import PASS, ended
from oracle.peers import build, manifest
from oracle.report import Reporter

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


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="python -m oracle.peers",
        description="Fill a folder with the published kernels' files. Downloads two packages, keeps vLLM's "
        "one routing file and what nvcc makes of FlashInfer's sources, and deletes the rest. "
        "MUSESPARK_PEERS=FOLDER then makes the tests and `python -m oracle check` use them.",
        ending=ENDING,
    )
    made.take("folder", FILE, type=Path, metavar="FOLDER", help="where the files go; made if it is not there")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Fill the folder that ``arguments`` names; return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return ended("peers", lambda: _run(parser().parse(words).folder))


def _run(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Children() as children:
            fill(folder, Filling(children, Reporter(unit="steps")))
    except OSError as error:
        raise CannotRunError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    for name, entry in manifest.read(folder).items():
        print(f"{name} {entry.version}: {', '.join(entry.files)} ({entry.made_by})")
    print(f"use them with MUSESPARK_PEERS={folder.resolve()}")
    return PASS


class Filling:
    """The programs that fill a folder, and the progress over them."""

    def __init__(self, children: Children, reporter: Reporter) -> None:
        self.reporter = reporter
        self._children = children

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Say what is going on."""
        self.reporter.note(text)
        yield
        self.reporter.advance(1)

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return self._children.run(command, waiting=self.reporter.tick)

    def pip(self, *arguments: str) -> None:
        """Run pip, which must succeed."""
        command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
        done = self.run(command)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise CannotRunError(f"pip {arguments[0]} {arguments[-1]} failed: {said[:300]}")


def fill(folder: Path, filling: Filling) -> None:
    """Make every file of ``folder``, and its manifest last."""
    nvcc = build.find_nvcc()
    with tempfile.TemporaryDirectory() as scratch, filling.reporter.over(3 if nvcc else 4):
        place = Path(scratch)
        with filling.step("vllm: downloading the wheel for one file of it"):
            file = _unpacked(filling, "vllm", build.VLLM_MEMBER, place) / build.VLLM_MEMBER
            vllm = manifest.entry(folder, VERSIONS["vllm"], build.vllm(file, folder), (build.VLLM_FILE,))
        with filling.step("flashinfer-python: downloading the sources"):
            data = _unpacked(filling, "flashinfer-python", "flashinfer/data/", place) / "flashinfer" / "data"
        if nvcc is None:
            with filling.step("no nvcc here: installing PyPI's for this run"):
                nvcc = _nvcc_from_registry(filling, place)
        with filling.step(f"flashinfer-python: compiling with {nvcc}"):
            made_by = build.flashinfer(data, folder, nvcc, filling.run)
        files = (build.LIBRARY, build.PTX)
        flashinfer = manifest.entry(folder, VERSIONS["flashinfer-python"], made_by, files)
    manifest.write(folder, {"flashinfer": flashinfer, "vllm": vllm})


def _unpacked(filling: Filling, distribution: str, prefix: str, place: Path) -> Path:
    """Download a wheel into ``place``, unpack what starts with ``prefix``, delete the wheel."""
    wheels = place / "wheels"
    requirement = f"{distribution}=={VERSIONS[distribution]}"
    filling.pip("download", "--no-deps", "--only-binary=:all:", "--dest", str(wheels), requirement)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        members = [name for name in file.namelist() if name.startswith(prefix)]
        if not members:
            raise CannotRunError(f"{wheel.name} has no {prefix}")
        file.extractall(place, members)
    wheel.unlink()
    return place


def _nvcc_from_registry(filling: Filling, place: Path) -> Path:
    """Install the CUDA compiler into ``place`` and return it; its parts must be of one release."""
    packages = [f"{name}=={_NVCC_RELEASE}" for name in _NVCC_PACKAGES]
    filling.pip("install", "--no-deps", "--target", str(place / "cuda"), *packages)
    for nvcc in (place / "cuda" / "nvidia").glob("cu*/bin/nvcc"):
        return nvcc
    raise CannotRunError(f"{' '.join(packages)} brought no nvcc")


if __name__ == "__main__":
    sys.exit(main())
