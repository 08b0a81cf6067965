"""A backend that is the specification but for one planted fault; a copy of the known cases to write to."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import spec
from oracle import backends, cases
from oracle.cases import known
from oracle.compare import PERMITTED, Permitted
from oracle.problem import Batch, Outputs
from oracle.search import keep

Broken = Callable[[Batch], np.ndarray]
"""Which problems of a batch the backend gets wrong, bool ``[L]``."""


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broken, str], None]:
    """Register the backend ``planted``, wrong in ids, weights or metadata where it is told to be."""

    def planted(broken: Broken, field: str = "ids") -> None:
        class Planted:
            name = "planted"
            devices = ("cpu",)

            def unavailable(self, device: str) -> str | None:
                return None

            def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
                backends.get("spec").run(batch, outputs, device)
                with np.errstate(all="ignore"):
                    wrong = broken(batch)
                array = getattr(outputs, field)
                if array is not None:
                    array.view(np.int32).reshape(len(batch), -1)[wrong, 0] ^= 1

        monkeypatch.setattr("oracle.backends.planted", Planted, raising=False)
        monkeypatch.setitem(backends._ADAPTERS, "planted", "oracle.backends:planted")
        monkeypatch.setitem(PERMITTED, "planted", Permitted("a fault planted by a test"))

    return planted


@pytest.fixture
def known_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let the known cases be a copy; return its folder."""
    package = tmp_path / "copy"
    shutil.copytree(Path(cases.__file__).parent / "known", package / "known")
    for module in (keep, known):
        monkeypatch.setattr(module, "files", lambda name: package)
    known.entries.cache_clear()
    yield package / "known"
    known.entries.cache_clear()


@pytest.fixture(scope="session")
def sorted_keys() -> Callable[[Batch], np.ndarray]:
    """Return a function: the ordered keys of a batch, int64 ``[L, b, 256]``, the largest first."""

    def keys(batch: Batch) -> np.ndarray:
        key = spec.ordered_key(spec.add_rn(spec.sigmoid(batch.logits), batch.bias[:, None, :]))
        return -np.sort(-key.astype(np.int64), axis=-1)

    return keys
