"""Where what is compiled once is kept, and the name of what it was made from; for compilers and for tools."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of everything that is compiled once, which need not exist.

    It is ``$MUSESPARK_ROUTING_CACHE``, else ``$XDG_CACHE_HOME/musespark-routing``, else
    ``~/.cache/musespark-routing``.
    """
    named = os.environ.get("MUSESPARK_ROUTING_CACHE")
    if named:
        return Path(named)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "musespark-routing"


def digest(facts: object, sources: Iterable[Path]) -> str:
    """Return a short name for facts, by their ``repr``, and for the names and contents of source files."""
    whole = hashlib.sha256(repr(facts).encode())
    for source in sources:
        whole.update(source.name.encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
    return whole.hexdigest()[:24]
