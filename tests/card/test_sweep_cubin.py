"""The sweep launches the cubin that `route` launches: both come from the same PTX and the same assembler."""

import importlib
from dataclasses import replace

import pytest

from oracle.artifacts import artifact
from oracle.card import kernels, parameters

VARIANTS = [(metadata, renormalize) for metadata in (False, True) for renormalize in (False, True)]


def routed(backend, metadata, renormalize, early):
    """The cubin that `compile_routing` loads on a card of sm_90."""
    compiler = importlib.import_module(f"impl_{backend}.compiler")
    if backend == "triton":
        return compiler.build(metadata, renormalize, "sm_90a", early_dependents=early).asm["cubin"]
    options = "--gpu-arch sm_90a --enable-tvm-ffi"
    return compiler.compile_variant(metadata, renormalize, options, early).__cubin__


@pytest.mark.parametrize(
    ("metadata", "renormalize", "early"), [*((*variant, False) for variant in VARIANTS), (True, True, True)]
)
def test_the_cubin_is_that_of_route(backend, metadata, renormalize, early):
    compiled = artifact(backend, metadata, renormalize, early_dependents=early)
    assert routed(backend, metadata, renormalize, early) == compiled.cubin


@pytest.mark.parametrize(("metadata", "renormalize"), VARIANTS)
def test_every_argument_has_its_place_in_the_parameters(backend, metadata, renormalize):
    layout = kernels.layout(backend, metadata, renormalize, "sm_90a")
    found = [parameters.FIELDS[patch.field] for patch in layout.patches]
    assert sorted(found) == sorted(name for name in parameters.FIELDS if metadata or name != "metadata")


def test_the_fingerprint_knows_the_code_and_not_where_it_lay(backend, monkeypatch):
    before = kernels.fingerprint(backend, "sm_90a")
    made = {bit: artifact(backend, True, bit) for bit in (False, True)}

    def changed(old, new):
        def take(backend, metadata, renormalize, arch):
            return replace(made[renormalize], ptx=made[renormalize].ptx.replace(old, new))

        monkeypatch.setattr(kernels, "artifact", take)
        return kernels.fingerprint(backend, "sm_90a")

    assert changed("griddepcontrol.wait", "griddepcontrol.launch_dependents") != before
    assert changed("kernel.py", "moved/kernel.py") == before
