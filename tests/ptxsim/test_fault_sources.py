"""A fault in one of our kernels is told with its line of Python, whether or not the launched PTX has it."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from ptxsim_tests_planted_routing import problems

from oracle import backends, ptxsim
from oracle.artifacts import artifact
from oracle.backends.simulated import lay_out
from oracle.problem import Outputs

ACCESS = {
    "bias": {"cute": "load(bias.toint()", "triton": "gl.load(bias + expert)"},
    "logits": {"cute": "load(start)", "triton": "gl.load(row + expert,"},
    "ids": {"cute": "store(ids.toint()", "triton": "gl.store(ids + token"},
    "metadata": {"cute": "store(routes + WORD", "triton": "gl.store(metadata + NUM_CTAS"},
}
"""What stands on the line where each kernel first touches a buffer."""


@pytest.fixture
def moved(monkeypatch):
    """Run a backend whose pointer to one buffer is off by two bytes; return the error."""

    def run(backend, name):
        adapter = import_module(f"oracle.backends.{backend}")
        pack = adapter.parameters

        def parameters(values):
            return pack(values | {name: values[name] + np.uint64(2)})

        monkeypatch.setattr(adapter, "parameters", parameters)
        batch = problems()
        with pytest.raises(ptxsim.SimulationError) as caught:
            backends.get(backend).run(batch, Outputs.poisoned(batch), "sim")
        return caught.value

    return run


@pytest.mark.parametrize("backend", ["cute", "triton"])
@pytest.mark.parametrize("name", ACCESS)
def test_the_line_is_the_one_that_makes_the_access(moved, backend, name):
    error = moved(backend, name)
    assert error.kind == "misaligned"
    file, line = error.source.split(", ")[0].split(":")
    assert file == f"impl_{backend}/kernel.py"
    module = import_module(f"impl_{backend}.kernel")
    lines = Path(module.__file__).read_text().splitlines()
    assert ACCESS[name][backend] in lines[int(line) - 1]
    assert f"({name}+0x" in str(error)
    assert f"({error.source})" in error.told()


def test_the_simulated_kernel_has_no_line_information_and_its_twin_the_same_instructions():
    launched, traced = (
        artifact("cute", True, True, options=options) for options in ("", "--generate-line-info")
    )
    assert ".loc" not in launched.ptx
    programs = [ptxsim.parse(compiled.ptx, compiled.entry) for compiled in (launched, traced)]
    texts = [[instruction.text for instruction in program.code] for program in programs]
    assert texts[0] == texts[1]
    assert all(instruction.source for instruction in programs[1].code)


INLINE = """\
.version 8.8
.target sm_90a
.address_size 64
.visible .entry kernel() {
.loc 1 7 1
// begin inline asm
.loc 1 7 1

.loc 1 8 1
membar.cta;
.loc 1 9 1
trap;
// end inline asm
.loc 2 30 1, function_name $L__info_string0, inlined_at 1 12 3 // there
ret;
}
.file 1 "/some/where" "kernel.py"
.file 2 "/lib/triton/language/standard.py"
"""


def test_inline_assembly_has_one_source_line_and_inlined_code_two():
    program = ptxsim.parse(INLINE)
    assert [(instruction.line, instruction.source) for instruction in program.code] == [
        (10, "where/kernel.py:7"),
        (12, "where/kernel.py:7"),
        (15, "language/standard.py:30, called at where/kernel.py:12"),
    ]


def test_another_kernel_s_lines_are_not_taken():
    launched = artifact("cute", True, True)
    other = artifact("cute", True, False, options="--generate-line-info")
    programs = [ptxsim.parse(compiled.ptx, compiled.entry) for compiled in (launched, other)]
    instruction = programs[0].code[5]
    error = ptxsim.SimulationError(
        "trap", "it stops", launch=0, thread=0, line=instruction.line, text=instruction.text
    )
    ptxsim.add_sources(error, *programs)
    assert error.source == ""


def test_every_element_of_every_buffer_has_its_name():
    batch = problems(tokens=3, tile=5)
    memory, _ = lay_out(batch, Outputs.poisoned(batch))
    place = {buffer.name: buffer.place for buffer in memory.buffers}
    named = {
        ("logits", 1040 * 2 + 4 * 255): "logits+0xc1c = logits[2,255]",
        ("logits", 1024): "logits+0x400",
        ("logits", 1040 * 3): "logits+0xc30",
        ("logits", -4): "logits-0x4",
        ("bias", 1020): "bias+0x3fc = bias[255]",
        ("bias", 1024): "bias+0x400",
        ("ids", 92): "ids+0x5c = ids[2,7]",
        ("ids", 96): "ids+0x60",
        ("weights", 37): "weights+0x25 = weights[1,1] byte 1",
        ("metadata", 0): "metadata+0x0 = padded_tokens[0]",
        ("metadata", 4): "metadata+0x4 = num_ctas[0]",
        ("metadata", 12): "metadata+0xc = unused[1]",
        ("metadata", 16): "metadata+0x10 = cta_batch[0]",
        ("metadata", 4 * 131): "metadata+0x20c = cta_limit[63]",
        ("metadata", 4 * 132): "metadata+0x210 = expanded_to_permuted[0]",
        ("metadata", 4 * 515): "metadata+0x80c = permuted_to_token[319]",
        ("metadata", 4 * 516): "metadata+0x810 = the guard",
        ("metadata", 4 * 517): "metadata+0x814",
    }
    assert {key: place[key[0]](0, key[1]) for key in named} == named
