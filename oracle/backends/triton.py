"""The Triton kernel as a backend: its PTX in the simulator, or `impl_triton.host` on CUDA tensors."""

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

import spec
from oracle import ptxsim
from oracle.artifacts import artifact, missing_compiler
from oracle.problem import Batch, Outputs

_WORD_BYTES = 4


class Triton:
    """One program a problem, all problems of a batch at once in the simulator."""

    name = "triton"
    devices = ("sim", "cuda")

    def unavailable(self, device: str) -> str | None:
        """Say whether the compiler, torch or its CUDA device is missing."""
        reason = missing_compiler("triton")
        if reason is None and device == "cuda":
            if importlib.util.find_spec("torch") is None:
                return "torch is not installed"
            import torch

            if not torch.cuda.is_available():
                return "torch sees no CUDA device"
        return reason

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        """Write what the kernel writes for every problem."""
        if device == "sim":
            _simulate(batch, outputs)
        else:
            _launch(batch, outputs)


def _simulate(batch: Batch, outputs: Outputs) -> None:
    compiled = artifact("triton", batch.ranges is not None, batch.renormalize)
    program = ptxsim.parse(compiled.ptx, compiled.entry)
    problems = len(batch)

    memory = ptxsim.Memory(launches=problems)
    logits = memory.add_rows("logits", batch.logits, batch.row_stride * _WORD_BYTES, dependent=True)
    bias = memory.add("bias", batch.bias, writable=False)
    ids = memory.add("ids", outputs.ids, writable=True)
    weights = memory.add("weights", outputs.weights, writable=True)
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
    if batch.ranges is not None:
        values["metadata"] = memory.add("metadata", outputs.metadata, writable=True).address
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


def _launch(batch: Batch, outputs: Outputs) -> None:
    import torch

    from impl_triton import host

    def upload(array: Any) -> Any:
        return torch.tensor(array, device="cuda")

    logits, bias, ids, weights = map(upload, (batch.logits, batch.bias, outputs.ids, outputs.weights))
    metadata = None
    if outputs.metadata is not None:
        # Each problem's buffer starts on 16 bytes, as the contract asks.
        problems, size = outputs.metadata.shape
        metadata = torch.empty((problems, -(-size // 4) * 4), dtype=torch.int32, device="cuda")[:, :size]
        metadata.copy_(torch.tensor(outputs.metadata))
    for place in range(len(batch)):
        rows = _with_stride(logits[place], int(batch.row_stride[place]))
        scale = float(batch.scale[place])
        arguments = (rows, bias[place], ids[place], weights[place], scale, batch.renormalize)
        if batch.ranges is None or metadata is None:
            host.route(*arguments)
        else:
            ranges = batch.ranges.offset[place], batch.ranges.count[place], batch.ranges.tile[place]
            host.route(*arguments, metadata[place], *map(int, ranges))
    outputs.ids[...] = ids.cpu().numpy()
    outputs.weights.view(np.int32)[...] = weights.view(torch.int32).cpu().numpy()
    if outputs.metadata is not None and metadata is not None:
        outputs.metadata[...] = metadata.cpu().numpy()


def _with_stride(rows: Any, stride: int) -> Any:
    """Return the rows as they lie in a wider buffer, with NaN between them."""
    if stride == rows.stride(0):
        return rows
    tokens, experts = rows.shape
    wide = rows.new_full(((tokens - 1) * stride + experts,), float("nan"))
    placed = wide.as_strided((tokens, experts), (stride, 1))
    placed.copy_(rows)
    return placed
