from functools import lru_cache

import pytest

from oracle import inspection
from oracle.artifacts import artifact

ARCHES = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
LOGITS, BIAS = 0, 1
OUTPUTS = {False: {2, 3}, True: {2, 3, 4}}


@pytest.fixture(params=ARCHES)
def arch(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["plain", "metadata"])
def metadata(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["raw", "renormalize"])
def compiled(request, arch, metadata):
    return artifact("triton", metadata, request.param, arch)


@lru_cache
def listings(compiled):
    ptx = inspection.ptx_listing(compiled.ptx, compiled.entry)
    return ptx, inspection.sass_listing(inspection.disassemble(compiled.cubin))


@pytest.fixture
def ptx(compiled):
    return listings(compiled)[0]


@pytest.fixture
def sass(compiled):
    return listings(compiled)[1]


def test_every_variant_compiles_for_the_architecture_it_names(compiled, arch):
    assert f".target {arch}\n" in compiled.ptx
    assert compiled.threads == 256
    assert compiled.cubin[:4] == b"\x7fELF"


def test_a1_a2_ptx_rounds_every_add_and_multiply_and_fuses_none(ptx):
    assert inspection.contractible(ptx) == []
    opcodes = {instruction.opcode for instruction in ptx}
    assert {"add.rn.f32", "mul.rn.f32"} <= opcodes
    assert not {opcode for opcode in opcodes if opcode.startswith("fma")}


def test_a5_a6_are_the_only_approximations_and_the_only_ones_to_flush_subnormals(ptx):
    opcodes = {instruction.opcode for instruction in ptx}
    inexact = {opcode for opcode in opcodes if ".approx" in opcode or ".ftz" in opcode or "div." in opcode}
    assert inexact == {"ex2.approx.ftz.f32", "rcp.approx.ftz.f32"}


def test_a1_a2_sass_fuses_no_product_with_a_sum(sass):
    assert any(instruction.opcode.startswith("FADD") for instruction in sass)
    assert inspection.fused(sass) == []


def test_no_instruction_lets_dependents_launch_early(ptx, sass):
    assert not inspection.launches_dependents(ptx)
    assert not inspection.launches_dependents(sass)


def assert_order(accesses, metadata):
    """The bias is loaded ahead of the wait; logits are loaded, and everything stored, after it alone."""
    loads = [access for access in accesses if access.kind == "load"]
    stores = [access for access in accesses if access.kind == "store"]
    assert {origin for load in loads for origin in load.origins} >= {LOGITS, BIAS}
    for load in loads:
        waited = LOGITS in load.origins
        assert (load.before, load.after) == (not waited, waited), load
    assert OUTPUTS[metadata] <= {origin for store in stores for origin in store.origins}
    for store in stores:
        assert (store.before, store.after) == (False, True), store


def test_ptx_loads_the_bias_before_the_wait_and_touches_the_rest_after_it(compiled, ptx, metadata):
    assert_order(inspection.ptx_accesses(ptx, compiled.ptx, compiled.entry), metadata)


def test_sass_loads_the_bias_before_the_wait_and_touches_the_rest_after_it(compiled, sass, arch, metadata):
    parameters = inspection.ptx_parameters(compiled.ptx, compiled.entry)
    assert_order(inspection.sass_accesses(sass, parameters, arch), metadata)


def test_logits_and_bias_are_loaded_sixteen_bytes_at_a_time(compiled, ptx):
    accesses = inspection.ptx_accesses(ptx, compiled.ptx, compiled.entry)
    loads = [access.text for access in accesses if access.kind == "load"]
    assert len(loads) == 4
    assert all("ld.global.v4.b32" in load for load in loads)
