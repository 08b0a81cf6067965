"""`check --watch`: a saved fault is seen, its repair too, and an interrupt ends it without a word."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import spec
from oracle import watch

REPOSITORY = Path(spec.__file__).parents[1]
FAULT = ("gl.minimum((cta + 1) * tile, limit)", "(cta + 1) * tile")


class Watching:
    """A process that watches, and the lines that it prints."""

    def __init__(self, command: list[str], folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)])}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # Tests that run in the background of a shell inherit a SIGINT that is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def until(self, text: str) -> list[str]:
        """Return the lines up to one that holds ``text``."""
        lines = []
        while not lines or text not in lines[-1]:
            try:
                lines.append(self.lines.get(timeout=240))
            except queue.Empty:
                raise AssertionError(f"no {text!r} in {self.seen + lines}") from None
        self.seen += lines
        return lines

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()


@pytest.fixture
def watching():
    started = []

    def start(command: list[str], folder: Path) -> Watching:
        started.append(Watching(command, folder))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def test_a_fault_is_seen_then_its_repair_and_an_interrupt_ends_it_quietly(tmp_path, watching):
    shutil.copytree(REPOSITORY / "impl_triton", tmp_path / "impl_triton")
    kernel = tmp_path / "impl_triton" / "kernel.py"
    right = kernel.read_text(encoding="utf-8")
    kernel.write_text(right.replace(*FAULT), encoding="utf-8")
    one = watching([sys.executable, "-m", "oracle", "check", "--watch", "--backend", "triton"], tmp_path)
    first = one.until(" FAIL triton (")
    assert first[0].endswith(" start: checking triton")
    assert "MISMATCH triton on sim: M3" in first
    kernel.write_text(right, encoding="utf-8")
    second = one.until(" PASS triton (")
    assert second[0].endswith(" impl_triton/kernel.py: checking triton")
    assert any(line.startswith("PASS: triton on sim: all ") for line in second)
    assert "\x1b" not in "".join(one.seen)
    code, told = one.interrupt()
    assert code == 130
    assert "interrupted" not in told
    assert "Traceback" not in told


SCRIPT = """
import sys
from oracle import watch
watch.COMMAND = (sys.executable, "-c", {child!r})
try:
    watch.watch(("cute", "triton"), ())
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_save_during_a_run_ends_it_and_what_it_was_to_answer_stays_due(tmp_path, watching):
    for package in ("impl_cute", "impl_triton"):
        shutil.copytree(REPOSITORY / package, tmp_path / package)
    # The first run lasts until it is ended; later ones end at once.
    child = (
        "import time, pathlib as p; m = p.Path('ran'); old = m.exists(); m.touch(); old or time.sleep(200)"
    )
    one = watching([sys.executable, "-c", SCRIPT.format(child=child)], tmp_path)
    assert one.until("checking")[0].endswith(" start: checking cute, triton")
    ran = tmp_path / "ran"
    for _ in range(600):
        if ran.exists():
            break
        time.sleep(0.1)
    (tmp_path / "impl_triton" / "host.py").touch()
    assert one.until("checking")[-1].endswith(" impl_triton/host.py: checking cute, triton")
    one.until(" PASS cute, triton (")
    (tmp_path / "impl_cute" / "kernel.py").touch()
    assert one.until(" PASS ")[-1].split(" PASS ")[1].startswith("cute (")
    assert one.interrupt()[0] == 130


def test_a_change_of_spec_concerns_every_backend_and_other_files_none(tmp_path):
    here = watch.watched(("cute", "triton"))
    assert here.due({REPOSITORY / "spec" / "selection.py"}) == ("cute", "triton")
    assert here.due({REPOSITORY / "impl_triton" / "kernel.py"}) == ("triton",)
    assert here.due({REPOSITORY / "oracle" / "cli.py"}) == ()
    names = {path.name for path in here.state()}
    assert {"kernel.py", "selection.py", "mufu_sm90.csv"} <= names
    assert not any(path.suffix == ".pyc" for path in here.state())
