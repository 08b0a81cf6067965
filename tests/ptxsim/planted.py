"""Kernels with planted faults: how to start one, and how to get its error."""

import numpy as np
import pytest

from oracle import ptxsim

HEADER = ".version 8.8\n.target sm_90a\n.address_size 64\n"
SHARED = ".shared .align 16 .b8 room[256];\n"


def start(body, *, threads=64, launches=3, params=(), buffers=(), **keywords):
    """Run a kernel whose parameters are the addresses of ``buffers``, then ``params`` (all 64 bits)."""
    names = [name for name, *_ in buffers] + [f"p{k}" for k in range(len(params))]
    text = f"{HEADER}.visible .entry kernel({', '.join(f'.param .u64 {n}' for n in names)})\n{{\n"
    text += ".reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<9>; .reg .f32 %f<5>;\n"
    text += "mov.u32 %r0, %tid.x;\n" + body + "\nret;\n}\n"
    memory = ptxsim.Memory(launches)
    values = [memory.add(name, array, **options).address for name, array, options in buffers]
    values += [np.full(launches, value, np.uint64) for value in params]
    return ptxsim.launch(ptxsim.parse(text), memory, values, threads, **keywords)


def fault(body, **options):
    """Return the SimulationError that a kernel ends with."""
    with pytest.raises(ptxsim.SimulationError) as caught:
        start(body, **options)
    error = caught.value
    assert error.kind in ptxsim.ERROR_KINDS
    assert error.kind in str(error)
    assert f"PTX line {error.line}: {error.text}" in str(error)
    assert f"thread {error.thread}" in str(error)
    return error


def words(count=64, launches=3):
    return np.arange(launches * count, dtype=np.uint32).reshape(launches, count)


INPUT = [("table", words(), {})]
OUTPUT = [("result", words(), {"writable": True})]
AT = "ld.param.u64 %rd0, [{0}]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd0, %rd0, %rd1;\n"
