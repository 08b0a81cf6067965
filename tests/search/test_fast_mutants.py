"""`mutants --fast`: survivors are not put to the whole of `check`, so the score is that of `check --fast`."""

import io

import pytest

from oracle.mutants import run, sources
from oracle.mutants.verdict import CAUGHT, SURVIVED, Verdict
from oracle.mutants.worker import Task
from oracle.report import Reporter


@pytest.mark.parametrize(("fast", "outcome"), [(True, SURVIVED), (False, CAUGHT)], ids=["fast", "in-full"])
def test_a_survivor_is_put_to_the_whole_of_check_only_without_fast(fast, outcome, monkeypatch):
    def judged(tasks, jobs, reporter):
        for task in tasks:
            yield task, Verdict(CAUGHT, "check") if task.full else Verdict(SURVIVED), None

    monkeypatch.setattr(run, "_judged", judged)
    monkeypatch.setattr(run, "equivalents", dict)
    some = [mutant for mutant in sources.mutants("triton") if mutant.module == "impl_triton.kernel"][:5]
    tasks = [Task(mutant.group, mutant.module, mutant, {}, ("triton",)) for mutant in some]
    verdicts = list(run._with_survivors_in_full(tasks, 1, Reporter(io.StringIO(), io.StringIO()), fast))
    assert [verdict.outcome for _, verdict in verdicts] == [outcome] * 5
