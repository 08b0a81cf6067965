"""The simulator against silicon: every instruction form, and random programs of them, bit for bit.

Without a card the same kernels run in the simulator alone, in two legal orders that must agree.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from oracle.card import silicon, values

SNIPPETS = silicon.form_snippets()
GROUPS = sorted({silicon.group(name) for name in SNIPPETS})
DEVICES = ["sim", pytest.param("cuda", marks=pytest.mark.card)]
PROGRAMS = 240
BATCH = 12


def ours(name):
    return {form: snippet for form, snippet in SNIPPETS.items() if silicon.group(form) == name}


def compare(snippets, device, seed):
    """Return what differs between the simulator's results and the card's, or between two of the simulator."""
    on_card = silicon.OnCard(list(snippets.values())) if device == "cuda" else None
    found = []
    for number, (name, snippet) in enumerate(snippets.items()):
        operands = values.make(snippet, silicon.LAUNCHES, seed + number)
        blob = silicon.blob_of(seed + number)
        simulated = silicon.simulate(snippet, operands, blob)
        other = (
            on_card.run(snippet, operands, blob) if on_card else silicon.simulate(snippet, operands, blob, 5)
        )
        assert simulated.any(), f"{name} leaves nothing but zeros"
        found += silicon.differences(name, snippet, operands, simulated, other)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("group", GROUPS)
def test_every_form_gives_the_same_bits(group, device):
    found = compare(ours(group), device, seed=sum(group.encode()))
    assert not found, "\n".join(found[:40])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_random_programs_give_the_same_bits(first, device):
    programs = {f"program {seed}": silicon.program(seed) for seed in range(first, first + BATCH)}
    found = compare(programs, device, seed=first)
    assert not found, "\n".join(found[:40])


def test_every_form_of_the_simulator_has_a_kernel_or_a_reason():
    reasons = {name: silicon.absent(name) for name in silicon.ptxsim.forms() if name not in SNIPPETS}
    assert all(reasons.values())
    assert len(SNIPPETS) > 20 * len(reasons)


def test_every_kernel_is_legal_for_sm_90(tmp_path):
    import triton

    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    source = tmp_path / "all.ptx"
    made = [*SNIPPETS.values(), *(silicon.program(seed) for seed in range(PROGRAMS))]
    source.write_text(silicon.HEADER + "\n".join(snippet.ptx for snippet in made))
    line = [assembler, "-arch=sm_90a", source, "-o", tmp_path / "all.cubin"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


def test_random_programs_use_most_forms_of_plain_values():
    text = "\n".join(silicon.program(seed).ptx for seed in range(PROGRAMS))
    used = sum(f"{name} " in text for name in silicon.program_forms())
    assert used > 0.9 * len(silicon.program_forms())


def test_operands_reach_the_borders():
    snippet = SNIPPETS["add.s32"]
    operands = values.make(snippet, 4, 0).reshape(4, 2, silicon.THREADS, silicon.SLOT).view(np.uint32)[..., 0]
    for border in (0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF):
        assert (operands == border).any(), hex(border)
