"""Which versions of the compilers are supported, and what is said of all others."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spec import compilers
from spec.compilers import COMPILERS, Compiler

ROOT = Path(__file__).resolve().parents[2]
MADE_UP = Compiler("impl_made_up", "made-up", "4.5.1", "4.9", aliases=("made-up-nightly",))


def install(folder: Path, name: str, version: str) -> None:
    """Make a distribution that has a name and a version and nothing else."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def run(code: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the distributions in ``folder`` hide those that are really installed."""
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}"} | variables
    line = [sys.executable, *arguments] if arguments else [sys.executable, "-c", code]
    return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("4.5.0", False),
        ("4.5.1rc1", True),
        ("4.5.1", True),
        ("4.5.10", True),
        ("4.8.9+git0123", True),
        ("4.9.0.dev20270101", False),
        ("4.9", False),
        ("4.10.0", False),
        ("5.0.0", False),
        ("3.99", False),
    ],
)
def test_versions_order_as_numbers_and_a_prerelease_is_its_release(version, supported):
    assert MADE_UP.supports(version) is supported


def test_a_version_that_is_none_is_told():
    with pytest.raises(ValueError, match="a version starts with a number, not 'newest'"):
        compilers.release("newest")


def test_pyproject_states_the_same_ranges():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for compiler in COMPILERS.values():
        mine = [text for text in project["dependencies"] if text.startswith(compiler.distribution)]
        assert mine == [compiler.requirement]


def test_what_is_installed_here_is_supported():
    assert {name: compiler.complaint() for name, compiler in COMPILERS.items()} == {
        "cute": None,
        "triton": None,
    }


def test_another_name_of_the_same_compiler_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert MADE_UP.complaint() == (
        "impl_made_up needs made-up>=4.5.1,<4.9, but none is installed: pip install 'made-up>=4.5.1,<4.9'"
    )
    install(tmp_path, "made-up-nightly", "4.6.0+git0")
    assert MADE_UP.complaint() is None


@pytest.mark.parametrize("version", ["1.2.3", "99.0"], ids=["too-old", "too-new"])
@pytest.mark.parametrize("backend", COMPILERS)
class TestAWrongVersion:
    """Every way in says it in one line."""

    def line(self, backend: str, version: str) -> str:
        compiler = COMPILERS[backend]
        return (
            f"{compiler.package} needs {compiler.requirement}, but {version} is installed: "
            f"pip install '{compiler.requirement}'"
        )

    @pytest.mark.parametrize("module", ["compiler", "host", "kernel"])
    def test_at_the_import_of_a_module(self, backend, version, module, tmp_path):
        install(tmp_path, COMPILERS[backend].distribution, version)
        done = run(f"import impl_{backend}.{module}", tmp_path)
        assert done.stderr.splitlines()[-1] == f"ImportError: {self.line(backend, version)}"

    def test_at_the_door(self, backend, version, tmp_path):
        install(tmp_path, COMPILERS[backend].distribution, version)
        (tmp_path / "torch.py").write_text(
            "from types import SimpleNamespace\n"
            "cuda = SimpleNamespace(device_count=lambda: 1, get_device_capability=lambda index: (9, 0))\n"
        )
        done = run("import musespark_routing", tmp_path, MUSESPARK_ROUTING_BACKEND=backend)
        before, after = "ImportError: MUSESPARK_ROUTING_BACKEND", "MUSESPARK_ROUTING_BACKEND=spec"
        assert done.stderr.splitlines()[-1] == (
            f"{before}={backend} cannot work here: {self.line(backend, version)}; mend that, or set {after}"
        )

    def test_at_the_command(self, backend, version, tmp_path):
        install(tmp_path, COMPILERS[backend].distribution, version)
        done = run("", tmp_path, "-m", "oracle", "check", "--backend", backend)
        assert done.returncode == 3
        assert done.stderr == f"could not run: {backend} on sim: {self.line(backend, version)}\n"
