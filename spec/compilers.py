"""The compilers of the two backends, and the versions of each that are known to give the right bits.

`ci/matrix` runs every version in these ranges; pyproject.toml states the same ranges to installers.
"""

import importlib.metadata
import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Compiler:
    """What compiles the kernels of one backend.

    package
        Ours, with the kernels.
    distribution
        The compiler, as installers name it.
    first, end
        Supported are the versions from ``first`` up to, and without, ``end``.
    aliases
        Other names that the same compiler is distributed under.
    """

    package: str
    distribution: str
    first: str
    end: str
    aliases: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """The range as installers read it."""
        return f"{self.distribution}>={self.first},<{self.end}"

    def supports(self, version: str) -> bool:
        """Whether ``version`` lies in the range; a pre-release counts as its release."""
        return release(self.first) <= release(version) < release(self.end)

    def installed(self) -> str | None:
        """Return the version that is installed, None if there is none."""
        for name in (self.distribution, *self.aliases):
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return None

    def complaint(self) -> str | None:
        """Why the kernels cannot be compiled with what is installed here, in one line; None if they can."""
        version = self.installed()
        if version is not None and self.supports(version):
            return None
        return (
            f"{self.package} needs {self.requirement}, but {version or 'none'} is installed: "
            f"pip install '{self.requirement}'"
        )


COMPILERS: Final = {
    "cute": Compiler("impl_cute", "nvidia-cutlass-dsl", "4.6", "4.9"),
    # NVIDIA's and PyTorch's own builds of Triton have the other name.
    "triton": Compiler("impl_triton", "triton", "3.6", "3.10", aliases=("pytorch-triton",)),
}
"""The compiler of each backend that has one."""


def release(version: str) -> tuple[int, ...]:
    """Return the numbers that ``version`` starts with, so that versions order as installers order releases.

    Raises
    ------
    ValueError
        It does not start with a number.
    """
    match = re.match(r"\d+(?:\.\d+)*", version)
    if match is None:
        raise ValueError(f"a version starts with a number, not {version!r}")
    numbers = [int(number) for number in match[0].split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


def require(backend: str) -> None:
    """Let the import of a backend's package go on where its compiler is of a supported version.

    Raises
    ------
    ImportError
        It is not; the message says what is installed and what to install.
    """
    reason = COMPILERS[backend].complaint()
    if reason is not None:
        raise ImportError(reason)
