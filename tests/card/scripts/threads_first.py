"""Eight threads of a fresh process call route at once, before anything is compiled."""

import importlib
import sys
import threading

import numpy as np
import torch

import spec

host = importlib.import_module(f"impl_{sys.argv[1]}.host")
random = np.random.default_rng(10)
values = random.standard_normal((8, 4, 256), np.float32)
logits, bias = torch.from_numpy(values).cuda(), torch.zeros(256, device="cuda")
ids = torch.full((8, 2, 4, 8), -7, dtype=torch.int32, device="cuda")
weights = torch.empty(8, 2, 4, 8, device="cuda")
metadata = torch.empty(8, 4 * (spec.metadata_size(8) // 4 + 1), dtype=torch.int32, device="cuda")
torch.cuda.synchronize()
start, failures = threading.Barrier(8), []


def work(thread: int) -> None:
    try:
        start.wait()
        out = ids[thread, 0], weights[thread, 0]
        host.route(logits[thread], bias, *out, 1.0, True, metadata[thread], 0, 256, 8)
        host.route(logits[thread], bias, ids[thread, 1], weights[thread, 1], 1.0)
    except Exception as error:
        failures.append(repr(error))


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
torch.cuda.synchronize()
assert not failures, failures
want, _ = spec.route(values, np.zeros(256, np.float32), 1.0)
right = (ids.cpu().numpy() == want[:, None]).all(axis=(1, 3)).sum() * 2
print("right", right)
