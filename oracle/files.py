"""Files that are there whole or not at all."""

import os
import tempfile
from pathlib import Path
from typing import Final


class UnwritableError(OSError):
    """A file cannot be written where it was asked for; the text says which and why."""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_MODE: Final = 0o666 & ~_umask()


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` in one step: another process, or an interrupt, never sees half of it.

    Raises
    ------
    UnwritableError
        The folder cannot be made or written, or ``path`` is a folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), _MODE)
            Path(part).replace(path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UnwritableError(f"cannot write {path}: {error.strerror or error}") from error
