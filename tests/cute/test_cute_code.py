"""What the compiled code of every variant shows, on every architecture."""

import functools

import pytest

from impl_cute import compiler, host
from oracle import inspection
from oracle.artifacts import artifact
from oracle.backends.cute import PARAMETERS

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
VARIANTS = [(metadata, renormalize) for metadata in (False, True) for renormalize in (False, True)]
NUMBER = {name: number for number, name in enumerate(PARAMETERS)}

pytestmark = [
    pytest.mark.parametrize("arch", ARCHITECTURES),
    pytest.mark.parametrize(
        ("metadata", "renormalize"),
        VARIANTS,
        ids=[f"{'metadata' if m else 'plain'}-{'renormalize' if r else 'raw'}" for m, r in VARIANTS],
    ),
]


@functools.cache
def ptx_of(compiled):
    return inspection.ptx_listing(compiled.ptx, compiled.entry)


@functools.cache
def sass_of(compiled):
    return inspection.sass_listing(inspection.disassemble(compiled.cubin))


@functools.cache
def accesses_of(compiled, arch, text):
    if text == "ptx":
        return inspection.ptx_accesses(ptx_of(compiled), compiled.ptx, compiled.entry)
    parameters = inspection.ptx_parameters(compiled.ptx, compiled.entry)
    return inspection.sass_accesses(sass_of(compiled), parameters, arch)


def test_it_compiles_without_a_gpu(metadata, renormalize, arch):
    compiled = artifact("cute", metadata, renormalize, arch)
    assert f"\n.target {arch}\n" in compiled.ptx
    assert compiled.cubin.startswith(b"\x7fELF")
    assert (compiled.threads, compiled.dynamic_shared) == (288 if metadata else 256, 0)
    assert (compiled.row_ctas, compiled.cluster) == (True, metadata)
    assert ".extern .shared" not in compiled.ptx


def test_the_parameters_are_those_that_the_adapter_packs(metadata, renormalize, arch):
    compiled = artifact("cute", metadata, renormalize, arch)
    sizes = [size for name, size in PARAMETERS.items() if metadata or name != "metadata"]
    assert [parameter.size for parameter in inspection.ptx_parameters(compiled.ptx, compiled.entry)] == sizes


def test_every_float_operation_is_one_of_four_and_none_is_contracted(metadata, renormalize, arch):
    compiled = artifact("cute", metadata, renormalize, arch)
    listing = ptx_of(compiled)
    assert inspection.contractible(listing) == []
    operations = {i.opcode for i in listing if i.opcode.endswith(".f32")}
    assert operations - {"ld.global.f32"} == {
        "mul.rn.f32",
        "add.rn.f32",
        "ex2.approx.ftz.f32",
        "rcp.approx.ftz.f32",
    }
    assert inspection.fused(sass_of(compiled)) == []


def test_one_reciprocal_makes_the_score_and_one_the_inverse(metadata, renormalize, arch):
    listing = ptx_of(artifact("cute", metadata, renormalize, arch))
    made = {i.operands[0]: i.opcode for i in listing if i.operands}
    of = [made[i.operands[1]] for i in listing if i.opcode == "rcp.approx.ftz.f32"]
    assert of == ["mul.rn.f32"] + ["add.rn.f32"] * renormalize


@pytest.mark.parametrize("text", ["ptx", "sass"])
def test_the_bias_is_read_ahead_of_the_wait_and_all_else_behind_it(metadata, renormalize, arch, text):
    accesses = accesses_of(artifact("cute", metadata, renormalize, arch), arch, text)
    bias, logits = (a for a in accesses if a.kind == "load")
    assert (NUMBER["bias"] in bias.origins, bias.before, bias.after) == (True, True, False)
    assert (NUMBER["logits"] in logits.origins, logits.before, logits.after) == (True, False, True)
    stores = [a for a in accesses if a.kind == "store"]
    assert all(a.after and not a.before for a in stores)
    written = set().union(*(a.origins for a in stores))
    outputs = {"ids", "weights", "metadata"} if metadata else {"ids", "weights"}
    assert {NUMBER[name] for name in outputs} <= written
    assert not any(NUMBER["logits"] in a.origins or NUMBER["bias"] in a.origins for a in stores)


def test_dependents_are_not_launched_early(metadata, renormalize, arch):
    compiled = artifact("cute", metadata, renormalize, arch)
    assert not inspection.launches_dependents(ptx_of(compiled))
    assert not inspection.launches_dependents(sass_of(compiled))


def test_compile_routing_launches_the_same_code(metadata, renormalize, arch, monkeypatch):
    made = []

    def spy(*arguments):
        made.append(compiler.compile_object(*arguments))
        return made[-1]

    monkeypatch.setattr(host, "compile_object", spy)
    host.compile_routing(metadata, renormalize, f"--gpu-arch={arch}")
    (launched,) = made
    assert artifact("cute", metadata, renormalize, arch).cubin in launched
