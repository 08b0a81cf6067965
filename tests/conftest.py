import hypothesis
import pytest

from oracle.peers import find

# A loaded machine says nothing about the code: no deadline an example.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_report_header() -> list[str]:
    """Name the published kernels that this machine lacks: the tests that compare with them do not run."""
    reasons = {name: find.missing(name) for name in ("flashinfer", "vllm")}
    return [f"published kernel {name}: {reason or 'here'}" for name, reason in reasons.items()]
