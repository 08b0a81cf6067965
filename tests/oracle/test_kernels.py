"""Both kernels on every family, against the specification: the same bodies on the simulator and on a card."""

import pytest

from oracle import backends, cases, check
from oracle.plan import Plan, RangeChoice, Target
from oracle.report import failure

TARGETS = [
    pytest.param(
        Target(name, device), id=f"{name}-{device}", marks=[pytest.mark.card] if device == "cuda" else []
    )
    for name in ("cute", "triton")
    for device in ("sim", "cuda")
]
RANGES = RangeChoice(((0, 256), (64, 64), (37, 101)), drawn=True)


def sentence(name: str) -> str:
    return f"{cases.FAMILIES[name].clauses[0]}-{name}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("family", cases.FAMILIES, ids=sentence)
def test_the_kernel_writes_what_is_specified(target, family):
    plan = Plan(
        (target,), (family,), batch=(1, 3, 8), tile=(1, 3, 8, 192, 256), ranges=RANGES, count=24, seed=1
    )
    results = [check.execute(chunk) for chunk in plan.chunks()]
    told = [failure(finding) for result in results for finding in result.findings]
    assert told == []
    assert sum(tally.launches for result in results for tally in result.tallies.values()) >= 6
    assert sum(tally.mismatches for result in results for tally in result.tallies.values()) == 0


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.card)])
def test_the_eager_formula_agrees_where_it_is_exact(device):
    assert backends.unavailable("torch", device) is None
    plan = Plan((Target("torch", device),), count=64)
    results = [check.execute(chunk) for chunk in plan.chunks()]
    assert sum(tally.launches for result in results for tally in result.tallies.values()) == 64
    assert sum(tally.mismatches for result in results for tally in result.tallies.values()) == 0
