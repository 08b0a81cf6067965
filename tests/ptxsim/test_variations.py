"""What `docs/simulator.md` says of the places where the PTX ISA, ptxas and the card part."""

import re
from pathlib import Path

import pytest

from oracle import ptxsim
from oracle.artifacts import artifact
from oracle.card import silicon

PARTING = re.compile(
    r"bf[ei]\.[bus]64|cvt\.\w+\.[us]64\.f32|(max|min)(\.NaN)?\.f32|copysign|(neg|abs)\.f32|abs\.s|neg\.s16|cnot"
    r"|(add|sub|mul)\.f32$|rem"
)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_103a", "sm_120a"])
@pytest.mark.parametrize("backend", ["cute", "triton"])
def test_our_kernels_contain_no_construct_on_which_isa_and_card_part(backend, arch):
    for metadata in (True, False):
        for renormalize in (True, False):
            compiled = artifact(backend, metadata, renormalize, arch)
            code = ptxsim.parse(compiled.ptx, compiled.entry).code
            assert [i.text for i in code if PARTING.match(i.opcode)] == []
            reciprocals = [i for i in code if i.opcode.startswith("rcp")]
            made = {i.operands[0] for i in reciprocals}
            assert reciprocals
            assert not any(i.operands[1] in made for i in reciprocals)
            assert {i.opcode for i in code if re.match(r"div\.[us]", i.opcode)} <= {"div.u32"}


def test_the_constructs_are_forms_of_the_simulator_and_the_page_names_them():
    assert {name for name in ptxsim.forms() if PARTING.match(name)} >= {
        "bfe.u64",
        "bfi.b64",
        "cvt.rzi.s64.f32",
        "max.f32",
        "copysign.f32",
        "cnot.b16",
    }
    page = Path(silicon.__file__).parents[2] / "docs" / "simulator.md"
    text = page.read_text()
    for construct in ("`bfe`", "`bfi`", "`cvt`", "`copysign(x, x)`", "`rcp(rcp(x))`", "`cnot`", "`abs`"):
        assert construct in text
    for kind in ptxsim.ERROR_KINDS:
        assert f"`{kind}`" in text


def test_random_programs_leave_out_what_the_page_says():
    forms = set(silicon.program_forms())
    left_out = {
        "neg.f32",
        "abs.f32",
        "abs.s32",
        "neg.s16",
        "add.f32",
        "mul.f32",
        "cvt.sat.s16.u32",
        "div.u32",
    }
    assert left_out <= set(ptxsim.forms())
    assert not forms & left_out
    assert {"bfe.u64", "bfi.b64", "max.f32", "rcp.approx.ftz.f32"} <= forms
