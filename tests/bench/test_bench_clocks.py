"""The clocks themselves, on pretended streams, events, processes and calls."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from oracle.bench import floors, host_time, prepare, timing, verification
from oracle.bench.points import Point
from oracle.children import Children
from oracle.errors import CannotRunError
from oracle.report import Reporter


class Machine:
    """Records what is enqueued, in order; an event's time is the place of its record, in milliseconds."""

    def __init__(self, monkeypatch):
        self.log = []
        machine = self

        class Stream:
            cuda_stream = 5

            def synchronize(self):
                machine.log.append("wait")

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing
                self.at = None

            def record(self, stream):
                self.at = len(machine.log)
                machine.log.append("event")

            def elapsed_time(self, end):
                return float(end.at - self.at)

        class Graph:
            def __init__(self):
                self.capturing = False

            def capture_begin(self, capture_error_mode):
                machine.log.append(f"begin {capture_error_mode}")

            def capture_end(self):
                machine.log.append("end")

            def replay(self):
                machine.log.append("replay")

        @contextmanager
        def stream(which):
            yield

        for name, value in {"Stream": Stream, "Event": Event, "CUDAGraph": Graph, "stream": stream}.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(floors, "enqueue", self.enqueue)

    def enqueue(self, name, addresses, threads, stream):
        assert (name, threads, stream) == ("hold", 1, 5)
        self.log.append("hold")


def test_a_capture_follows_one_launch_outside_and_holds_all_launches(monkeypatch):
    machine = Machine(monkeypatch)
    timing.Clock().capture(lambda count: machine.log.append(count))
    assert machine.log == [1, "wait", "begin thread_local", timing.LAUNCHES, "end"]


def test_a_capture_that_fails_is_ended(monkeypatch):
    machine = Machine(monkeypatch)

    def enqueue(count):
        if count > 1:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        timing.Clock().capture(enqueue)
    assert machine.log[-1] == "end"


def test_every_replay_is_enqueued_behind_the_hold_and_timed_alone(monkeypatch):
    machine = Machine(monkeypatch)
    clock = timing.Clock()
    graph = clock.capture(lambda count: None)
    machine.log.clear()
    samples = clock.sample(graph)
    held = machine.log.index("hold")
    one = ["event", "replay", "event"]
    assert machine.log[:held] == one * 3 + ["wait"]
    assert machine.log[held + 1 :] == [*one * timing.REPLAYS, "wait"]
    two_milliseconds = 2000 / timing.LAUNCHES
    assert samples == [two_milliseconds] * timing.REPLAYS


def test_host_blocks_drain_the_card_between_blocks_and_divide_by_the_calls():
    order = []

    def call():
        order.append("call")

    taken = host_time.blocks(call, lambda: order.append("drain"), size=3)
    assert len(taken) == host_time.BLOCKS
    block = ["drain", "call", "call", "call"]
    assert order == block * (host_time.BLOCKS + 1) + ["drain"]


def test_host_time_is_that_of_one_call():
    taken = host_time.blocks(lambda: time.sleep(1e-4), lambda: None, size=2)
    assert min(taken) >= 100


def test_the_host_of_ours_is_measured_whole_and_in_two_parts(pretended, monkeypatch):
    given = []

    class Host:
        @staticmethod
        def prepare(renormalize):
            pass

        @staticmethod
        def route(*arguments):
            given.append(("route", len(arguments)))

        @staticmethod
        def compiled_routing(metadata, renormalize):
            assert (metadata, renormalize) == (True, True)
            return lambda *arguments: given.append(("launch", arguments[5:]))

    monkeypatch.setitem(sys.modules, "impl_cute.host", Host)
    found = host_time.parts(Point("cute", 8, 8))
    assert [part for _, _, part in found] == ["route", "checks", "launch"]
    found["cute", 8, "route"]()
    found["cute", 8, "launch"]()
    assert given == [("route", 10), ("launch", (1.0, 0, 256, 8))]
    with pytest.raises(ValueError, match="must be on"):
        found[
            "cute", 8, "checks"
        ]()  # the pretended card's tensors lie on the CPU, which the contract refuses


def test_cold_and_warm_runs_share_a_folder_that_was_empty():
    seen = {}

    def run(task, backend, folder):
        mark = folder / "mark"
        seen.setdefault((backend, folder.name), []).append(mark.exists())
        mark.touch()
        return [1.0] if seen[backend, folder.name][-1] else [1.5, 0.5]

    found = prepare.measure("prepare", Reporter(), ("cute", "triton"), run, cores=16)
    assert set(found) == {(backend, state) for backend in ("cute", "triton") for state in ("cold", "warm")}
    assert all(states == [False, True] for states in seen.values())
    assert len(seen) == 12
    assert found["cute", "cold"].value == 2.0
    assert found["cute", "warm"].value == 1.0


def test_a_backend_whose_seconds_do_not_agree_runs_again_from_empty_folders_alone():
    runs = []

    def run(task, backend, folder):
        runs.append(backend)
        return [float(len(runs))] if backend == "cute" and len(runs) < 8 else [1.0]

    found = prepare.measure("compile", Reporter(), ("cute", "triton"), run, cores=2)
    assert runs.count("triton") == 4
    assert runs.count("cute") == 8
    assert found["cute", "cold"].tries == 2
    assert found["triton", "cold"].tries == 1


def test_caches_of_the_new_process_lie_in_the_folder(tmp_path):
    found = prepare.environment(tmp_path)
    for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "MUSESPARK_ROUTING_CACHE"):
        assert Path(found[name]).parent == tmp_path
        assert Path(found[name]).is_dir()
    assert found["PATH"] == os.environ["PATH"]
    code = "import sys, numpy, oracle; print(len(sys.path))"
    subprocess.run([sys.executable, "-c", code], env=found, check=True, cwd=tmp_path, capture_output=True)


def test_a_process_that_fails_gives_its_last_words(tmp_path):
    with pytest.raises(CannotRunError, match="compile of nothing exited 1: ModuleNotFoundError"):
        prepare.in_new_process("compile", "nothing", tmp_path, Children())


def test_rates_are_amounts_per_second_of_the_processor():
    def spin():
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass

    rates = verification.rates(100, spin)
    assert all(2_000 < rate <= 10_000 for rate in rates)
    idle = verification.rates(100, lambda: time.sleep(0.02))
    assert min(idle) > 10_000, "sleeping costs no processor time"
