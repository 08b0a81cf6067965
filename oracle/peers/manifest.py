"""A folder of prepared files of published kernels, and the manifest that says what they are.

``manifest.json`` is ``{"format": 1, "peers": {name: {"version", "made_by", "files": {file: SHA-256}}}}``.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from oracle.errors import CannotRunError
from oracle.files import write_whole

NAME: Final = "manifest.json"
_FORMAT: Final = 1


@dataclass(frozen=True)
class Entry:
    """One published kernel's prepared files.

    version
        Of the package they come from.
    made_by
        The compiler and its target, or what else was done.
    files
        File name in the folder -> SHA-256 in hex.
    """

    version: str
    made_by: str
    files: dict[str, str]


def entry(folder: Path, version: str, made_by: str, files: tuple[str, ...]) -> Entry:
    """Return the entry for ``files``, which lie in ``folder``."""
    return Entry(version, made_by, {name: _sha256(folder / name) for name in files})


def write(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Write the manifest of ``folder``."""
    text = {"format": _FORMAT, "peers": {name: asdict(one) for name, one in entries.items()}}
    write_whole(folder / NAME, (json.dumps(text, indent=2) + "\n").encode())
    (folder / NAME).chmod(0o644)


def read(folder: Path) -> dict[str, Entry]:
    """Return the entries of the manifest of ``folder``.

    Raises
    ------
    CannotRunError
        There is no manifest, or it is not of the form above.
    """
    path = folder / NAME
    try:
        text: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise CannotRunError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CannotRunError(f"{path} is not JSON") from error
    try:
        if text["format"] != _FORMAT:
            raise CannotRunError(f"{path} has format {text['format']!r}, not {_FORMAT}: make it again")
        return {name: _entry(one) for name, one in text["peers"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise CannotRunError(f"{path} is no manifest of prepared kernels") from error


def verified(folder: Path, name: str) -> Entry:
    """Return the entry of ``name``, its files compared with their checksums.

    Raises
    ------
    CannotRunError
        The manifest lacks the entry, or a file is missing or has other content.
    """
    entries = read(folder)
    if name not in entries:
        raise CannotRunError(f"{folder / NAME} has no {name}")
    for file, right in entries[name].files.items():
        try:
            got = _sha256(folder / file)
        except OSError as error:
            raise CannotRunError(f"{folder / file} cannot be read: {error.strerror}") from error
        if got != right:
            raise CannotRunError(f"{folder / file} is not the manifest's file: its SHA-256 is {got}")
    return entries[name]


def _entry(one: Any) -> Entry:
    files = {str(name): str(checksum) for name, checksum in one["files"].items()}
    return Entry(str(one["version"]), str(one["made_by"]), files)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
