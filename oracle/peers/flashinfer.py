"""FlashInfer's routing kernel, through our driver's plain C interface."""

import ctypes
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from oracle.errors import CannotRunError
from oracle.peers import build
from oracle.peers.find import find
from spec.constants import NUM_EXPERTS

THREADS: Final = 256
"""Of the kernel's one CTA."""

CALL: Final = np.dtype(
    [
        ("ids", np.uint64),
        ("logits", np.uint64),
        ("bias", np.uint64),
        ("weights", np.uint64),
        ("replay", np.uint64),
        ("padded_tokens", np.uint64),
        ("num_ctas", np.uint64),
        ("cta_batch", np.uint64),
        ("cta_limit", np.uint64),
        ("expanded_to_permuted", np.uint64),
        ("permuted_to_token", np.uint64),
        ("tokens", np.int32),
        ("tile", np.int32),
        ("offset", np.int32),
        ("count", np.int32),
        ("scale", np.float32),
        ("epsilon", np.float32),
    ],
    align=True,
)
"""One launch's arguments, as the driver's struct ``Call``: addresses (0: absent), integers, floats."""


def dynamic_shared(tokens: int) -> int:
    """Bytes of dynamic shared memory: 8 and 16 bits a token and expert, alignment, two totals a warp."""
    return tokens * NUM_EXPERTS * 3 + 128 + 2 * (NUM_EXPERTS // 32) * 4


class Driver:
    """The compiled driver.

    ptx, entry
        The kernel's PTX, made by the same run of the compiler, and its name there.

    Raises
    ------
    CannotRunError
        The library cannot be loaded, or is not of this driver's source.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(folder / build.LIBRARY))
            for name in ("musespark_call_size", "musespark_parameters_size"):
                getattr(self._library, name).restype = ctypes.c_size_t
            self._library.musespark_launch.restype = ctypes.c_char_p
            self._library.musespark_pack.restype = None
        except (OSError, AttributeError) as error:
            raise CannotRunError(f"{folder / build.LIBRARY} cannot be loaded: {error}") from error
        size = self._library.musespark_call_size()
        if size != CALL.itemsize:
            raise CannotRunError(f"{folder / build.LIBRARY} takes calls of {size} bytes, not {CALL.itemsize}")
        self._parameters_size = int(self._library.musespark_parameters_size())
        self.ptx = (folder / build.PTX).read_text(encoding="utf-8")
        self.entry = entry_of(self.ptx)

    def pack(self, calls: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
        """Return each call's parameter struct, as FlashInfer's host code fills it: uint8 ``[L, n]``."""
        packed = np.zeros((len(calls), self._parameters_size), np.uint8)
        self._library.musespark_pack(_pointer(calls), ctypes.c_int64(len(calls)), _pointer(packed))
        return packed

    def launch(self, calls: npt.NDArray[np.void], stream: int) -> None:
        """Launch every call in order on a CUDA stream of the current device.

        Raises
        ------
        CannotRunError
            CUDA refused a launch.
        """
        count = ctypes.c_int64(len(calls))
        said = self._library.musespark_launch(_pointer(calls), count, ctypes.c_void_p(stream))
        if said is not None:
            raise CannotRunError(f"FlashInfer's kernel was not launched: {said.decode(errors='replace')}")


@lru_cache(maxsize=1)
def driver() -> Driver:
    """Return the driver, built now if it never was."""
    return Driver(find("flashinfer").folder)


def entry_of(ptx: str) -> str:
    """Return the name of the one kernel in ``ptx``.

    Raises
    ------
    CannotRunError
        There is none, or more than one.
    """
    found = re.findall(r"^\.visible \.entry (\w+)\(", ptx, re.MULTILINE)
    if len(found) != 1:
        raise CannotRunError(f"the driver's PTX has {len(found)} kernels, not one")
    return str(found[0])


def _pointer(array: npt.NDArray[np.void] | npt.NDArray[np.uint8]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
