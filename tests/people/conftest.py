"""A browser for tests of pages, a fault to find, and recordings to replay."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oracle.backends.spec import Spec
from oracle.problem import Batch, Outputs


def load(name: str) -> ModuleType:
    """Import a neighbouring file that is no test module."""
    full = f"people_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


@pytest.fixture(scope="session")
def chromium(browser_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with load("devtools").Chromium(browser_path, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a command writes out of the tree."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Batch, Outputs], None]], None]:
    """Let the backend ``spec`` be wrong, for runs with one job."""
    right = Spec.run

    def planted(change: Callable[[Batch, Outputs], None]) -> None:
        def run(self: Spec, batch: Batch, outputs: Outputs, device: str) -> None:
            right(self, batch, outputs, device)
            change(batch, outputs)

        monkeypatch.setattr(Spec, "run", run)

    return planted
