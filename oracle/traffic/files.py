"""Reads files that anyone may have sent: arrays by name, nothing unpickled, one line on every damage."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.errors import CannotRunError
from oracle.traffic import FORMAT, INPUTS, OUTPUTS

SUFFIXES: Final = (".safetensors", ".npz", ".pt")
_NAMES: Final = frozenset((*INPUTS, *OUTPUTS, "call"))
_DTYPES: Final = {
    "F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
    "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip

Array = npt.NDArray[Any]
_Opened = tuple[list[str], Callable[[str], Array], dict[str, str]]
"""The names in a file, what reads one of them, and the header."""


class TrafficError(ValueError):
    """A file is not there, damaged, or holds no calls; the message is one line that names it."""


@dataclass(frozen=True)
class Content:
    """What one file holds.

    arrays
        By name, of those that `oracle.traffic` knows.
    about
        The header of a recorded file: backend, device, versions; empty for other files.
    ignored
        Names of the file that mean nothing here.
    """

    arrays: dict[str, Array]
    about: dict[str, str]
    ignored: tuple[str, ...]


def find(path: Path) -> list[Path]:
    """Return the file, or all files below the folder that may hold calls, in the order of their names.

    Raises
    ------
    TrafficError
        There is nothing, or nothing of a known kind.
    """
    kinds = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
        if not found:
            raise TrafficError(f"{path} holds no {kinds} file")
        return found
    if path.suffix not in SUFFIXES:
        raise TrafficError(f"{path} is no {kinds} file")
    if not path.exists():
        raise TrafficError(f"cannot read {path}: No such file or directory")
    return [path]


def read(path: Path) -> Content:
    """Read one file.

    Raises
    ------
    TrafficError
        It cannot be read, is damaged, or holds something other than numbers.
    CannotRunError
        The package that reads this kind of file is not installed.
    """
    readers = {".safetensors": _safetensors, ".npz": _npz, ".pt": _pt}
    try:
        names, get, about = readers[path.suffix](path)
        arrays = {name: get(name) for name in names if name in _NAMES}
    except OSError as error:
        raise TrafficError(f"cannot read {path}: {error.strerror or _line(error)}") from error
    except (CannotRunError, KeyboardInterrupt):
        raise
    except Exception as error:
        # Three parsers of three packages: what they raise on damage is not a closed list.
        raise TrafficError(f"{path} is damaged, or no file of its kind: {_line(error)}") from error
    return Content(arrays, about, tuple(name for name in names if name not in _NAMES))


def _line(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return text[:200] or type(error).__name__


def _safetensors(path: Path) -> _Opened:
    try:
        import safetensors
    except ImportError as error:
        raise CannotRunError(f"safetensors is not installed, and {path} is a file of it") from error
    content = path.read_bytes()
    parse: Any = safetensors.deserialize
    tensors: dict[str, Any] = dict(parse(content))
    header_end = 8 + int.from_bytes(content[:8], "little")
    about = json.loads(content[8:header_end]).get("__metadata__", {})

    def get(name: str) -> Array:
        dtype = tensors[name]["dtype"]
        if dtype not in _DTYPES:
            raise ValueError(f"{name} has the type {dtype}")
        made: Array = np.frombuffer(tensors[name]["data"], _DTYPES[dtype]).reshape(tensors[name]["shape"])
        return made

    return list(tensors), get, about if about.get("format") == FORMAT else {}


def _npz(path: Path) -> _Opened:
    content = io.BytesIO(path.read_bytes())
    if not zipfile.is_zipfile(content):
        raise ValueError("no archive of NumPy arrays")
    content.seek(0)
    archive = np.load(content, allow_pickle=False)
    return archive.files, archive.__getitem__, {}


def _pt(path: Path) -> _Opened:
    try:
        import torch
    except ImportError as error:
        raise CannotRunError(f"torch is not installed, and {path} is a file of it") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about old and foreign pickles, which it then refuses anyway
        content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError(f"it holds a {type(content).__name__}, not tensors by name")

    def get(name: str) -> Array:
        value = content[name]
        if isinstance(value, bool | int | float):
            return np.array(value)
        try:
            made: Array = value.detach().contiguous().numpy()
        except (TypeError, AttributeError) as error:
            kind = str(getattr(value, "dtype", type(value).__name__))
            raise ValueError(f"{name} has the type {kind.removeprefix('torch.')}") from error
        return made

    return list(content), get, {}
