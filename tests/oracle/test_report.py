"""Progress for people and for logs."""

import io

import pytest

from oracle import progress
from oracle.report import Reporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return now


def test_a_terminal_sees_one_line_with_share_rate_and_time_left(clock):
    stream = Terminal()
    reporter = Reporter(io.StringIO(), stream)
    with reporter.over(8.0):
        assert stream.getvalue() == "\r[........................]   0%  0 launches\x1b[K"
        clock[0] += 10
        reporter.advance(2.0, 500)
        assert stream.getvalue().endswith(
            "\r[######..................]  25%  500 launches  50/s  30 s left\x1b[K"
        )
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_log_sees_a_plain_line_every_ten_seconds_and_no_control_characters(clock):
    stream = io.StringIO()
    reporter = Reporter(io.StringIO(), stream)
    with reporter.over(100.0):
        for _ in range(30):
            clock[0] += 1
            reporter.advance(1.0, 10)
    assert stream.getvalue().splitlines() == [
        " 10%  100 launches  10/s  90 s left",
        " 20%  200 launches  10/s  80 s left",
        " 30%  300 launches  10/s  70 s left",
    ]


def test_a_failure_does_not_run_into_the_bar(clock):
    stream = Terminal()
    reporter = Reporter(io.StringIO(), stream)
    with reporter.over(8.0):
        clock[0] += 10
        reporter.advance(2.0, 500)
        reporter.note("compiling 2 kernels")
    assert stream.getvalue().endswith("\r\x1b[Kcompiling 2 kernels\n")
