"""A virtual environment for one cell, made once and used again, and a process in it."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from oracle.evidence import ROOT
from oracle.inspection import disassembler
from oracle.matrix.cells import Cell

_PATIENCE: Final = 3600
"""Seconds after which a step of a cell is given up: a compiler may hang."""


class StepError(Exception):
    """A step of a cell went wrong, for the reason in the message, one line."""


class Processes:
    """Processes that threads wait for, and that can all be ended at once, with what they have started."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def run(self, line: Sequence[str], folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
        """Run a command to its end; return its exit code and what it said on both streams.

        Raises
        ------
        StepError
            It does not end, or `end` was called.
        """
        with self._lock:
            if self._ended:
                raise StepError("ended before it began")
            process = subprocess.Popen(
                line, cwd=folder, env=variables, text=True, errors="replace", stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
        try:
            said, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            raise StepError(f"not done after {_PATIENCE} s") from None
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode, said

    def end(self) -> None:
        """End all that run, and let none begin."""
        with self._lock:
            self._ended = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Environment:
    """The place of one cell; its folder may go at any time, and is made again."""

    cell: Cell
    folder: Path
    processes: Processes

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"

    def make(self) -> None:
        """Install what the cell needs, unless it is there.

        Raises
        ------
        StepError
            pip cannot; wheels alone are tried, so that nothing is built.
        """
        stamp = self.folder / "requirements.txt"
        wanted = "\n".join(self.cell.requirements) + "\n"
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and self.python.exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        venv.create(self.folder, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        line = [*pip, "--only-binary", ":all:", *self.cell.requirements]
        code, said = self.processes.run(line, self.folder, os.environ)
        if code:
            errors = [line for line in said.splitlines() if line.startswith("ERROR")]
            raise StepError(self.shortened((errors or [f"pip ends with code {code}"])[-1]))
        stamp.write_text(wanted, encoding="utf-8")

    def ask(self, module: str, arguments: Sequence[str]) -> tuple[int, str]:
        """Run a module of this checkout with the cell's interpreter; what it compiles, it compiles anew.

        Returns
        -------
        tuple
            Its exit code, negative for a signal, and all it said.

        Raises
        ------
        StepError
            It does not end.
        """
        tool = disassembler()
        with TemporaryDirectory(prefix="muse-matrix-") as scratch:
            variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            variables |= {
                "PYTHONPATH": str(ROOT),
                "MUSESPARK_ROUTING_CACHE": f"{scratch}/kernels",
                "TRITON_CACHE_DIR": f"{scratch}/triton",
            }
            if tool is not None:
                variables["PATH"] = f"{Path(tool).parent}{os.pathsep}{variables.get('PATH', os.defpath)}"
            line = [str(self.python), "-P", "-m", module, *arguments]
            return self.processes.run(line, self.folder, variables)

    def shortened(self, text: str) -> str:
        """Return ``text`` without the paths of this machine."""
        for path in (self.folder, ROOT):
            text = text.replace(f"{path}/", "")
        return text
