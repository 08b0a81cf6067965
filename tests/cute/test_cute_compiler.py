"""Compiling as a citizen of its process: threads, files, environment, imports, options."""

import re
import subprocess
import sys
import threading

import pytest

from impl_cute import compiler
from oracle import inspection

CITIZEN = """
import os, sys
before = dict(os.environ)
from impl_cute.compiler import compile_kernel
compiled = compile_kernel(True, True, "sm_90a")
assert compiled.entry in compiled.ptx
assert dict(os.environ) == before, "the environment changed"
assert os.listdir() == [], os.listdir()
files = [name for _, _, names in os.walk(os.environ["TMPDIR"]) for name in names]
assert files == [], files
assert "torch" not in sys.modules and "tvm_ffi" not in sys.modules
"""


def test_compiling_imports_no_torch_and_leaves_no_file_and_no_variable(tmp_path, monkeypatch):
    for name in ("here", "scratch"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    done = subprocess.run(
        [sys.executable, "-c", CITIZEN], cwd=tmp_path / "here", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_eight_threads_compile_at_once():
    gate, made = threading.Barrier(8), {}

    def compile_one(number):
        gate.wait()
        made[number] = compiler.compile_kernel(number % 2 == 1, number % 4 > 1)

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(made[number] == made[number + 4] for number in range(4))
    assert len({made[number].ptx for number in range(4)}) == 4


def test_options_reach_the_compiler_and_line_information_changes_no_instruction():
    plain, traced = (compiler.compile_kernel(False, True, options=o) for o in ("", "--generate-line-info"))

    def instructions(ptx):
        return re.findall(r"^\t[^.\s/].*", ptx, re.MULTILINE)

    assert "\t.loc" not in plain.ptx
    assert "\t.loc" in traced.ptx
    assert instructions(plain.ptx) == instructions(traced.ptx)


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_early_dependents_launches_them_before_anything_and_changes_nothing_else(metadata):
    late, early = (compiler.compile_kernel(metadata, True, early_dependents=e) for e in (False, True))
    opcodes = [[i.opcode for i in inspection.ptx_listing(c.ptx, c.entry)] for c in (late, early)]
    launches = "griddepcontrol.launch_dependents"
    memory = ("ld.global", "st.", "ld.shared", "griddepcontrol.wait", "bar.", "red.")
    before = opcodes[1][: opcodes[1].index(launches)]
    assert not [opcode for opcode in before if opcode.startswith(memory)]
    opcodes[1].remove(launches)
    assert opcodes[1] == opcodes[0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("", False),
        ("--keep-ptx", False),
        ("--gpu-arch sm_100a", True),
        ("--keep-ptx --gpu-arch=sm_100a", True),
        ("--dump-dir '--gpu-arch of old'", False),
    ],
)
def test_options_that_name_an_architecture_are_recognised(options, named):
    assert compiler.names_arch(options) == named
