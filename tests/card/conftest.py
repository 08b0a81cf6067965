"""Routing problems on CUDA tensors, and both backends' hosts, for the runtime contract's tests."""

import importlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spec
from oracle.problem import POISON_WORD

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(params=["cute", "triton"])
def backend(request):
    return request.param


@pytest.fixture
def host(backend):
    return importlib.import_module(f"impl_{backend}.host")


@dataclass
class OnCard:
    """One problem's tensors, and what must be in the outputs after `route`."""

    logits: Any
    bias: Any
    ids: Any
    weights: Any
    metadata: Any
    arguments: dict[str, Any]
    want_ids: np.ndarray
    want_weights: np.ndarray
    want_metadata: np.ndarray | None

    def route(self, host: Any) -> None:
        host.route(self.logits, self.bias, self.ids, self.weights, metadata=self.metadata, **self.arguments)

    def poison(self) -> None:
        for tensor in (self.ids, self.weights, self.metadata):
            if tensor is not None:
                tensor.view(dtype=self.ids.dtype).fill_(POISON_WORD)

    def wrong(self) -> int:
        """How many output words differ, those that must stay poisoned included."""
        differing = int((self.ids.cpu().numpy() != self.want_ids).sum())
        differing += int(
            (self.weights.cpu().numpy().view(np.int32) != self.want_weights.view(np.int32)).sum()
        )
        if self.metadata is not None:
            differing += int((self.metadata.cpu().numpy() != self.want_metadata).sum())
        return differing


@pytest.fixture(scope="session")
def make():
    """Make a problem on the card from a seed; ``tile`` 0 is the variant without metadata."""
    import torch

    def made(seed: int, tokens: int, tile: int = 0, offset: int = 0, count: int = 256, scale: float = 1.0,
             renormalize: bool = True, stride: int = 256, device: str = "cuda") -> OnCard:  # fmt: skip
        random = np.random.default_rng(seed)
        logits = random.standard_normal((tokens, 256), np.float32)
        bias = (random.standard_normal(256) * 0.1).astype(np.float32)
        ids, weights = spec.route(logits, bias, scale, renormalize)
        arguments: dict[str, Any] = {"scale": scale, "renormalize": renormalize}
        metadata, want = None, None
        if tile:
            want = np.full(spec.metadata_size(tile), POISON_WORD, np.int32)
            spec.write_metadata(want, ids, offset, count, tile)
            metadata = torch.empty(len(want), dtype=torch.int32, device=device)
            arguments |= {"local_expert_offset": offset, "num_local_experts": count, "tile_n": tile}
        wide = torch.full((tokens, stride), float("nan"), device=device)
        wide[:, :256] = torch.from_numpy(logits)
        one = OnCard(
            wide[:, :256],
            torch.from_numpy(bias).to(device),
            torch.empty(tokens, 8, dtype=torch.int32, device=device),
            torch.empty(tokens, 8, device=device),
            metadata,
            arguments,
            ids,
            weights,
            want,
        )
        one.poison()
        return one

    return made


@pytest.fixture
def script(backend):
    """Run a script of tests/card/scripts for the backend in its own process, and return what it printed."""

    def run(name: str, *arguments: str) -> str:
        line = [sys.executable, str(SCRIPTS / f"{name}.py"), backend, *arguments]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    return run
