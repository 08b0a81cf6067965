"""A backend that is wrong in one way, to test the tester with."""

from collections.abc import Callable

import pytest

from oracle import backends
from oracle.compare import PERMITTED, Permitted
from oracle.problem import Batch, Outputs

Fault = Callable[[Batch, Outputs], None]


class Faulty:
    """The specification, and then a fault."""

    name = "faulty"
    devices = ("cpu",)
    fault: Fault

    def unavailable(self, device: str) -> str | None:
        return None

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        backends.get("spec").run(batch, outputs, device)
        type(self).fault(batch, outputs)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Register ``faulty`` (or another name) with a fault; runs with one job see it."""

    def planted(fault: Fault, name: str = "faulty") -> None:
        made = type(name, (Faulty,), {"name": name, "fault": staticmethod(fault)})
        monkeypatch.setattr(f"oracle.backends.{name}", made, raising=False)
        monkeypatch.setitem(backends._ADAPTERS, name, f"oracle.backends:{name}")
        monkeypatch.setitem(PERMITTED, name, Permitted("a fault planted by a test"))

    return planted
