"""FlashInfer's ``routingIndicesDynBlockKernel`` as two backends: fed the right ids, or fed logits.

A caller of it allocates each metadata field by itself. So does this adapter, with poison in each, and then
lays the fields side by side as our buffer has them; what the kernel left alone stays poison.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import spec
from oracle.peers import build, find
from oracle.peers.flashinfer import CALL, THREADS, driver, dynamic_shared
from oracle.problem import POISON_WORD, Batch, Outputs, Ranges

Array = npt.NDArray[Any]

_POISON_HALF: Final = POISON_WORD & 0xFFFF
INPUTS: Final = ("ids", "logits", "bias")
_FIELDS: Final = tuple(
    (field, following.offset - field.offset)
    for field, following in zip(spec.FIELDS, spec.FIELDS[1:], strict=False)
    if field.clause != "M8"
)
"""Every field but the last, and the elements it has room for."""


class _Flashinfer:
    """The kernel with one kind of input."""

    name: str
    devices = ("sim", "cuda")
    _from_logits: bool

    def unavailable(self, device: str) -> str | None:
        """Say what is missing: the prepared files, or a card that they are built for."""
        reason = find.missing("flashinfer")
        if reason is None and device == "cuda":
            reason = _no_card()
        return reason

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        """Write the metadata (M1-M8) where the batch has any; from logits also ids and its own weights."""
        buffers = allocate(batch, outputs, self._from_logits)
        if device == "sim":
            _simulate(batch, buffers)
        else:
            _launch(batch, buffers)
        if self._from_logits:
            outputs.ids[...] = buffers["replay"]
            outputs.weights.view(np.int32)[...] = buffers["weights"].view(np.int32)
        if outputs.metadata is not None:
            assemble(buffers, outputs.metadata)


class Flashinfer(_Flashinfer):
    """Fed the specification's ids: writes metadata only."""

    name = "flashinfer"
    _from_logits = False


class FlashinferLogits(_Flashinfer):
    """Fed logits and bias: picks by its own sigmoid and reports its picks."""

    name = "flashinfer-logits"
    _from_logits = True


def allocate(batch: Batch, outputs: Outputs, from_logits: bool) -> dict[str, Array]:
    """Return the kernel's buffers, ``[L, ...]`` by their names in `CALL`: inputs filled, outputs poisoned.

    The last field takes the elements that our buffer has for it, its guard included. A batch without metadata
    gets fields for tile 8: the kernel always writes them.
    """
    length = len(batch)
    size = spec.metadata_size(8) if outputs.metadata is None else outputs.metadata.shape[1]
    room = {field.name: elements for field, elements in _FIELDS}
    room[spec.FIELDS[-1].name] = size - spec.FIELDS[-1].offset
    buffers: dict[str, Array] = {
        name: np.full((length, elements), POISON_WORD, np.int32) for name, elements in room.items()
    }
    if from_logits:
        shape = (length, batch.tokens, spec.TOP_K)
        buffers["logits"] = np.ascontiguousarray(batch.logits)
        buffers["bias"] = np.ascontiguousarray(batch.bias)
        buffers["replay"] = np.full(shape, _POISON_HALF, np.int16)
        buffers["weights"] = np.full(shape, POISON_WORD, np.int32).view(np.float32)
    else:
        buffers["ids"], _ = spec.route(batch.logits, batch.bias, batch.scale, batch.renormalize)
    return buffers


def assemble(buffers: dict[str, Array], metadata: npt.NDArray[np.int32]) -> None:
    """Lay the fields into our buffers, int32 ``[L, n]``, word for word."""
    for field in spec.FIELDS:
        if field.name in buffers:
            words = buffers[field.name]
            metadata[:, field.offset : field.offset + words.shape[1]] = words


@dataclass(frozen=True)
class Addresses:
    """Where each launch finds each buffer: uint64 ``[L]`` by name."""

    of: dict[str, npt.NDArray[np.uint64]]

    def calls(self, batch: Batch) -> npt.NDArray[np.void]:
        """Return the launches' arguments, `CALL` ``[L]``."""
        calls = np.zeros(len(batch), CALL)
        for name, address in self.of.items():
            calls[name] = address
        whole = np.full(len(batch), spec.NUM_EXPERTS, np.int32)
        ranges = batch.ranges or Ranges(np.zeros_like(whole), whole, np.full_like(whole, 8))
        calls["tokens"] = batch.tokens
        calls["tile"], calls["offset"], calls["count"] = ranges.tile, ranges.offset, ranges.count
        calls["scale"] = batch.scale
        calls["epsilon"] = spec.SUM_EPSILON
        return calls


def _simulate(batch: Batch, buffers: dict[str, Array]) -> None:
    from oracle import ptxsim

    kernel = driver()
    program = _program()
    memory = ptxsim.Memory(launches=len(batch))
    placed = {}
    for name, array in buffers.items():
        given = name in INPUTS
        placed[name] = memory.add(name, array, writable=not given, dependent=given and name != "bias").address
    parameters = kernel.pack(Addresses(placed).calls(batch))
    ptxsim.launch(program, memory, [parameters], block=THREADS, dynamic_shared=dynamic_shared(batch.tokens))


@lru_cache(maxsize=1)
def _program() -> Any:
    from oracle import ptxsim

    return ptxsim.parse(driver().ptx, driver().entry)


def _launch(batch: Batch, buffers: dict[str, Array]) -> None:
    import torch

    tensors, placed = {}, {}
    for name, array in buffers.items():
        tensors[name] = torch.from_numpy(array).cuda()
        step = np.uint64(array[0].nbytes)
        placed[name] = np.uint64(tensors[name].data_ptr()) + np.arange(len(array), dtype=np.uint64) * step
    driver().launch(Addresses(placed).calls(batch), torch.cuda.current_stream().cuda_stream)
    for name, array in buffers.items():
        if name not in INPUTS:
            array[...] = tensors[name].cpu().numpy()


def _no_card() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    capability = "sm_{}{}a".format(*torch.cuda.get_device_capability())
    if capability != build.ARCH:
        return f"FlashInfer's kernel is built for {build.ARCH}, and this card is {capability}"
    return None
