"""A model compiled around the operator: every b, and CUDA graphs, torch.compile's and a caller's."""

import importlib
import os
import sys

import numpy as np
import torch
from torch import nn

import spec
from spec import torch_operator

os.environ["MUSESPARK_ROUTING_BACKEND"] = sys.argv[1]
routing = importlib.import_module("musespark_routing")
DEVICE = "cuda"
TILE, OFFSET, COUNT, SCALE = 24, 32, 128, 2.5
calls = 0


class Router(nn.Module):
    """A router GEMM, the operator, and kernels that read what it wrote."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(64, 256, bias=False)
        self.register_buffer("bias", torch.randn(256) * 0.1)

    def forward(self, hidden):
        logits = self.gate(hidden)
        ids = torch.empty(hidden.shape[0], 8, dtype=torch.int32, device=hidden.device)
        weights = torch.empty(hidden.shape[0], 8, device=hidden.device)
        metadata = torch.empty(routing.metadata_size(TILE), dtype=torch.int32, device=hidden.device)
        torch.ops.musespark_routing.route(
            logits, self.bias, ids, weights, SCALE, True, metadata, OFFSET, COUNT, TILE
        )
        return logits, ids, weights, metadata, ids + 1, weights * 2, metadata[:2] + 3


def check(model, results):
    """Hold what a model returned to the specification of the logits that it returned."""
    logits, ids, weights, metadata, *read = (each.cpu().numpy() for each in results)
    want_ids, want_weights = spec.route(logits, model.bias.cpu().numpy(), SCALE)
    want_metadata = metadata.copy()
    spec.write_metadata(want_metadata, want_ids, OFFSET, COUNT, TILE)
    assert (ids == want_ids).all()
    assert (weights.view(np.int32) == want_weights.view(np.int32)).all()
    assert (metadata == want_metadata).all()
    for got, want in zip(read, (ids + 1, weights * np.float32(2), metadata[:2] + 3), strict=True):
        assert (got == want).all()


def count_calls():
    """Have the operator count the calls of `route`: a replay of a graph makes none."""
    route = torch_operator._offered.route

    def counted(*arguments):
        global calls
        calls += 1
        route(*arguments)

    torch_operator._offered.route = counted


torch.manual_seed(5)
routing.prepare()
count_calls()
model = Router().to(DEVICE)
for tile in (0, TILE):
    sample = torch.randn(3, 256, device=DEVICE), model.bias
    sample += torch.empty(3, 8, dtype=torch.int32, device=DEVICE), torch.empty(3, 8, device=DEVICE), SCALE
    if tile:
        size = routing.metadata_size(tile)
        sample += True, torch.zeros(size, dtype=torch.int32, device=DEVICE), OFFSET, COUNT, tile
    torch.library.opcheck(torch.ops.musespark_routing.route.default, sample)

with torch.no_grad():
    compiled = torch.compile(model, fullgraph=True)
    for b in range(1, 9):
        check(model, model(torch.randn(b, 64, device=DEVICE)))
        check(model, compiled(torch.randn(b, 64, device=DEVICE)))

    torch._dynamo.reset()
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True, dynamic=False)
    for b in (1, 5, 8):
        for run in range(6):
            before = calls
            torch.compiler.cudagraph_mark_step_begin()
            check(model, compiled(torch.randn(b, 64, device=DEVICE)))
            # The first runs compile, warm up and capture; then the graph is replayed.
            assert run < 3 or calls == before, (b, run)

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    hidden = torch.randn(8, 64, device=DEVICE)
    compiled(hidden)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = compiled(hidden)
    for _ in range(3):
        hidden.copy_(torch.randn(8, 64, device=DEVICE))
        before = calls
        graph.replay()
        check(model, results)
        assert calls == before
print("right in both kinds of graph")
