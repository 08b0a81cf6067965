"""Threads run in another legal order: no correct kernel notices, and others are found."""

import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from ptxsim_tests_planted_routing import WAIT, problems, simulate

from oracle import backends, check, cli, exits, reordered, replay, report
from oracle.compare import PERMITTED, Permitted, expect
from oracle.plan import Plan, Target
from oracle.problem import Outputs

# Each of these kernels writes the eight ids 0..7 of the one row, as thread t's id t, if threads run in step.
STORE_ID = "ld.param.u64 %rd0, [ids]; mad.wide.u32 %rd0, %r5, 4, %rd0; st.global.b32 [%rd0], %thread;"
EIGHT = "setp.ge.u32 %p1, %thread, 8; @%p1 ret;"
IN_STEP = {
    "tickets of an atomic taken for lane numbers": (
        2,
        (
            WAIT + "setp.eq.u32 %p2, %thread, 0; @%p2 st.shared.b32 [room], 0; bar.sync 0;",
            EIGHT,
            "atom.shared.add.u32 %r5, [room], 1;",
            STORE_ID,
        ),
        r"order of threads: ids\[0\]\[0\] is 0x00000000 in the canonical order and 0x0000000[1-7] in order 2",
    ),
    "a register that nobody has written": (
        1,
        (WAIT + EIGHT, "add.u32 %r5, %thread, %r7;", "and.b32 %r5, %r5, 7;", STORE_ID),
        r"order of threads: ids\[0\]\[0\] is 0x00000000 in the canonical order and 0x0000000[1-7] in order 1",
    ),
    "lanes counted by activemask": (
        2,
        (
            WAIT + EIGHT,
            "activemask.b32 %r1; mov.u32 %r2, %lanemask_lt;",
            "and.b32 %r1, %r1, %r2; popc.b32 %r5, %r1;",
            STORE_ID,
        ),
        r"race: a write of what was written by thread \d, with no barrier between; thread \d, address "
        r"0x30000001014 \(ids\+0x0 = ids\[0,0\]\); PTX line 27: .* with threads in order 2",
    ),
}


class Planted:
    """The specification, but for ids, which are a planted kernel's."""

    name = "planted"
    devices = ("sim",)
    lines = ()

    def unavailable(self, device):
        return None

    def run(self, batch, outputs, device):
        self.simulate(batch, outputs)

    def simulate(self, batch, outputs, schedule=0):
        right = Outputs.poisoned(batch)
        backends.get("spec").run(batch, right, "cpu")
        outputs.weights[...] = right.weights
        outputs.metadata[...] = right.metadata
        simulate(self.lines, batch, outputs, schedule)


@pytest.fixture
def planted(monkeypatch):
    """Return a target that a planted kernel stands behind."""

    def plant(lines):
        monkeypatch.setattr(backends, "planted", type("Planted", (Planted,), {"lines": lines}), raising=False)
        monkeypatch.setitem(backends._ADAPTERS, "planted", "oracle.backends:planted")
        monkeypatch.setitem(PERMITTED, "planted", Permitted("a kernel planted by a test"))
        return Target("planted", "sim")

    return plant


def in_order():
    """Problems of one row whose right ids are 0..7."""
    batch = problems(tokens=1)
    batch.logits[...] = -np.arange(256, dtype=np.float32) / 64
    return batch


@pytest.mark.parametrize("kernel", IN_STEP)
def test_a_kernel_that_is_right_only_in_step_is_found_in_another_order(planted, kernel):
    schedule, lines, told = IN_STEP[kernel]
    target, batch = planted(lines), in_order()
    assert (expect(batch).ids == np.arange(8)).all()
    judged = check.judge(batch, (target,))
    assert not judged.findings
    judged = check.judge(batch, (target,), (schedule,))
    assert judged.tallies[target].reordered == len(batch)
    first, second, *_ = report.failure(judged.findings[0]).splitlines()
    found = "depends on the order of threads" if told.startswith("order") else "stopped by the simulator"
    assert first == f"MISMATCH planted on sim: {found}"
    assert re.fullmatch(told, second.strip())


def test_a_problem_that_fails_by_itself_does_not_run_again(planted):
    target, batch = planted(("trap;",)), in_order()
    judged = check.judge(batch, (target,), (1, 2))
    assert judged.tallies[target].reordered == 0
    assert [finding.failure.split(":")[0] for finding in judged.findings] == ["trap"]


@pytest.mark.parametrize("backend", ["cute", "triton"])
@pytest.mark.parametrize("ranges", [True, False], ids=["metadata", "plain"])
def test_our_kernels_write_the_same_in_every_order(backend, ranges):
    batch = problems(tokens=3)
    batch = batch if ranges else replace(batch, ranges=None)
    target = Target(backend, "sim")
    judged = check.judge(batch, (target,), range(1, 13))
    assert not judged.findings
    assert judged.tallies[target].reordered == 12 * len(batch)


def test_of_so_many_chunks_one_runs_again_and_the_orders_take_turns():
    assert [reordered.schedule_of(chunk, 3) for chunk in range(14)] == [
        1,
        0,
        0,
        2,
        0,
        0,
        3,
        0,
        0,
        4,
        0,
        0,
        1,
        0,
    ]
    assert [reordered.schedule_of(chunk, 1) for chunk in range(5)] == [1, 2, 3, 4, 1]
    assert {schedule % 2 for schedule in reordered.SCHEDULES} == {0, 1}


def test_backends_that_are_not_simulated_have_no_other_order():
    assert reordered.can_reorder(Target("cute", "sim"))
    assert not reordered.can_reorder(Target("cute", "cuda"))
    assert not reordered.can_reorder(Target("spec", "cpu"))
    batch = problems()
    assert check.judge(batch, (Target("spec", "cpu"),), (1,)).tallies[Target("spec", "cpu")].reordered == 0


def test_what_depends_on_the_order_is_replayed_from_its_file(planted, tmp_path, capsys):
    schedule, lines, _ = IN_STEP["tickets of an atomic taken for lane numbers"]
    judged = check.judge(in_order(), (planted(lines),), (schedule,))
    path = replay.save(judged.findings[0], tmp_path)
    assert cli.main(["replay", str(path)]) == exits.MISMATCH
    assert "MISMATCH planted on sim: depends on the order of threads" in capsys.readouterr().out


@pytest.mark.parametrize(("every", "reordered_launches"), [(1, 12), (3, 4)])
def test_a_run_says_how_many_launches_ran_again(every, reordered_launches, tmp_path):
    plan = Plan((Target("triton", "sim"),), families=("ties",), batch=(1, 2, 3), count=12)
    result = check.run(plan, 1, report.Reporter(StringIO(), StringIO()), tmp_path, reorder=every)
    assert result.total.reordered == reordered_launches
    assert f"launches are as specified, {reordered_launches} also in another order of threads (" in (
        report.verdict(result)
    )
