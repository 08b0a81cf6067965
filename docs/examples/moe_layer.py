"""One rank's MoE layer around the routing: what reads which field; prepared, compiled, and captured.

Its grouped GEMMs are plain torch, and of one shape whatever is routed, as a captured graph needs them.
"""

from functools import partial

import torch
from torch import nn

import musespark_routing as routing

HIDDEN, INNER, EXPERTS, TOP_K, TILE, SCALE = 64, 32, 256, 8, 8, 2.5
close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)  # sums in another order


class MoeLayer(nn.Module):
    """The experts ``offset .. offset + count - 1`` of 256; the ranks' results add up to the layer's."""

    def __init__(
        self, gate: nn.Linear, bias: torch.Tensor, up: torch.Tensor, down: torch.Tensor, offset: int
    ):
        super().__init__()
        self.gate, self.offset, self.count = gate, offset, len(up)
        self.register_buffer("bias", bias)  # written once, at load: kernels read it before they wait
        self.register_buffer("up", up)
        self.register_buffer("down", down)
        # One buffer for all steps: it is never cleared, and what a step does not write nobody reads.
        size = routing.metadata_size(TILE)
        self.register_buffer("metadata", torch.empty(size, dtype=torch.int32, device=bias.device))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what this rank's experts add for the tokens ``[b, HIDDEN]``."""
        tokens = hidden.shape[0]
        ids = torch.empty(tokens, TOP_K, dtype=torch.int32, device=hidden.device)
        weights = torch.empty(tokens, TOP_K, device=hidden.device)
        torch.ops.musespark_routing.route(
            self.gate(hidden), self.bias, ids, weights, SCALE, metadata=self.metadata,
            local_expert_offset=self.offset, num_local_experts=self.count, tile_n=TILE,
        )  # fmt: skip
        return self.finalize(self.grouped_gemms(hidden), weights)

    def grouped_gemms(self, hidden: torch.Tensor) -> torch.Tensor:
        """Run both GEMMs over as many CTAs as there can be; row r of the result is permuted row r."""
        rows = torch.arange(hidden.shape[0] * TOP_K * TILE, device=hidden.device)
        cta = rows // TILE
        live = cta < self.metadata[routing.META_NUM_CTAS]  # the other CTAs exit
        live &= rows < self.metadata[routing.META_CTA_LIMIT + cta]  # the other rows are padding
        expert = torch.where(live, self.metadata[routing.META_CTA_BATCH + cta], 0)
        token = torch.where(live, self.metadata[routing.META_PERMUTED_TO_TOKEN + rows], 0)
        inner = torch.einsum("rh,rhi->ri", hidden[token], self.up[expert])  # the first gathers its rows
        return torch.einsum("ri,rih->rh", nn.functional.silu(inner), self.down[expert])

    def finalize(self, permuted: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return each token's weighted sum over those of its experts that are here."""
        first = routing.META_EXPANDED_TO_PERMUTED
        place = self.metadata[first : first + weights.numel()].view_as(weights)
        local = place >= 0  # -1: that expert is another rank's
        return (permuted[torch.where(local, place, 0)] * (weights * local)[..., None]).sum(1)


def every_expert(layers: list[MoeLayer], hidden: torch.Tensor) -> torch.Tensor:
    """Send each token through each of its experts, one by one: the layer without metadata."""
    up, down = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("up", "down"))
    ids = torch.empty(len(hidden), TOP_K, dtype=torch.int32, device=hidden.device)
    weights = torch.empty(len(hidden), TOP_K, device=hidden.device)
    routing.route(layers[0].gate(hidden), layers[0].bias, ids, weights, SCALE)
    inner = torch.einsum("th,tkhi->tki", hidden, up[ids])
    return torch.einsum("tki,tkih,tk->th", nn.functional.silu(inner), down[ids], weights)


@torch.no_grad()
def main() -> None:
    """Hold two ranks to every expert for b of 1 to 8: eager, compiled and, on a card, captured."""
    device = "cpu" if routing.backend == "spec" else "cuda"
    torch.manual_seed(1)
    gate = nn.Linear(HIDDEN, EXPERTS, bias=False, device=device)
    bias = torch.randn(EXPERTS, device=device) * 0.1
    up, down = (
        torch.randn(EXPERTS, *shape, device=device) / 8 for shape in ((HIDDEN, INNER), (INNER, HIDDEN))
    )
    ranks = [MoeLayer(gate, bias, up[at : at + 128], down[at : at + 128], at) for at in (0, 128)]

    routing.prepare()  # before the first step and before any capture, on every device that routes
    backend = "aot_eager" if device == "cpu" else "inductor"
    compiled = [torch.compile(rank, backend=backend, fullgraph=True) for rank in ranks]
    for tokens in range(1, 9):
        hidden = torch.randn(tokens, HIDDEN, device=device)
        right = every_expert(ranks, hidden)
        for layers in (ranks, compiled):
            close(sum(layer(hidden) for layer in layers), right)

    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = sum(layer(hidden) for layer in ranks)
        for _ in range(3):
            hidden.copy_(torch.randn_like(hidden))
            graph.replay()
            close(result, every_expert(ranks, hidden))
    print(f"{routing.backend} on {device}: two ranks add up to every expert")


if __name__ == "__main__":
    main()
