import os
import shutil

import hypothesis
import pytest

from oracle.card import device
from oracle.peers import find

# A loaded machine says nothing about the code: no deadline an example.
hypothesis.settings.register_profile(
    "house",
    deadline=None,  # a loaded machine is no fault of the code
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("house")


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser() -> str | None:
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


@pytest.fixture(scope="session")
def browser_path() -> str:
    path = browser()
    assert path is not None, "tests of pages are marked browser"
    return path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "card: needs a CUDA device of compute capability 9.0 or newer")
    config.addinivalue_line("markers", "browser: needs Chromium or Chrome")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        device.share(int(worker.removeprefix("gw")))


def pytest_report_header(config: pytest.Config) -> list[str]:
    reason = device.missing()
    card = "card: present" if reason is None else f"card: missing, so tests marked card are not run: {reason}"
    shown = browser()
    page = f"browser: {shown or 'missing, so tests marked browser are not run: install chromium'}"
    reasons = {name: find.missing(name) for name in ("flashinfer", "vllm")}
    peers = [f"published kernel {name}: {reason or 'present'}" for name, reason in reasons.items()]
    absent = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell) is None]
    shells = f"shells: {', '.join(absent) or 'none'} missing, whose completion is then not tested"
    return [card, page, shells, *peers]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set() if config.getoption("--slow") else {"slow"}
    if device.missing() is not None:
        left_out.add("card")
    if browser() is None:
        left_out.add("browser")
    dropped = [item for item in items if any(item.get_closest_marker(name) for name in left_out)]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in dropped]
