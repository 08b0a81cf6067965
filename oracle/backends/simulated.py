"""A batch in the simulator's memory, as our two kernels take it, and the names of elements in messages."""

from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

import spec
from oracle import ptxsim
from oracle.artifacts import Compiled
from oracle.backends import Backend
from oracle.problem import Batch, Outputs
from spec.constants import NUM_EXPERTS, TOP_K

WORD_BYTES: Final = 4


@runtime_checkable
class Simulated(Backend, Protocol):
    """A backend whose threads the simulator can run in another order."""

    def simulate(self, batch: Batch, outputs: Outputs, schedule: int) -> None:
        """Do what `run` does on ``sim``, in the order of threads of a schedule (`oracle.ptxsim.launch`)."""


def lay_out(batch: Batch, outputs: Outputs) -> tuple[ptxsim.Memory, dict[str, Any]]:
    """Return the memory of a batch's launches, and the kernels' parameters by name, ``[L]`` each."""
    problems = len(batch)
    memory = ptxsim.Memory(launches=problems)
    names = _Names(batch)
    logits = memory.add_rows(
        "logits", batch.logits, batch.row_stride * WORD_BYTES, dependent=True, name_at=names.logits
    )
    bias = memory.add("bias", batch.bias, name_at=names.bias)
    ids, weights = (
        memory.add(name, array, writable=True, address_offset=WORD_BYTES * shift, name_at=name_at)
        for name, array, shift, name_at in zip(
            ("ids", "weights"),
            (outputs.ids, outputs.weights),
            batch.shift,
            (names.ids, names.weights),
            strict=True,
        )
    )
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
        metadata = memory.add("metadata", outputs.metadata, writable=True, name_at=names.metadata)
        values["metadata"] = metadata.address
        values |= {"offset": batch.ranges.offset, "count": batch.ranges.count, "tile": batch.ranges.tile}
    return memory, values


def launch(
    compiled: Compiled,
    program: ptxsim.Program,
    memory: ptxsim.Memory,
    params: list[Any],
    tokens: int,
    schedule: int,
) -> None:
    """Launch a compiled kernel in the simulator, as it is launched on a card: so many threads and CTAs."""
    ptxsim.launch(
        program,
        memory,
        params,
        block=compiled.threads,
        grid=compiled.grid(tokens),
        cluster=compiled.cluster_ctas(tokens),
        dynamic_shared=compiled.dynamic_shared,
        schedule=schedule,
    )


class _Names:
    """Names the element that a byte of a launch's buffer belongs to; empty outside of all."""

    def __init__(self, batch: Batch) -> None:
        self._tokens = batch.tokens
        self._strides = batch.row_stride * WORD_BYTES
        self._ranges = batch.ranges

    def logits(self, launch: int, offset: int) -> str:
        stride = int(self._strides[launch])
        row, within = divmod(offset, stride) if stride else (0, offset)
        inside = 0 <= row < self._tokens and 0 <= within < NUM_EXPERTS * WORD_BYTES
        return _element("logits", within, f"{row},") if inside else ""

    def bias(self, launch: int, offset: int) -> str:
        return _element("bias", offset) if 0 <= offset < NUM_EXPERTS * WORD_BYTES else ""

    def ids(self, launch: int, offset: int) -> str:
        return self._pick("ids", offset)

    def weights(self, launch: int, offset: int) -> str:
        return self._pick("weights", offset)

    def _pick(self, name: str, offset: int) -> str:
        row, within = divmod(offset, TOP_K * WORD_BYTES)
        return _element(name, within, f"{row},") if 0 <= row < self._tokens else ""

    def metadata(self, launch: int, offset: int) -> str:
        assert self._ranges is not None
        size = spec.metadata_size(int(self._ranges.tile[launch]))
        if not 0 <= offset < size * WORD_BYTES:
            return ""
        if offset >= (size - 1) * WORD_BYTES:
            return "the guard"
        field = next(field for field in reversed(spec.FIELDS) if field.offset * WORD_BYTES <= offset)
        return _element(field.name, offset - field.offset * WORD_BYTES)


def _element(name: str, offset: int, row: str = "") -> str:
    element, byte = divmod(offset, WORD_BYTES)
    return f"{name}[{row}{element}]" + (f" byte {byte}" if byte else "")
