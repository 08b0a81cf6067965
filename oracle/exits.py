"""How every command and tool ends: its exit code, one line on what stopped it, and never a traceback."""

import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn, TextIO

from oracle.errors import CannotRunError
from oracle.files import UnwritableError

PASS: Final = 0
MISMATCH: Final = 1
BAD_ARGUMENTS: Final = 2
COULD_NOT_RUN: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143

MEANING: Final = {
    PASS: "every bit is as specified, or what was asked for is done",
    MISMATCH: "a mismatch: a wrong bit, a mutant that survived, a refused figure, a count off its budget",
    BAD_ARGUMENTS: "bad arguments, or a file that cannot be read",
    COULD_NOT_RUN: "it could not run, or not write: no compiler, no card, no room, nobody who reads",
    INTERRUPTED: "interrupted by Ctrl-C",
    TERMINATED: "terminated by SIGTERM",
}
"""What each code says, of every command and tool."""

_ENDING: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
_TIDYING_SECONDS: Final = 3.0
"""A second Ctrl-C within this time does not cut short what the first one tidies up."""

_IMPORT_SECONDS: Final = 1.0
"""What a signal waits for an import, looking again after `_AGAIN_SECONDS`."""

_AGAIN_SECONDS: Final = 0.05

_NOWHERE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of an output stream that can take no more."""


class SignalledError(BaseException):
    """A signal asks this process to end; no ``except Exception`` stops it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _InterruptedError(KeyboardInterrupt):
    """Ctrl-C. Of a `KeyboardInterrupt` itself that passes an ``exec`` Python remembers to die once more."""


def ended(name: str, run: Callable[[], int]) -> int:
    """Run a command and return its exit code, whatever ends it.

    Parameters
    ----------
    name
        Of the command, for the line on standard error that says why it could not go on.
    run
        The command; returns its exit code. What it has opened is closed by the exception that a signal raises
        in it.
    """
    try:
        with _signals_raise():
            try:
                return _without_traceback(name, run)
            finally:
                sys.stdout.flush()  # here, not at exit: nobody may be reading
    except KeyboardInterrupt:
        return _signalled(signal.SIGINT)
    except SignalledError as error:
        return _signalled(error.number)
    except BrokenPipeError:
        return _nobody_reads()
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        _say(f"{name}: cannot write: {error.strerror}")
        return _nobody_reads()


def _without_traceback(name: str, run: Callable[[], int]) -> int:
    try:
        return run()
    except CannotRunError as error:
        _say(f"could not run: {error}")
    except UnwritableError as error:
        _say(f"{name}: {error}")
    return COULD_NOT_RUN


def _signalled(number: int) -> int:
    _say(_ENDING[signal.Signals(number)])
    return 128 + number


def _nobody_reads() -> int:
    """Point what nobody reads at nothing, so that what Python flushes at exit does not raise again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if not _flushes(stream):
            os.dup2(nothing, stream.fileno())
    os.close(nothing)
    return COULD_NOT_RUN


def _flushes(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        return False
    return True


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _nobody_reads()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let the signals that end a process raise in the main thread, unless they are ignored here."""
    reaction = _Reaction()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, reaction)
    try:
        yield
        reaction.settle()
    finally:
        if reaction.came:  # the process is about to end, and a second signal must not end it sooner
            signal.setitimer(signal.ITIMER_REAL, 0)
        else:
            for number, handler in before.items():
                signal.signal(number, handler)


_undisturbed = 0
"""Blocks of `undisturbed` that the main thread is in."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal raise in a short block, but after it."""
    global _undisturbed
    _undisturbed += 1
    try:
        yield
    finally:
        _undisturbed -= 1


class _Reaction:
    """A signal handler that raises once, and neither where it must not nor in the middle of an import.

    In an import an exception can end in C++ that aborts the process, or be taken for a package that is
    missing. A long import, of torch or a compiler, is left with the process itself: nothing is being written
    then.
    """

    def __init__(self) -> None:
        self.came = 0.0
        self._number = 0
        self._raised = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.came:
            self.came, self._number = now, number
        elif number != signal.SIGALRM and now - self.came > _TIDYING_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if self._raised:
            return
        imports = _imports(frame)
        if imports and now - self.came > _IMPORT_SECONDS:
            _leave(self._number)
        if imports or _undisturbed:
            signal.signal(signal.SIGALRM, self)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
            return
        self.settle()

    def settle(self) -> None:
        """Raise what came and still waits."""
        if self.came and not self._raised:
            self._raised = True
            raise _InterruptedError if self._number == signal.SIGINT else SignalledError(self._number)


def _leave(number: int) -> NoReturn:
    for process in multiprocessing.active_children():
        process.kill()
    code = _signalled(number)
    _flushes(sys.stdout)
    os._exit(code)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
