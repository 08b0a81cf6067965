"""The door with the `spec` backend, in this process, and calls to put to it."""

import importlib
from types import ModuleType
from typing import Any

import pytest
import torch

POISON = -7
TILE = 8


@pytest.fixture(scope="session")
def door() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSESPARK_ROUTING_BACKEND", "spec")
        patch.delenv("MUSESPARK_ROUTING_RECORD", raising=False)
        module = importlib.import_module("musespark_routing")
    assert module.backend == "spec"
    return module


@pytest.fixture
def call(door):
    """Make the arguments of a call, outputs poisoned; ``tile`` 0 is the variant without metadata."""

    def made(
        b: int = 3, tile: int = TILE, renormalize: bool = True, stride: int = 256, **more: Any
    ) -> dict[str, Any]:
        random = torch.Generator().manual_seed(b)
        arguments = {
            "logits": torch.randn(b, stride, generator=random)[:, :256],
            "bias": torch.randn(256, generator=random) * 0.1,
            "ids": torch.full((b, 8), POISON, dtype=torch.int32),
            "weights": torch.full((b, 8), float(POISON)),
            "scale": 2.5,
            "renormalize": renormalize,
        }
        if tile:
            metadata = torch.full((door.metadata_size(tile) + 3,), POISON, dtype=torch.int32)
            arguments |= {
                "metadata": metadata,
                "local_expert_offset": 16,
                "num_local_experts": 64,
                "tile_n": tile,
            }
        return arguments | more

    return made


@pytest.fixture
def outputs():
    def taken(arguments: dict[str, Any]) -> list[list[Any]]:
        """Return the bits of all outputs of a call, words that nobody writes included."""
        written = (arguments.get(name) for name in ("ids", "weights", "metadata"))
        return [each.view(torch.int32).tolist() for each in written if each is not None]

    return taken
