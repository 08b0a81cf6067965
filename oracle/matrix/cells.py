"""Which versions there are to run: what pip finds in the supported ranges, and just beside them."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from oracle.errors import CannotRunError
from oracle.evidence import ROOT
from spec.compilers import COMPILERS, Compiler, release

_PIN: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.+!]*)")
_ALSO: Final = {"cute": ("apache-tvm-ffi",), "triton": ()}
"""What compiling a kernel so that it can be launched needs beside the compiler."""


@dataclass(frozen=True)
class Cell:
    """One version of one compiler.

    backend, version
        Whose compiler, and which.
    others
        Versions of other packages, as ``name==version``; of the rest the newest that the project permits.
    required
        Whether the run fails where this does.
    """

    backend: str
    version: str
    others: tuple[str, ...] = ()
    required: bool = True

    @property
    def compiler(self) -> Compiler:
        """The compiler that this is a version of."""
        return COMPILERS[self.backend]

    @property
    def supported(self) -> bool:
        """Whether the version lies in the supported range."""
        return self.compiler.supports(self.version)

    @property
    def requirements(self) -> tuple[str, ...]:
        """What to install, the compiler first."""
        pinned = {text.split("==")[0] for text in self.others}
        rest = (text for name, text in _needed(self.backend).items() if name not in pinned)
        return (f"{self.compiler.distribution}=={self.version}", *self.others, *rest)

    def __str__(self) -> str:
        return ",".join((f"{self.compiler.distribution}=={self.version}", *self.others))


def parse(text: str) -> Cell:
    """Read a cell as its `str` has it: ``triton==3.9.0``, or ``triton==3.9.0,numpy==1.26``.

    Raises
    ------
    ValueError
        It is not of that form, or the first package is no compiler of ours.
    """
    matches = [_PIN.fullmatch(part) for part in text.split(",")]
    if not all(matches):
        raise ValueError(f"must be NAME==VERSION, more of them after commas, not {text!r}")
    (name, version), *_ = pins = [match.groups() for match in matches if match]
    backends = {compiler.distribution: backend for backend, compiler in COMPILERS.items()}
    if name not in backends:
        raise ValueError(f"must start with {' or '.join(backends)}, not {name!r}")
    return Cell(backends[name], version, tuple(f"{name}=={version}" for name, version in pins[1:]))


def released(distribution: str) -> list[str]:
    """Return the releases of ``distribution`` that pip finds, the oldest first.

    Raises
    ------
    CannotRunError
        It finds none.
    """
    line = [sys.executable, "-m", "pip", "index", "versions", distribution]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    match = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if match is None:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise CannotRunError(f"pip finds no releases of {distribution}: {' '.join(errors[-1:])}")
    return sorted(match[1].split(", "), key=release)


def every(list_releases: Callable[[str], list[str]] = released) -> list[Cell]:
    """Return the cells of a whole run.

    These are all supported releases; the oldest again, with the oldest of the other packages that the project
    permits; and of each compiler the nearest release on both sides of the range, which need not work.
    """
    found = []
    for backend, compiler in COMPILERS.items():
        releases = list_releases(compiler.distribution)
        supported = [version for version in releases if compiler.supports(version)]
        if not supported:
            raise CannotRunError(
                f"pip finds no release for {compiler.requirement}, only {', '.join(releases)}"
            )
        below = [version for version in releases if release(version) < release(compiler.first)]
        above = [version for version in releases if release(version) >= release(compiler.end)]
        oldest = tuple(_oldest(text) for text in _needed(backend).values())
        found += [Cell(backend, version, required=False) for version in below[-1:]]
        found.append(Cell(backend, supported[0], oldest))
        found += [Cell(backend, version) for version in supported]
        found += [Cell(backend, version, required=False) for version in above[:1]]
    return found


@cache
def _needed(backend: str) -> dict[str, str]:
    """Return the project's requirements that take part beside the compiler, by name."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    compilers = {compiler.distribution for compiler in COMPILERS.values()}
    named = {_name(text): text for text in project["dependencies"] if _name(text) not in compilers}
    optional = {_name(text): text for text in project["optional-dependencies"]["torch"]}
    return named | {name: optional[name] for name in _ALSO[backend]}


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]


def _oldest(requirement: str) -> str:
    """Return ``numpy==1.26`` for ``numpy>=1.26``."""
    return requirement.split(",")[0].replace(">=", "==")
