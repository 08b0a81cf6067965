"""`check --watch`: the fast run again on every save of a source file of the backends or of spec.

This process only looks at the files. Each run is a process of its own, so it imports what was saved; a save
during a run ends it and starts the next.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from oracle import streams

COMMAND: Final = (sys.executable, "-m", "oracle", "check", "--fast")
"""What is run, with ``--backend`` and more after it."""

_LOOK_SECONDS: Final = 0.2
_STILL_SECONDS: Final = 0.15
"""Editors write a file in several steps: a change counts once nothing moves for so long."""

_CLEAR: Final = "\x1b[2J\x1b[H"
_WORDS: Final = {0: "PASS", 1: "FAIL"}

State = dict[Path, tuple[int, int]]
"""Of every file its time of change in nanoseconds and its size."""


@dataclass(frozen=True)
class Watched:
    """Folders of sources, and the backends to run where something in one changes."""

    folders: dict[Path, tuple[str, ...]]

    def state(self) -> State:
        """Return what the files are like now."""
        found: State = {}
        for folder in self.folders:
            for path in folder.rglob("*"):
                if path.suffix in (".py", ".csv") and not path.name.startswith("."):
                    try:
                        stat = path.stat()
                    except FileNotFoundError:  # gone since it was listed
                        continue
                    found[path] = (stat.st_mtime_ns, stat.st_size)
        return found

    def still(self, state: State) -> State:
        """Return the next state that has not moved for a while, from one that just did."""
        while True:
            time.sleep(_STILL_SECONDS)
            now = self.state()
            if now == state:
                return now
            state = now

    def due(self, changed: set[Path]) -> tuple[str, ...]:
        """Return the backends that changes concern, in the order of the folders."""
        names = (
            name
            for folder, backends in self.folders.items()
            if any(folder in path.parents for path in changed)
            for name in backends
        )
        return tuple(dict.fromkeys(names))


def watched(backends: tuple[str, ...]) -> Watched:
    """Return the folders of spec, which concerns all, and of each backend, wherever imports find them."""
    folders = {_folder("spec"): backends}
    folders |= {_folder(f"impl_{name}"): (name,) for name in backends}
    return Watched(folders)


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations)))


def watch(backends: tuple[str, ...], arguments: tuple[str, ...], out: TextIO | None = None) -> None:
    """Run at once and then on every save, until interrupted.

    Parameters
    ----------
    backends
        Of ``cute`` and ``triton``; a change of one runs that one, a change of spec all.
    arguments
        More arguments of ``check --fast``.
    out
        Where the lines of this process go, standard output if None; the runs write to their own.

    Raises
    ------
    KeyboardInterrupt
        The interrupt; no run goes on after it.
    """
    out = sys.stdout if out is None else out
    terminal = streams.rewrites(out)
    here = watched(backends)
    state = here.state()
    due, why = backends, "start"
    while True:
        if terminal:
            print(_CLEAR, end="", file=out)
        print(f"{_now()} {why}: checking {', '.join(due)}", file=out, flush=True)
        start = time.monotonic()
        ended, after = _run(due, arguments, here, state)
        if ended is not None:
            word = _WORDS.get(ended, "COULD NOT RUN")
            spent = time.monotonic() - start
            print(f"{_now()} {word} {', '.join(due)} ({spent:.1f} s)", file=out, flush=True)
            while after == state:
                time.sleep(_LOOK_SECONDS)
                after = here.state()
        after = here.still(after)
        changed = {path for path, _ in state.items() ^ after.items()}
        again = here.due(changed)
        # What a save interrupted is still to be answered.
        due = again if ended is not None else tuple(name for name in backends if name in (*due, *again))
        why = ", ".join(sorted(f"{path.parent.name}/{path.name}" for path in changed)) or "start"
        state = after


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _run(
    due: tuple[str, ...], arguments: tuple[str, ...], here: Watched, state: State
) -> tuple[int | None, State]:
    """Run once; return its exit code, None where a change ended it, and the files' state then."""
    command = (*COMMAND, "--backend", ",".join(due), *arguments)
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while True:
            try:
                return process.wait(_LOOK_SECONDS), here.state()
            except subprocess.TimeoutExpired:
                now = here.state()
            if now != state:
                return None, now
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
