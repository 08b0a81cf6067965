"""The Triton kernel as a backend: its PTX in the simulator, or `impl_triton.host` on CUDA tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import spec
from oracle import ptxsim
from oracle.artifacts import artifact, missing_compiler
from oracle.backends import on_cuda
from oracle.backends.simulated import launch, lay_out
from oracle.problem import Batch, Outputs


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
            self.simulate(batch, outputs)
        else:
            from impl_triton import host

            on_cuda.route_each(host.route, batch, outputs)

    def simulate(
        self, batch: Batch, outputs: Outputs, schedule: int = 0, early_dependents: bool = False
    ) -> None:
        """Write what one variant writes in the simulator, in the order of threads of a schedule."""
        variant = batch.ranges is not None, batch.renormalize
        compiled = artifact("triton", *variant, early_dependents=early_dependents)
        program = ptxsim.parse(compiled.ptx, compiled.entry)
        memory, values = lay_out(batch, outputs)
        params = parameters(values)
        # Triton appends pointers to scratch memory; this kernel uses none.
        params += [np.zeros(len(batch), np.uint64)] * (len(program.params) - len(params))
        launch(compiled, program, memory, params, batch.tokens, schedule)


def parameters(values: Mapping[str, Any]) -> list[Any]:
    """Return each launch's parameters in the kernel's order, from arrays ``[L]`` by name."""
    names = ("logits", "bias", "ids", "weights", "metadata", "tokens")
    made = [values[name] for name in names if name in values]
    made.append(values["row_stride"] // spec.ROW_STRIDE_MULTIPLE)
    return made + [values[name] for name in ("scale", "offset", "count", "tile")]
