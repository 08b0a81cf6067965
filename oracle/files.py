"""Files that are there whole or not at all."""

import os
from pathlib import Path


class UnwritableError(OSError):
    """A file cannot be written where it was asked for; the text says which and why."""


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` in one step: another process, or an interrupt, never sees half of it.

    Raises
    ------
    UnwritableError
        The folder cannot be made or written, or ``path`` is a folder.
    """
    # Named before it is made: an interrupt may come at any line, and what it leaves must be found again.
    part = path.parent / f".{path.name}.{os.urandom(6).hex()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UnwritableError(f"cannot write {path}: {error.strerror or error}") from error
