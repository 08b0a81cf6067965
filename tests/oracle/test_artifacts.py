"""The cache of compiled kernels: one compile a variant, nothing stale, nothing damaged."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import spec
from oracle import artifacts
from oracle.errors import CannotRunError

REPOSITORY = Path(spec.__file__).parents[1]

COMPILER = """
import os, time
from dataclasses import dataclass
from pathlib import Path

@dataclass(frozen=True)
class Compiled:
    ptx: str
    cubin: bytes
    entry: str
    threads: int
    dynamic_shared: int
    row_ctas: bool
    cluster: bool

def compile_kernel(metadata, renormalize, arch="sm_90a", options="", early_dependents=False):
    time.sleep(0.3)
    with open(os.environ["COUNTER"], "a") as counter:
        counter.write(f"{metadata} {renormalize} {arch}\\n")
    if arch == "sm_1":
        raise RuntimeError("no such\\narchitecture")
    ptx, cubin = f"// {metadata} {renormalize} {arch}", b"\\x7fELF" + bytes(range(256))
    return Compiled(ptx, cubin, "kernel", 96, 512, True, metadata)
"""

ASK = """
from oracle.artifacts import artifact
for metadata in (True, False):
    made = artifact("triton", metadata, True)
    assert made.ptx == f"// {metadata} True sm_90a", made.ptx
    assert made.cubin == b"\\x7fELF" + bytes(range(256)) and (made.entry, made.threads) == ("kernel", 96)
    assert (made.dynamic_shared, made.row_ctas, made.cluster) == (512, True, metadata)
    assert [made.grid(tokens) for tokens in (1, 8)] == [1, 8]
    assert [made.cluster_ctas(tokens) for tokens in (1, 8)] == ([1, 8] if metadata else [None, None])
"""


@pytest.fixture
def house(tmp_path):
    """A folder with a counting `impl_triton`, and the environment in which it is the one that is found."""
    package = tmp_path / "house" / "impl_triton"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "compiler.py").write_text(COMPILER)
    path = os.pathsep.join([str(tmp_path / "house"), str(REPOSITORY)])
    cache = tmp_path / "cache"
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "COUNTER": str(tmp_path / "count"),
        "MUSESPARK_ROUTING_CACHE": str(cache),
    }
    (tmp_path / "count").touch()
    return tmp_path, environment


def ask(house, text=ASK, **more):
    folder, environment = house
    return subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=folder,
        env={**environment, **more},
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled(house) -> list[str]:
    return (house[0] / "count").read_text().splitlines()


def entries(house) -> list[Path]:
    return sorted((house[0] / "cache").glob("*.zip"))


def finish(process) -> str:
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    return error


def test_eight_processes_that_start_at_once_on_an_empty_cache_compile_each_variant_once(house):
    for process in [ask(house) for _ in range(8)]:
        finish(process)
    assert sorted(compiled(house)) == ["False True sm_90a", "True True sm_90a"]
    assert len(entries(house)) == 2
    assert not [path for path in (house[0] / "cache").iterdir() if path.suffix not in (".zip", ".lock")]


def test_another_text_of_the_kernel_is_another_entry_and_the_old_text_finds_its_own_again(house):
    finish(ask(house))
    source = house[0] / "house" / "impl_triton" / "compiler.py"
    source.write_text(COMPILER + "# changed\n")
    finish(ask(house))
    source.write_text(COMPILER)
    finish(ask(house))
    assert len(compiled(house)) == 4
    assert len(entries(house)) == 4


@pytest.mark.parametrize("damage", ["cut off", "empty", "a flipped byte", "not a zip", "a part missing"])
def test_a_damaged_entry_is_compiled_again(house, damage):
    finish(ask(house))
    path = entries(house)[0]
    content = path.read_bytes()
    if damage == "a part missing":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("kernel.ptx", "// half")
    else:
        middle = content.index(b"PK\x01\x02") // 2
        flipped = content[:middle] + bytes([content[middle] ^ 8]) + content[middle + 1 :]
        spoiled = {"cut off": content[:-30], "empty": b"", "a flipped byte": flipped, "not a zip": b"x" * 500}
        path.write_bytes(spoiled[damage])
    finish(ask(house))
    assert len(compiled(house)) == 3


def test_a_failing_compiler_is_one_line_and_leaves_no_entry(house):
    text = "from oracle.artifacts import artifact\nartifact('triton', True, True, 'sm_1')"
    _, error = ask(house, text).communicate(timeout=60)
    assert "CannotRunError: compiling triton for sm_1 failed: RuntimeError: no such architecture" in error
    assert entries(house) == []


def test_a_cache_that_cannot_be_written_says_how_to_choose_another(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MUSESPARK_ROUTING_CACHE", str(tmp_path / "file" / "below"))
    artifacts.artifact.cache_clear()
    with pytest.raises(CannotRunError, match="cannot write the cache, set MUSESPARK_ROUTING_CACHE"):
        artifacts.artifact("triton", True, True)


def test_the_cache_lies_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("MUSESPARK_ROUTING_CACHE", str(tmp_path / "own"))
    assert artifacts.entry_path("cute", True, False).parent == tmp_path / "own"
    monkeypatch.delenv("MUSESPARK_ROUTING_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert artifacts.entry_path("cute", True, False).parent == tmp_path / "xdg" / "musespark-routing"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert (
        artifacts.entry_path("cute", True, False).parent == tmp_path / "home" / ".cache" / "musespark-routing"
    )


def test_variants_and_architectures_have_entries_of_their_own():
    paths = {
        artifacts.entry_path(backend, metadata, renormalize, arch, early_dependents=early).name
        for backend in artifacts.compiled_backends()
        for metadata in (True, False)
        for renormalize in (True, False)
        for arch in ("sm_90a", "sm_100a")
        for early in (True, False)
    }
    assert len(paths) == 32


def test_a_compile_error_says_its_innermost_cause_and_its_end():
    outer = RuntimeError("at 17:14: a long listing")
    outer.__cause__ = NameError("x" * 5000 + " \x1b[91minverze is not defined\x1b[0m")
    told = artifacts._innermost(outer)
    assert told.startswith("NameError: ")
    assert told.endswith(" inverze is not defined")
