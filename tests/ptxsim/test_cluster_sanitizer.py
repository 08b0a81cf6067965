"""What is found in clusters: a planted kernel of each fault with its message, in any order of threads."""

import pytest
from ptxsim_tests_planted_cluster import CLUSTER, FAULTS
from ptxsim_tests_planted_routing import problems, simulate

from oracle import ptxsim
from oracle.problem import Outputs


def message(*lines, schedule=0, **keywords):
    """Return what the simulator says of a kernel."""
    batch = problems()
    with pytest.raises(ptxsim.SimulationError) as caught:
        simulate(lines, batch, Outputs.poisoned(batch), schedule, **CLUSTER, **keywords)
    assert caught.value.kind in ptxsim.ERROR_KINDS
    return caught.value.told()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_told_with_thread_address_and_line(fault):
    lines, told = FAULTS[fault]
    assert message(*lines, instruction_budget=50000) == told


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("schedule", [1, 2, 3, 4])
def test_no_order_of_threads_hides_a_fault(fault, schedule):
    lines, told = FAULTS[fault]
    found = message(*lines, schedule=schedule, instruction_budget=50000).split(":")[0]
    # What is read too early may not have been sent; what arrives late may be counted in another phase.
    other = {"race": "uninitialised", "absent CTA": "mbarrier", "mbarrier": "absent CTA"}
    assert found in (told.split(":")[0], other.get(told.split(":")[0]))
