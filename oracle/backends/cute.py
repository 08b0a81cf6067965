"""The CuTe DSL kernel as a backend: its PTX in the simulator, or `impl_cute.host` on CUDA tensors."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from oracle import ptxsim
from oracle.artifacts import artifact, missing_compiler
from oracle.backends import on_cuda
from oracle.backends.simulated import launch, lay_out
from oracle.errors import CannotRunError
from oracle.problem import Batch, Outputs

_LINES: Final = "--generate-line-info"
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
    """One launch a problem; in the simulator all problems of a batch at once."""

    name = "cute"
    devices = ("sim", "cuda")

    def unavailable(self, device: str) -> str | None:
        """Say whether the compiler, torch or its CUDA device is missing."""
        reason = missing_compiler("cute")
        return on_cuda.missing_device() if reason is None and device == "cuda" else reason

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        """Write what the kernel writes for every problem."""
        if device == "sim":
            self.simulate(batch, outputs)
        else:
            from impl_cute import host

            on_cuda.route_each(host.route, batch, outputs)

    def simulate(
        self, batch: Batch, outputs: Outputs, schedule: int = 0, early_dependents: bool = False
    ) -> None:
        """Write what one variant writes in the simulator, in the order of threads of a schedule."""
        variant = batch.ranges is not None, batch.renormalize
        compiled = artifact("cute", *variant, early_dependents=early_dependents)
        program = ptxsim.parse(compiled.ptx, compiled.entry)
        memory, values = lay_out(batch, outputs)
        try:
            launch(compiled, program, memory, parameters(values), batch.tokens, schedule)
        except ptxsim.SimulationError as error:
            # The kernel that is launched is compiled without line information: find the line in its twin.
            with suppress(CannotRunError):
                traced = artifact("cute", *variant, options=_LINES, early_dependents=early_dependents)
                ptxsim.add_sources(error, program, ptxsim.parse(traced.ptx, traced.entry))
            raise


def parameters(values: Mapping[str, Any]) -> list[Any]:
    """Return each launch's parameters in the kernel's order, from arrays ``[L]`` by name."""
    return [values[name] for name in PARAMETERS if name in values]
