"""Real terminals and real processes, for what only they can tell."""

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import spec

ROOT = Path(spec.__file__).parents[1]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without what asks for colours or against them."""
    quiet = {"NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES"}
    found = {name: value for name, value in os.environ.items() if name not in quiet}
    return found | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | dict(more or {})


class Terminal:
    """A program on a terminal of its own."""

    def __init__(
        self, command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None, columns: int = 80
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        mode = termios.tcgetattr(slave)
        mode[1] &= ~termios.OPOST  # or every newline comes out with a carriage return
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(more),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.seen = ""

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, done: Callable[[str], bool], seconds: float = 60.0) -> str:
        """Return all that was printed, as soon as ``done`` says it is enough."""
        end = time.monotonic() + seconds
        while not done(self.seen):
            left = end - time.monotonic()
            assert left > 0, self.seen
            if select.select([self._master], [], [], left)[0]:
                try:
                    more = os.read(self._master, 1 << 16)
                except OSError:  # the other side has closed
                    more = b""
                if not more:
                    assert done(self.seen) or self.process.wait(10) is not None
                    return self.seen
                self.seen += more.decode(errors="replace")
        return self.seen

    def end(self, seconds: float = 120.0) -> tuple[int, str]:
        """Wait until the program has ended; return its exit code and all that it printed."""
        self.until(lambda seen: False, seconds) if self.process.poll() is None else None
        self.until(lambda seen: not select.select([self._master], [], [], 0)[0], 1.0)
        return self.process.wait(10), self.seen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Start programs on terminals, in a folder of the test's own unless another is named."""
    started: list[Terminal] = []

    def start(*command: str, folder: Path = tmp_path, columns: int = 80, **more: str) -> Terminal:
        started.append(Terminal(command, folder, more, columns))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def oracle(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python -m` something in a pipe."""

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment(more),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
