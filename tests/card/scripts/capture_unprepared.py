"""A capture before prepare: every way to compile raises, the graph stays empty, and the process goes on."""

import importlib
import sys

import numpy as np
import pytest
import torch

import spec

backend = sys.argv[1]
host = importlib.import_module(f"impl_{backend}.host")
random = np.random.default_rng(8)
values = random.standard_normal((3, 256), np.float32)
logits, bias = torch.from_numpy(values).cuda(), torch.zeros(256, device="cuda")
ids = torch.full((3, 8), -7, dtype=torch.int32, device="cuda")
weights = torch.empty(3, 8, device="cuda")
metadata = torch.empty(spec.metadata_size(8), dtype=torch.int32, device="cuda")
attempts = {
    "route": lambda: host.route(logits, bias, ids, weights, 1.0),
    "route with metadata": lambda: host.route(logits, bias, ids, weights, 1.0, True, metadata, 0, 256, 8),
    "prepare": host.prepare,
    "compile_routing": lambda: host.compile_routing(False, True),
    "compiled_routing": lambda: host.compiled_routing(True, True),
}
for attempt in attempts.values():
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            with pytest.raises(RuntimeError, match="prepare"):
                attempt()
        finally:
            graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
assert (ids == -7).all(), "something was enqueued"
host.prepare()
host.route(logits, bias, ids, weights, 1.0)
want, _ = spec.route(values, np.zeros(256, np.float32), 1.0)
assert (ids.cpu().numpy() == want).all()
graph = torch.cuda.CUDAGraph()
ids.fill_(-7)
with torch.cuda.graph(graph):
    host.route(logits, bias, ids, weights, 1.0)
graph.replay()
assert (ids.cpu().numpy() == want).all()
print("refused", len(attempts))
