"""The environment of a cell: made once, apart from this one, and every way in which it can fail."""

import json
import os
import threading
import time

import pytest

from oracle.errors import CannotRunError
from oracle.evidence import ROOT
from oracle.matrix import environment, run
from oracle.matrix.cells import Cell
from oracle.matrix.environment import Environment, Processes, StepError

TOLD = """
import json, os, sys, importlib.metadata
found = {name: os.environ.get(name) for name in ("MUSESPARK_ROUTING_CACHE", "TRITON_CACHE_DIR", "PYTHONPATH")}
found |= {"version": importlib.metadata.version("triton"), "prefix": sys.prefix, "path": os.environ["PATH"]}
print(json.dumps(found))
"""


@pytest.fixture
def packages(release):
    for version in ("3.8.0", "3.9.0"):
        release("triton", version, TOLD)
    release("numpy", "2.0.0", "raise ImportError('it is empty')")
    release("safetensors", "0.5.0")


def make(folder, version="3.9.0"):
    made = Environment(Cell("triton", version), folder / "cell", Processes())
    made.make()
    return made


def test_what_runs_there_has_its_own_packages_this_checkout_and_fresh_caches(packages, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setattr(environment, "disassembler", lambda: "/tools/nvdisasm")
    made = make(tmp_path)
    code, said = made.ask("triton", [])
    found = json.loads(said)
    assert (code, found["version"], found["prefix"]) == (0, "3.9.0", str(made.folder))
    assert found["PYTHONPATH"] == str(ROOT)
    assert found["path"].startswith("/tools" + os.pathsep)
    caches = (found["MUSESPARK_ROUTING_CACHE"], found["TRITON_CACHE_DIR"])
    assert len(set(caches)) == 2
    assert not any(map(os.path.exists, caches))


def test_an_environment_is_used_again_unless_something_else_is_wanted(packages, tmp_path):
    (make(tmp_path).folder / "mine").touch()
    assert (make(tmp_path).folder / "mine").exists()
    other = make(tmp_path, "3.8.0")
    assert not (other.folder / "mine").exists()
    assert json.loads(other.ask("triton", [])[1])["version"] == "3.8.0"


def test_one_whose_installation_was_cut_short_is_made_anew(packages, tmp_path):
    (make(tmp_path).folder / "requirements.txt").unlink()
    (tmp_path / "cell" / "mine").touch()
    assert not (make(tmp_path).folder / "mine").exists()


def test_a_version_that_cannot_be_had_is_told_in_pips_words(packages, tmp_path):
    found = run.ask_cell(Cell("triton", "3.7.0"), tmp_path / "cell", Processes())
    assert found == {"step": "install", "why": "ERROR: No matching distribution found for triton==3.7.0"}


def test_a_process_that_leaves_no_answer_is_told_with_its_last_words(packages, tmp_path):
    found = run.ask_cell(Cell("triton", "3.9.0"), tmp_path / "cell", Processes())
    assert found == {"step": "run", "why": "ended with code 1; last words: ImportError: it is empty"}


def test_a_process_that_dies_of_a_signal_is_told(packages, tmp_path, monkeypatch):
    monkeypatch.setattr(Environment, "ask", lambda self, *arguments: (-11, "a\n\n"))
    found = run.ask_cell(Cell("triton", "3.9.0"), tmp_path / "cell", Processes())
    assert found == {"step": "run", "why": "ended with signal 11; last words: a"}


def test_two_runs_take_turns_at_an_environment(tmp_path, monkeypatch):
    inside = []

    def ask(self, *arguments):
        inside.append("in")
        time.sleep(0.2)
        inside.append("out")
        return 1, ""

    monkeypatch.setattr(Environment, "make", lambda self: None)
    monkeypatch.setattr(Environment, "ask", ask)
    cell = Cell("triton", "3.9.0")
    threads = [
        threading.Thread(target=run.ask_cell, args=(cell, tmp_path / "cell", Processes())) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == ["in", "out"] * 3


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CannotRunError, match="cannot write"):
        run.ask_cell(Cell("triton", "3.9.0"), tmp_path / "file" / "cell", Processes())


def test_what_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_PATIENCE", 0.2)
    with pytest.raises(StepError, match=r"not done after 0.2 s"):
        Processes().run(["sleep", "60"], tmp_path, os.environ)


def test_the_end_of_a_run_ends_its_processes_with_their_children_and_lets_none_begin(tmp_path):
    processes, found = Processes(), []
    line = ["sh", "-c", "sleep 60 & echo $! > child; wait"]
    thread = threading.Thread(target=lambda: found.append(processes.run(line, tmp_path, os.environ)))
    thread.start()
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        time.sleep(0.01)
    processes.end()
    thread.join(20)
    assert found == [(-9, "")]
    with pytest.raises(StepError):
        processes.run(["true"], tmp_path, os.environ)


def test_no_path_of_this_machine_is_told(tmp_path):
    made = Environment(Cell("triton", "3.9.0"), tmp_path, Processes())
    assert made.shortened(f"{tmp_path}/lib/a.py and {ROOT}/oracle/b.py") == "lib/a.py and oracle/b.py"
