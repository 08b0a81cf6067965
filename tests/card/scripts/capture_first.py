"""A process whose very first route is captured, right after prepare, and replayed with new logits."""

import importlib
import sys

import numpy as np
import torch

import spec

backend = sys.argv[1]
host = importlib.import_module(f"impl_{backend}.host")
random = np.random.default_rng(7)
bias_values = (random.standard_normal(256) * 0.1).astype(np.float32)
logits = torch.zeros(5, 256, device="cuda")
bias = torch.from_numpy(bias_values).cuda()
graphs = []
for renormalize in (False, True):
    host.prepare(renormalize)
    for tile in (0, 24):
        ids = torch.empty(5, 8, dtype=torch.int32, device="cuda")
        weights = torch.empty(5, 8, device="cuda")
        size = spec.metadata_size(tile) if tile else 0
        metadata = torch.empty(size, dtype=torch.int32, device="cuda") if tile else None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            host.route(logits, bias, ids, weights, 2.5, renormalize, metadata, 32, 128, tile)
        graphs.append((graph, renormalize, tile, ids, weights, metadata))
for _ in range(5):
    values = random.standard_normal((5, 256), np.float32)
    logits.copy_(torch.from_numpy(values))
    for graph, renormalize, tile, ids, weights, metadata in graphs:
        if metadata is not None:
            metadata.fill_(-7)
        graph.replay()
        want_ids, want_weights = spec.route(values, bias_values, 2.5, renormalize)
        assert (ids.cpu().numpy() == want_ids).all(), (renormalize, tile)
        assert (weights.cpu().numpy().view(np.int32) == want_weights.view(np.int32)).all(), (
            renormalize,
            tile,
        )
        if metadata is not None:
            want = np.full(spec.metadata_size(tile), -7, np.int32)
            spec.write_metadata(want, want_ids, 32, 128, tile)
            assert (metadata.cpu().numpy() == want).all(), (renormalize, tile)
print("replayed", 5 * len(graphs))
