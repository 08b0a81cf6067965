"""vLLM's ``fused_musespark1x_routing`` as a backend: ids and renormalized weights (`oracle.peers.vllm`)."""

import importlib.util
from functools import lru_cache
from typing import Any

import numpy as np

import spec
from oracle.peers import find, vllm
from oracle.problem import F32, Batch, Outputs


class Vllm:
    """The published Triton kernel: one program a token, no metadata.

    Rows lie one after the other: its row stride is a 32-bit number, and not what it is asked about.
    """

    name = "vllm"
    devices = ("sim", "cuda")

    def unavailable(self, device: str) -> str | None:
        """Say what is missing: the kernel's file, Triton, or a CUDA device."""
        for package in ("triton", "torch") if device == "cuda" else ("triton",):
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed"
        reason = find.missing("vllm")
        if reason is None and device == "cuda":
            import torch

            if not torch.cuda.is_available():
                return "torch sees no CUDA device"
        return reason

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        """Write ids and weights of every problem (R1-R6)."""
        if not batch.renormalize:
            raise ValueError("vLLM's kernel always renormalizes")
        if device == "sim":
            _simulate(batch, outputs)
        else:
            _launch(batch, outputs)


def _simulate(batch: Batch, outputs: Outputs) -> None:
    from oracle import ptxsim

    kernel = vllm.kernel()
    program = _program()
    memory = ptxsim.Memory(launches=len(batch))
    addresses: dict[str, Any] = {
        "gating_output_ptr": memory.add("logits", _rows(batch), writable=False, dependent=True),
        "bias_ptr": memory.add("bias", np.ascontiguousarray(batch.bias), writable=False),
        "topk_weights_ptr": memory.add("weights", outputs.weights, writable=True),
        "topk_ids_ptr": memory.add("ids", outputs.ids, writable=True),
    }
    numbers: dict[str, Any] = {
        "is_padding_stride": np.int32(0),
        "num_tokens": np.int32(batch.tokens),
        "num_experts": np.int32(spec.NUM_EXPERTS),
        "stride_gm": np.int32(spec.NUM_EXPERTS),
        "stride_wm": np.int32(spec.TOP_K),
        "stride_im": np.int32(spec.TOP_K),
        "router_output_multiplier": np.float32(1.0),
        "route_scale": batch.scale,
        "division_eps": np.float32(spec.SUM_EPSILON),
    }
    values = {name: buffer.address for name, buffer in addresses.items()} | numbers
    arguments = [values[name] for name in kernel.arguments]
    # Triton's pointers to scratch memory, of which this kernel uses none.
    arguments += [np.uint64(0)] * (len(program.params) - len(arguments))
    params = [np.ascontiguousarray(np.broadcast_to(value, len(batch))) for value in arguments]
    ptxsim.launch(
        program, memory, params, block=kernel.threads, dynamic_shared=kernel.shared, grid=batch.tokens
    )


@lru_cache(maxsize=1)
def _program() -> Any:
    from oracle import ptxsim

    return ptxsim.parse(vllm.kernel().ptx, vllm.kernel().entry)


def _launch(batch: Batch, outputs: Outputs) -> None:
    import torch

    route = vllm.load(torch=True).fused_musespark1x_routing
    logits, bias = torch.from_numpy(_rows(batch)).cuda(), torch.from_numpy(batch.bias).cuda()
    ids, weights = torch.from_numpy(outputs.ids).cuda(), torch.from_numpy(outputs.weights).cuda()
    for place, scale in enumerate(batch.scale):
        route(
            logits[place],
            bias[place],
            spec.TOP_K,
            float(scale),
            router_score_division_eps=spec.SUM_EPSILON,
            topk_weights=weights[place],
            topk_ids=ids[place],
        )
    outputs.ids[...] = ids.cpu().numpy()
    outputs.weights.view(np.int32)[...] = weights.view(torch.int32).cpu().numpy()


def _rows(batch: Batch) -> F32:
    return np.ascontiguousarray(batch.logits)
