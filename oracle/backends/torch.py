"""The eager formula in torch: a third opinion on ids and weights, where it is exact (`PERMITTED`)."""

import importlib.util
from typing import Any

import numpy as np

from oracle.problem import Batch, Outputs
from spec.constants import SUM_EPSILON, TOP_K


class Torch:
    """sigmoid, add, topk, gather, sum, div, mul."""

    name = "torch"
    devices = ("cpu", "cuda")

    def unavailable(self, device: str) -> str | None:
        """Say whether torch, or its CUDA device, is missing."""
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        if device == "cuda":
            import torch

            if not torch.cuda.is_available():
                return "torch sees no CUDA device"
        return None

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        """Write ids and weights of every problem; the formula has no metadata."""
        import torch

        def tensor(array: Any) -> Any:
            return torch.from_numpy(array).to(device)

        scores = torch.sigmoid(tensor(batch.logits))
        keys = scores + tensor(batch.bias)[:, None, :]
        ids = torch.topk(keys, TOP_K, dim=-1).indices
        picked = torch.gather(scores, -1, ids)
        factor = tensor(batch.scale)[:, None, None]
        if batch.renormalize:
            factor = factor / (picked.sum(dim=-1, keepdim=True) + SUM_EPSILON)
        outputs.ids[...] = ids.to(torch.int32).cpu().numpy()
        outputs.weights.view(np.int32)[...] = (picked * factor).cpu().numpy().view(np.int32)
