"""The Triton kernel as a backend: its PTX in the simulator, or `impl_triton.host` on CUDA tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import spec
from oracle import ptxsim
from oracle.artifacts import artifact, missing_compiler
from oracle.backends import on_cuda
from oracle.problem import Batch, Outputs

_WORD_BYTES = 4


class Triton:
    """One program a problem, all problems of a batch at once in the simulator."""

    name = "triton"
    devices = ("sim", "cuda")

    def unavailable(self, device: str) -> str | None:
        """Say whether the compiler, torch or its CUDA device is missing."""
        reason = missing_compiler("triton")
        return on_cuda.missing_device() if reason is None and device == "cuda" else reason

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        """Write what the kernel writes for every problem."""
        if device == "sim":
            _simulate(batch, outputs)
        else:
            from impl_triton import host

            on_cuda.route_each(host.route, batch, outputs)


def _simulate(batch: Batch, outputs: Outputs) -> None:
    compiled = artifact("triton", batch.ranges is not None, batch.renormalize)
    program = ptxsim.parse(compiled.ptx, compiled.entry)
    problems = len(batch)

    memory = ptxsim.Memory(launches=problems)
    # Ids and weights lie where the contract just allows it, so that relying on more shows.
    strides = batch.row_stride * _WORD_BYTES
    logits = memory.add_rows("logits", batch.logits, strides, dependent=True)
    bias = memory.add("bias", batch.bias, writable=False)
    ids = memory.add("ids", outputs.ids, writable=True, address_offset=_WORD_BYTES)
    weights = memory.add("weights", outputs.weights, writable=True, address_offset=_WORD_BYTES)
    none = np.zeros(problems, np.int32)
    values: dict[str, Any] = {
        "logits": logits.address,
        "row_stride": batch.row_stride,
        "tokens": np.full(problems, batch.tokens, np.int32),
        "bias": bias.address,
        "ids": ids.address,
        "weights": weights.address,
        "scale": batch.scale,
        "offset": none,
        "count": none,
        "tile": none,
    }
    if batch.ranges is not None and outputs.metadata is not None:
        metadata = memory.add("metadata", outputs.metadata, writable=True)
        values["metadata"] = metadata.address
        values |= {"offset": batch.ranges.offset, "count": batch.ranges.count, "tile": batch.ranges.tile}
    params = parameters(values)
    # Triton appends pointers to scratch memory; this kernel uses none.
    params += [np.zeros(problems, np.uint64)] * (len(program.params) - len(params))
    ptxsim.launch(program, memory, params, block=compiled.threads, dynamic_shared=compiled.dynamic_shared)


def parameters(values: Mapping[str, Any]) -> list[Any]:
    """Return each launch's parameters in the kernel's order, from arrays ``[L]`` by name."""
    names = ("logits", "bias", "ids", "weights", "metadata", "tokens")
    made = [values[name] for name in names if name in values]
    made.append(values["row_stride"] // spec.ROW_STRIDE_MULTIPLE)
    return made + [values[name] for name in ("scale", "offset", "count", "tile")]
