"""The variants that launch their dependents first: where the instruction stands, and the same bits."""

import pytest

from oracle import backends, inspection
from oracle.artifacts import artifact
from oracle.bench.budget import ARCHITECTURES
from oracle.compare import compare
from oracle.mutants import code
from oracle.mutants.sieve import trials

pytestmark = pytest.mark.parametrize("backend", ["cute", "triton"])


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_dependents_are_launched_first_and_nothing_else_changes_sides_of_the_wait(backend, metadata, arch):
    compiled = artifact(backend, metadata, True, arch, early_dependents=True)
    assert code.fault(backend, compiled, arch, early_dependents=True) is None
    sass = inspection.sass_listing(inspection.disassemble(compiled.cubin))
    assert inspection.launches_dependents_first(sass)


def test_the_code_is_judged_by_whether_dependents_are_to_be_launched_early(backend):
    early, late = (artifact(backend, True, True, early_dependents=asked) for asked in (True, False))
    assert code.fault(backend, early) == "dependents are launched early"
    assert code.fault(backend, late, early_dependents=True) == "dependents are not launched first"


def test_the_outputs_have_the_same_bits_on_problems_of_every_family(backend):
    for trial in trials():
        outputs = trial.expected.blank(len(trial.batch))
        backends.get(backend).simulate(trial.batch, outputs, early_dependents=True)
        assert not compare(trial.expected, outputs).any()
