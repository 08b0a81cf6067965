"""Other programs that a run starts: watched while they run, and ended with it, whatever ends it."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from types import TracebackType
from typing import Final, TypeVar

_LOOK_SECONDS: Final = 0.25

Value = TypeVar("Value")


class Children:
    """Programs in process groups of their own; a context manager that leaves none behind. For threads too.

    A Ctrl-C reaches this process alone, which then ends them all and starts no more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._over = False

    def __enter__(self) -> "Children":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._over = True
            for process in self._running:
                _kill(process)

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        limit: float | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end and return what it printed.

        Parameters
        ----------
        command
            The program and its arguments.
        environment
            This process's unless given.
        limit
            Seconds after which it is ended.
        waiting
            Called now and then meanwhile.

        Raises
        ------
        subprocess.TimeoutExpired
            It took longer than ``limit``.
        OSError
            It cannot be started, or no more are.
        """
        with self._lock:
            if self._over:
                raise InterruptedError(f"{command[0]} is not started any more")
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                start_new_session=True,
            )
            self._running.add(process)
        start = time.monotonic()
        try:
            while True:
                try:
                    out, error = process.communicate(timeout=_LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    waiting()
                    if limit is not None and time.monotonic() - start > limit:
                        raise subprocess.TimeoutExpired(command, limit) from None
                else:
                    return subprocess.CompletedProcess(command, process.returncode, out, error)
        except BaseException:
            _kill(process)
            process.wait()
            raise
        finally:
            with self._lock:
                self._running.discard(process)


def awaited(future: "Future[Value]", waiting: Callable[[], None]) -> Value:
    """Return what a thread returns; call ``waiting`` now and then meanwhile."""
    while not wait([future], _LOOK_SECONDS).done:
        waiting()
    return future.result()


def _kill(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):  # a thread may have seen its end just now
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
