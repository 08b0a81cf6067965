"""After prepare: what the driver is asked for over a grid of arguments, as CUPTI tells it."""

import ctypes
import importlib
import itertools
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch

import spec

DRIVER, RUNTIME, RESOURCE, MODULE_LOADED = 1, 2, 3, 6
LAUNCHES = ("cuLaunchKernel", "cudaLaunchKernel")
FORBIDDEN = ("Load", "Alloc", "MemCreate", "Link", "Synchronize", "Compile", "Free", "ModuleUnload")


class CallbackData(ctypes.Structure):
    _fields_ = [("site", ctypes.c_int), ("name", ctypes.c_char_p)]


def cupti():
    """The first CUPTI that loads, of torch's, the toolkit's and Triton's."""
    triton = Path(importlib.import_module("triton").__file__).parent
    site = Path(torch.__file__).parents[1]
    places = [
        *site.glob("nvidia/*/lib/libcupti.so.1*"),
        *Path("/usr/local").glob("cuda*/extras/CUPTI/lib64/libcupti.so"),
    ]
    places += [
        *Path("/usr/local").glob("cuda*/lib64/libcupti.so*"),
        *triton.glob("backends/nvidia/lib/cupti*/libcupti.so*"),
    ]
    for place in places:
        try:
            return ctypes.CDLL(str(place))
        except OSError:
            continue
    raise SystemExit(f"no libcupti that loads, of {[str(place) for place in places]}")


calls: Counter[str] = Counter()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(CallbackData))
def on_call(user, domain, number, data):
    if domain == RESOURCE:
        if number == MODULE_LOADED:
            calls["a module was loaded"] += 1
    elif data[0].site == 0:
        calls[data[0].name.decode()] += 1


library, subscriber = cupti(), ctypes.c_void_p()
assert library.cuptiSubscribe(ctypes.byref(subscriber), on_call, None) == 0, "CUPTI refused"
for domain in (DRIVER, RUNTIME, RESOURCE):
    assert library.cuptiEnableDomain(1, subscriber, domain) == 0, "CUPTI refused"

backend = sys.argv[1]
host = importlib.import_module(f"impl_{backend}.host")
random = np.random.default_rng(9)
torch.zeros(1, device="cuda").add_(1)
calls.clear()
for renormalize in (False, True):
    host.prepare(renormalize)
before = Counter(calls)
assert sum(count for name, count in before.items() if "Load" in name or "loaded" in name) >= 4, before

bias_values = (random.standard_normal(256) * 0.1).astype(np.float32)
bias = torch.from_numpy(bias_values).cuda()
room = torch.empty(2**31 + 4 + 256, device="cuda")  # two rows more than 2^31 elements apart
raw_ids = torch.empty(80, dtype=torch.int32, device="cuda")
raw_weights = torch.empty(80, device="cuda")
raw_metadata = torch.empty(spec.metadata_size(256) + 8, dtype=torch.int32, device="cuda")
shapes = [(1, 256), (2, 2**31 + 4), (3, 0), (5, 260), (8, 256), (8, 1024)]
tiles = [
    (0, 0, 0),
    (1, 0, 256),
    (1, 255, 1),
    (3, 16, 16),
    (8, 5, 3),
    (16, 0, 1),
    (192, 128, 128),
    (256, 1, 255),
]
scales = [1.0, 1, 2.5, float("inf"), 1e300, np.float32(3)]
shifts = [0, 1, 2, 4]  # elements: ids and weights lie on 4, 8 or 16 bytes
problems, wanted = [], []
for tokens, stride in shapes:
    values = random.standard_normal((tokens, 256), np.float32)
    if stride == 0:
        values[:] = values[0]
    start = 4 * int(random.integers(0, 2)) if stride < 2**31 else 0
    logits = torch.as_strided(room, (tokens, 256), (stride, 1), start)
    problems.append((tokens, values, logits))
seen: Counter[str] = Counter()
allocated = torch.cuda.memory_stats()["allocation.all.allocated"]
device = torch.cuda.current_device()
launches = 0
for tokens, values, logits in problems:
    for row in range(tokens if logits.stride(0) else 1):
        logits[row].copy_(torch.from_numpy(values[row]))
    for (tile, offset, count), scale, shift, renormalize in itertools.product(
        tiles, scales, shifts, (False, True)
    ):
        ids = raw_ids[shift : shift + 8 * tokens].view(tokens, 8)
        weights = raw_weights[shift : shift + 8 * tokens].view(tokens, 8)
        metadata = raw_metadata[4 * (shift % 2) :] if tile else None
        arguments = (logits, bias, ids, weights, scale, renormalize, metadata, offset, count, tile)
        calls.clear()
        statistics = torch.cuda.memory_stats()["allocation.all.allocated"]
        host.route(*arguments)
        assert torch.cuda.memory_stats()["allocation.all.allocated"] == statistics, "torch allocated memory"
        seen.update(calls)
        launches += 1
        # A launch through the runtime also shows as one of the driver.
        through = [sum(calls[name] for name in calls if name.startswith(kind)) for kind in LAUNCHES]
        assert through in ([1, 0], [1, 1], [0, 1]), dict(calls)
        bad = [
            name for name in calls if any(word in name for word in FORBIDDEN) or name == "a module was loaded"
        ]
        assert not bad, f"{bad} for tile {tile}, scale {scale}, stride {logits.stride(0)}"
        if launches % 7 == 0:
            want_ids, want_weights = spec.route(values, bias_values, scale, renormalize)
            assert (ids.cpu().numpy() == want_ids).all()
            assert (weights.cpu().numpy().view(np.int32) == want_weights.view(np.int32)).all()
assert torch.cuda.current_device() == device
print("launches", launches, dict(seen))
assert library.cuptiUnsubscribe(subscriber) == 0  # the driver still calls back while the process ends
