"""Programs that a run starts end with it, with all that they started themselves."""

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from oracle.children import Children, awaited


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0] != "Z"


def test_a_program_gives_its_output_and_time_passes_meanwhile():
    ticks = []
    with Children() as children:
        done = children.run(
            ["sh", "-c", "sleep 0.6; echo said; echo told >&2; exit 3"], waiting=lambda: ticks.append(1)
        )
    assert (done.stdout, done.stderr, done.returncode) == ("said\n", "told\n", 3)
    assert ticks


def test_a_program_that_takes_too_long_is_ended():
    with Children() as children, pytest.raises(subprocess.TimeoutExpired):
        children.run(["sleep", "60"], limit=0.3)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_ends_the_run_ends_its_programs_and_theirs_and_those_that_wait(error, tmp_path):
    mark = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {mark}.part; mv {mark}.part {mark}; wait"
    start = time.monotonic()
    futures = []

    def run():
        with ThreadPoolExecutor(1) as pool, Children() as children:
            futures.extend(pool.submit(children.run, ["sh", "-c", script]) for _ in range(3))
            while not mark.exists():
                time.sleep(0.02)
            raise error

    with pytest.raises(error):
        run()
    assert time.monotonic() - start < 20
    assert futures[0].result().returncode == -signal.SIGKILL
    assert all(isinstance(future.exception(), InterruptedError) for future in futures[1:])
    for _ in range(100):
        if not alive(int(mark.read_text())):
            break
        time.sleep(0.05)
    assert not alive(int(mark.read_text()))


def test_waiting_for_a_thread_lets_time_pass():
    ticks, go = [], threading.Event()

    def tick():
        ticks.append(1)
        go.set()

    with ThreadPoolExecutor(1) as pool:
        assert awaited(pool.submit(lambda: go.wait(30) and "made"), tick) == "made"
    assert ticks
