import re
import subprocess
import sys

import pytest

from impl_triton import compiler, host
from oracle import inspection


def test_compiling_imports_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from impl_triton.compiler import compile_kernel\n"
        "print(compile_kernel(False, True).threads)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["256"]


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
@pytest.mark.parametrize("renormalize", [False, True], ids=["raw", "renormalize"])
def test_what_compile_routing_launches_is_the_ptx_that_the_simulator_reads(metadata, renormalize):
    routing = host.compile_routing(metadata, renormalize)
    arch = f"sm_{routing.kernel.metadata.target.arch}a"
    compiled = compiler.compile_kernel(metadata, renormalize, arch)
    assert routing.kernel.asm["ptx"] == compiled.ptx
    assert routing.kernel.asm["cubin"] == compiled.cubin


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_every_argument_of_a_call_is_a_parameter_and_none_a_constant(metadata):
    compiled = compiler.compile_kernel(metadata, True)
    kinds = re.findall(r"\.param \.(\w+) (?:\.ptr \.global \.align 1 )?route_kernel_param_\d+", compiled.ptx)
    pointers = ["u64"] * (5 if metadata else 4)
    numbers = ["u32", "u64", "f32", "u32", "u32", "u32"]
    scratch = ["u64", "u64"]
    assert kinds == pointers + numbers + scratch


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_early_dependents_launches_them_before_anything_and_changes_nothing_else(metadata):
    late, early = (compiler.compile_kernel(metadata, True, early_dependents=e) for e in (False, True))
    opcodes = [[i.opcode for i in inspection.ptx_listing(c.ptx, c.entry)] for c in (late, early)]
    launches = "griddepcontrol.launch_dependents"
    memory = ("ld.global", "st.", "ld.shared", "griddepcontrol.wait", "bar.", "red.")
    before = opcodes[1][: opcodes[1].index(launches)]
    assert not [opcode for opcode in before if opcode.startswith(memory)]
    opcodes[1].remove(launches)
    assert sorted(opcodes[1]) == sorted(opcodes[0])


def test_an_architecture_in_the_options_wins():
    kernel = host.compile_routing(False, True, "arch=sm_103a").kernel
    assert ".target sm_103a" in kernel.asm["ptx"]


def test_options_reach_the_compiler():
    assert ".maxnreg 40" in compiler.compile_kernel(False, True, options=" maxnreg = 40 ,").ptx


@pytest.mark.parametrize("options", ["maxnreg", "maxnreg=many", "num_warps=4", "enable_fp_fusion=True", "=3"])
def test_options_that_are_unknown_or_would_change_the_kernel_are_refused(options):
    with pytest.raises(ValueError, match="options"):
        compiler.compile_kernel(False, True, options=options)


@pytest.mark.parametrize("arch", ["sm_80a", "sm_90", "90", "compute_90a", ""])
def test_an_architecture_of_another_form_or_too_old_is_refused(arch):
    with pytest.raises(ValueError, match="arch must be"):
        compiler.compile_kernel(False, True, arch)
