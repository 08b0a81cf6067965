from pathlib import Path

import pytest

from oracle import backends
from oracle.errors import CannotRunError
from oracle.peers import build, find, manifest
from oracle.peers.__main__ import main

NAMES = ("flashinfer", "vllm")


@pytest.fixture(autouse=True)
def _nothing_found_before():
    find.find.cache_clear()
    yield
    find.find.cache_clear()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with neither package and no prepared folder."""
    monkeypatch.delenv(find.VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", NAMES)
def test_a_machine_without_the_kernel_names_the_package_and_the_variable(name: str):
    reason = find.missing(name)
    assert reason is not None
    assert name in reason
    assert find.VARIABLE in reason
    with pytest.raises(CannotRunError, match="is not installed"):
        find.find(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_named_folder_that_is_not_there_is_an_error_and_no_fallback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
):
    monkeypatch.setenv(find.VARIABLE, str(tmp_path / "nowhere"))
    assert "nowhere" in str(find.missing(name))


@pytest.mark.parametrize("name", ["vllm", "flashinfer", "flashinfer-logits"])
@pytest.mark.parametrize("device", ["sim", "cuda"])
def test_the_backend_of_a_missing_kernel_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, device: str
):
    monkeypatch.setenv(find.VARIABLE, str(tmp_path))
    reason = backends.unavailable(name, device)
    assert reason is not None
    assert str(tmp_path) in reason


def test_an_installed_package_is_made_ready_once(tmp_path: Path):
    source = tmp_path / "fused_routing.py"
    source.write_text("kernel = 1\n")
    first = find.prepared("vllm", source, "0.33.0", tmp_path / "cache")
    assert first.version == "0.33.0"
    assert (first.folder / build.VLLM_FILE).read_text() == "kernel = 1\n"
    source.write_text("kernel = 2\n")
    assert find.prepared("vllm", source, "0.33.0", tmp_path / "cache") == first
    assert find.prepared("vllm", source, "0.34.0", tmp_path / "cache").folder != first.folder
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith(".")] == []


def test_the_versions_of_prepared_kernels_are_those_of_the_manifest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / build.VLLM_FILE).write_text("kernel = 1\n")
    manifest.write(tmp_path, {"vllm": manifest.entry(tmp_path, "0.99", "a copy", (build.VLLM_FILE,))})
    monkeypatch.setenv(find.VARIABLE, str(tmp_path))
    assert find.versions() == {"vllm": "0.99"}


def test_a_package_that_cannot_be_made_ready_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(OSError, match="nothing"):
        find.prepared("vllm", tmp_path / "nothing.py", "0.33.0", tmp_path / "cache")
    assert list((tmp_path / "cache").glob("*/" + manifest.NAME)) == []


def test_an_installed_package_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "flashinfer" / "data").mkdir(parents=True)
    (tmp_path / "flashinfer" / "__init__.py").touch()
    described = tmp_path / "flashinfer_python-9.9.dist-info" / "METADATA"
    described.parent.mkdir()
    described.write_text("Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(find.VARIABLE, raising=False)
    monkeypatch.setattr(build, "find_nvcc", lambda: tmp_path)
    assert find.missing("flashinfer") is None
    monkeypatch.setattr(build, "find_nvcc", lambda: None)
    assert "no nvcc" in str(find.missing("flashinfer"))


def test_a_compiler_that_refuses_is_quoted(tmp_path: Path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "release 13.0, V13.0.88" && exit\n'
        "echo 'a.cu(3): warning: dull' >&2; echo 'a.cu(7): error: no such kernel' >&2; exit 2\n"
    )
    nvcc.chmod(0o755)
    with pytest.raises(CannotRunError, match=r"^nvcc exited 2: a\.cu\(7\): error: no such kernel$"):
        build.flashinfer(tmp_path, tmp_path, nvcc)


def test_the_headers_that_are_stood_in_for_travel_with_the_driver():
    names = {path.name for path in build.sources()}
    assert {"flashinfer_driver.cu", "DtypeDecl.h", "SfLayoutDecl.h", "cublasLt.h", "tvm_ffi_utils.h"} <= names


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--what"]])
def test_the_command_wants_one_folder(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("python -m oracle.peers: ")
    assert printed.count("\n") == 1
