"""Worker processes: every task once, errors as one line, no one left behind."""

import os
import signal

import pytest

from oracle.errors import CannotRunError
from oracle.workers import Workers


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_task_is_done_once(jobs):
    with Workers(jobs) as workers:
        assert sorted(workers.map(abs, range(-20, 0))) == list(range(1, 21))
        assert sorted(workers.map(str, range(3))) == ["0", "1", "2"]


def test_more_workers_than_tasks_and_no_tasks_at_all_end_well():
    with Workers(3) as workers:
        assert list(workers.map(abs, [-1])) == [1]
        assert list(workers.map(abs, [])) == []


def test_a_worker_that_dies_is_reported_with_its_signal():
    with (
        Workers(2) as workers,
        pytest.raises(CannotRunError, match="a worker process was killed by signal 9"),
    ):
        list(workers.map(_kill_self, [0]))


def test_a_worker_that_cannot_go_on_hands_over_its_reason():
    with Workers(2) as workers, pytest.raises(CannotRunError, match=r"^no kernel$"):
        list(workers.map(_refuse, [0]))


def test_no_process_outlives_the_pool():
    with Workers(2) as workers:
        children = list(workers.map(_pid, range(8)))
    for child in set(children):
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def _kill_self(_):
    os.kill(os.getpid(), signal.SIGKILL)


def _refuse(_):
    raise CannotRunError("no kernel")


def _pid(_):
    return os.getpid()
