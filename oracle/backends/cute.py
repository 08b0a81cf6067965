"""The CuTe DSL kernel as a backend: its PTX in the simulator, or `impl_cute.host` on CUDA tensors."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from oracle import ptxsim
from oracle.artifacts import artifact, missing_compiler
from oracle.backends import on_cuda
from oracle.problem import Batch, Outputs

_WORD_BYTES: Final = 4
PARAMETERS: Final = {
    "logits": 8,
    "row_stride": 8,
    "bias": 8,
    "ids": 8,
    "weights": 8,
    "tokens": 4,
    "scale": 4,
    "metadata": 8,
    "offset": 4,
    "count": 4,
    "tile": 4,
}
"""The kernel's parameters in order, and their sizes in bytes; without metadata there is no ``metadata``."""


class Cute:
    """One CTA a problem; in the simulator all problems of a batch at once."""

    name = "cute"
    devices = ("sim", "cuda")

    def unavailable(self, device: str) -> str | None:
        """Say whether the compiler, torch or its CUDA device is missing."""
        reason = missing_compiler("cute")
        return on_cuda.missing_device() if reason is None and device == "cuda" else reason

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        """Write what the kernel writes for every problem."""
        if device == "sim":
            _simulate(batch, outputs)
        else:
            from impl_cute import host

            on_cuda.route_each(host.route, batch, outputs)


def _simulate(batch: Batch, outputs: Outputs) -> None:
    compiled = artifact("cute", batch.ranges is not None, batch.renormalize)
    program = ptxsim.parse(compiled.ptx, compiled.entry)
    problems = len(batch)
    memory = ptxsim.Memory(launches=problems)
    # Ids and weights lie where the contract just allows it, so that relying on more shows.
    strides = batch.row_stride * _WORD_BYTES
    logits = memory.add_rows("logits", batch.logits, strides, dependent=True)
    bias = memory.add("bias", batch.bias, writable=False)
    ids = memory.add("ids", outputs.ids, writable=True, address_offset=_WORD_BYTES)
    weights = memory.add("weights", outputs.weights, writable=True, address_offset=_WORD_BYTES)
    nothing = np.zeros(problems, np.int32)
    values: dict[str, Any] = {
        "logits": logits.address,
        "row_stride": batch.row_stride,
        "tokens": np.full(problems, batch.tokens, np.int32),
        "bias": bias.address,
        "ids": ids.address,
        "weights": weights.address,
        "scale": batch.scale,
        "offset": nothing,
        "count": nothing,
        "tile": nothing,
    }
    if batch.ranges is not None and outputs.metadata is not None:
        metadata = memory.add("metadata", outputs.metadata, writable=True)
        values["metadata"] = metadata.address
        values |= {"offset": batch.ranges.offset, "count": batch.ranges.count, "tile": batch.ranges.tile}
    ptxsim.launch(
        program, memory, parameters(values), block=compiled.threads, dynamic_shared=compiled.dynamic_shared
    )


def parameters(values: Mapping[str, Any]) -> list[Any]:
    """Return each launch's parameters in the kernel's order, from arrays ``[L]`` by name."""
    return [values[name] for name in PARAMETERS if name in values]
