"""Compiled variants on disk: compiled once for all processes, and in the way of none."""

import importlib.metadata
import logging
import os
import platform
import subprocess
import sys
import threading

import pytest

from impl_cute import stored

VARIANT = (True, False, "sm_90a", False)


class Compiler:
    """Makes code that names its variant, and counts."""

    def __init__(self):
        self.compiled, self.refuses = [], set()

    def compile(self, metadata, renormalize, options, early_dependents):
        self.compiled.append((metadata, renormalize, options, early_dependents))
        return repr(self.compiled[-1]).encode() * 100

    def load(self, code):
        if code in self.refuses:
            raise RuntimeError("made for another machine")
        return code


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    compiler = Compiler()
    monkeypatch.setenv("MUSESPARK_ROUTING_CACHE", str(tmp_path / "deep" / "cache"))
    monkeypatch.setattr(stored, "compile_object", compiler.compile)
    monkeypatch.setattr(stored, "load_object", compiler.load)
    monkeypatch.setattr(stored, "_unwritable", set())
    return compiler


def test_a_variant_is_compiled_once_and_then_loaded(compiler):
    first = stored.stored_function(*VARIANT)
    assert stored.stored_function(*VARIANT) == first
    assert compiler.compiled == [(True, False, "--gpu-arch sm_90a", False)]
    path = stored.entry_path(*VARIANT)
    assert sorted(path.parent.iterdir()) == [path]


def test_every_variant_and_architecture_is_an_entry_of_its_own(compiler):
    variants = [
        (m, r, arch, e) for m in (False, True) for r in (False, True) for arch in ("sm_90a", "sm_100a")
        for e in (False, True)
    ]  # fmt: skip
    made = [stored.stored_function(*variant) for variant in variants]
    assert len(set(made)) == len(compiler.compiled) == 16
    assert [stored.stored_function(*variant) for variant in variants] == made
    assert len(compiler.compiled) == 16


DAMAGES = {
    "cut-short": lambda entry: entry[:-1],
    "cut-to-its-digest": lambda entry: entry[:32],
    "empty": lambda entry: b"",
    "a-bit-of-the-code": lambda entry: entry[:-1] + bytes([entry[-1] ^ 1]),
    "a-bit-of-the-digest": lambda entry: bytes([entry[0] ^ 1]) + entry[1:],
    "longer": lambda entry: entry + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_compiled_again_and_replaced(compiler, damage):
    right = stored.stored_function(*VARIANT)
    path = stored.entry_path(*VARIANT)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert stored.stored_function(*VARIANT) == right
    assert len(compiler.compiled) == 2
    assert path.read_bytes() == whole


def test_code_that_cannot_be_loaded_is_compiled_again(compiler, monkeypatch):
    compiler.refuses.add(stored.stored_function(*VARIANT))
    monkeypatch.setattr(stored, "compile_object", lambda *variant: compiler.compile(*variant) + b"better")
    assert stored.stored_function(*VARIANT).endswith(b"better")
    assert stored.stored_function(*VARIANT).endswith(b"better")
    assert len(compiler.compiled) == 2


@pytest.mark.parametrize("what", ["a-file-in-the-way", "a-full-disk"])
def test_a_folder_that_cannot_be_written_costs_a_compilation_and_one_line(
    compiler, tmp_path, monkeypatch, caplog, what
):
    if what == "a-file-in-the-way":
        (tmp_path / "deep").write_text("")
    else:

        def full(path, content):
            path.touch()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pathlib.Path.write_bytes", full)
    for _ in range(2):
        assert stored.stored_function(*VARIANT).startswith(b"(True, False")
        stored.stored_function(False, *VARIANT[1:])
    assert len(compiler.compiled) == 4
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "not kept" in line.message
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "deep"] == []


def test_threads_and_processes_that_store_at_once_leave_one_whole_entry(compiler):
    gate, found = threading.Barrier(8), []

    def ask():
        gate.wait()
        for _ in range(20):
            found.append(stored.stored_function(*VARIANT))
            stored.entry_path(*VARIANT).unlink(missing_ok=True)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 160
    assert len(set(found)) == 1
    assert all(path.suffix == ".o" for path in stored.entry_path(*VARIANT).parent.iterdir())


def test_the_name_of_an_entry_holds_all_that_the_code_depends_on(compiler, monkeypatch, tmp_path):
    names = {stored.entry_path(*VARIANT)}

    def one_more():
        before = len(names)
        names.add(stored.entry_path(*VARIANT))
        assert len(names) == before + 1

    monkeypatch.setenv("CUTE_DSL_ANYTHING", "1")
    one_more()
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    one_more()
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "99" if name == "nvidia-cutlass-dsl" else version(name)
    )
    one_more()
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "99" if name == "apache-tvm-ffi" else version(name)
    )
    one_more()
    monkeypatch.setattr(stored, "_processor", lambda: "another")
    one_more()
    for name in ("kernel.py", "more.py"):
        source = tmp_path / name
        source.write_text("THREADS = 256\n")
    monkeypatch.setattr(stored, "__file__", str(tmp_path / "stored.py"))
    one_more()
    (tmp_path / "kernel.py").write_text("THREADS = 128\n")
    one_more()
    monkeypatch.setattr(stored.spec.constants, "__file__", str(tmp_path / "more.py"))
    one_more()
    monkeypatch.setattr(stored.spec.layout, "__file__", str(tmp_path / "kernel.py"))
    one_more()


def test_the_processor_is_told_by_what_it_can_do():
    said = stored._processor()
    assert said.startswith(platform.machine())
    if platform.machine() == "x86_64":
        assert " sse2 " in said


IN_A_PROCESS = """
import os, sys
import impl_cute.compiler as compiler
from impl_cute import stored
if os.environ.get("COMPILES_NOTHING"):
    def refuse(*arguments, **named):
        raise SystemExit("compiled")
    compiler.cute.compile = refuse
try:
    stored.stored_function(True, True, "sm_90a", False)()
except TypeError as error:
    print(error)
"""


def test_another_process_loads_what_one_has_compiled(tmp_path):
    environment = os.environ | {
        "MUSESPARK_ROUTING_CACHE": str(tmp_path), "PYTHONPATH": ":".join(filter(None, sys.path)),
    }  # fmt: skip
    said = []
    for more in ({}, {"COMPILES_NOTHING": "1"}):
        command = [sys.executable, "-c", IN_A_PROCESS]
        done = subprocess.run(command, env=environment | more, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]
    assert "Expects 12 parameters" in said[0]
