"""Kernels with planted faults on the buffers of routing, as the simulated backends lay them out."""

import numpy as np

from oracle import ptxsim
from oracle.backends.simulated import lay_out
from oracle.problem import Batch, Ranges

BUFFERS = ("logits", "bias", "ids", "weights", "metadata")
HEAD = f"""\
.version 8.8
.target sm_90a
.address_size 64
.visible .entry planted({", ".join(f".param .u64 {name}" for name in BUFFERS)})
{{
.reg .b32 %r<20>, %thread; .reg .b64 %rd<20>; .reg .pred %p<9>; .reg .f32 %f<9>;
.shared .align 1024 .b8 room[256];
.loc 1 10 5
mov.u32 %thread, %tid.x;
"""
THREADS = 64
WAIT = "griddepcontrol.wait;"
THIS_CELL = "mov.b32 %r1, room; mad.lo.u32 %r1, %thread, 4, %r1;"
"""%r1: the thread's own word of shared memory."""


def text_of(lines):
    """Return a kernel whose line k stands at PTX line 21 + 2 k, and comes from line 100 + k of a source."""
    head = HEAD + "\n" * (19 - HEAD.count("\n"))
    body = "".join(f".loc 1 {100 + k} 1\n{line}\n" for k, line in enumerate(lines))
    return f'{head}{body}ret;\n}}\n.file 1 "/anywhere/planted/kernel.py"\n'


def problems(count=2, tokens=4, tile=5):
    """Problems whose rows lie 1040 bytes apart."""
    draw = np.random.default_rng(0)
    numbers = (np.full(count, number, np.int32) for number in (0, 256, tile))
    return Batch(
        "by-hand",
        draw.standard_normal((count, tokens, 256)).astype(np.float32),
        np.zeros((count, 256), np.float32),
        np.ones(count, np.float32),
        True,
        np.full(count, 260, np.int64),
        Ranges(*numbers),
    )


def simulate(lines, batch, outputs, schedule=0, **keywords):
    """Run a kernel on problems."""
    memory, values = lay_out(batch, outputs)
    program = ptxsim.parse(text_of(lines))
    params = [values[name] for name in BUFFERS]
    ptxsim.launch(program, memory, params, THREADS, schedule=schedule, **keywords)
