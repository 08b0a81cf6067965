"""The adapters on a card made of host memory, with the specification in the place of the kernels."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import spec
from oracle import backends, cases
from oracle.backends import flashinfer
from oracle.cases.permuting import Points
from oracle.compare import PERMITTED, compare, expect
from oracle.peers import vllm
from oracle.problem import Batch, Outputs


@pytest.fixture(autouse=True)
def _host_memory_is_the_cards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor.clone())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))


class Launches:
    """Answers FlashInfer's calls by the specification, through the addresses alone."""

    def __init__(self) -> None:
        self.streams: list[int] = []

    def launch(self, calls: np.ndarray, stream: int) -> None:
        self.streams.append(stream)
        for call in calls:
            self._one(call, int(call["tokens"]))

    def _one(self, call: np.void, tokens: int) -> None:
        if call["ids"]:
            ids = self._read(call["ids"], np.int32, tokens, 8)
        else:
            logits, bias = (
                self._read(call["logits"], np.float32, tokens, 256),
                self._read(call["bias"], np.float32, 256),
            )
            ids, weights = spec.route(logits, bias, call["scale"])
            self._write(call["replay"], ids.astype(np.int16))
            self._write(call["weights"], weights)
        made = spec.metadata(ids, int(call["offset"]), int(call["count"]), int(call["tile"]))
        for field in spec.FIELDS:
            if field.clause != "M8":
                self._write(call[field.name], np.asarray(getattr(made, field.name), np.int32))

    @staticmethod
    def _read(address: np.uint64, kind: type, *shape: int) -> np.ndarray:
        text = ctypes.string_at(int(address), int(np.prod(shape)) * np.dtype(kind).itemsize)
        return np.frombuffer(text, kind).reshape(shape)

    @staticmethod
    def _write(address: np.uint64, values: np.ndarray) -> None:
        ctypes.memmove(int(address), np.ascontiguousarray(values).tobytes(), values.nbytes)


def problems(family: str, tokens: int) -> Batch:
    tiles, offsets, counts = np.array([1, 7, 8, 64]), np.array([0, 5, 128, 255]), np.array([256, 99, 64, 1])
    points = Points(np.full(4, tokens), tiles, offsets, counts)
    permuting = cases.FAMILIES[family].kind == "permutation"
    index = points.index() if permuting else np.arange(4)
    return cases.batch(cases.FAMILIES[family], 1, index, tokens, True, points.ranges() if permuting else None)


def differing(name: str, batch: Batch) -> int:
    expected = expect(batch)
    outputs = Outputs.poisoned(batch)
    backends.get(name).run(batch, outputs, "cuda")
    return int(compare(PERMITTED[name].right(batch, expected, outputs), outputs).sum())


@pytest.mark.parametrize("tokens", [1, 3, 8])
@pytest.mark.parametrize("name", ["flashinfer", "flashinfer-logits"])
def test_m1_to_m8_every_launch_finds_its_own_buffers(monkeypatch: pytest.MonkeyPatch, name: str, tokens: int):
    launches = Launches()
    monkeypatch.setattr(flashinfer, "driver", lambda: launches)
    assert differing(name, problems("permute-mixed", tokens)) == 0
    assert launches.streams == [77]


def test_r4_reported_ids_arrive_where_the_batch_has_no_metadata(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flashinfer, "driver", Launches)
    assert differing("flashinfer-logits", problems("random-scales", 5)) == 0


def test_r6_vllm_gets_every_problems_own_tensors(monkeypatch: pytest.MonkeyPatch):
    def route(logits, bias, topk, scale, *, router_score_division_eps, topk_weights, topk_ids):
        assert (topk, router_score_division_eps) == (spec.TOP_K, spec.SUM_EPSILON)
        ids, weights = spec.route(logits.numpy(), bias.numpy(), scale)
        topk_ids.copy_(torch.from_numpy(ids))
        topk_weights.copy_(torch.from_numpy(weights))

    monkeypatch.setattr(vllm, "load", lambda torch: SimpleNamespace(fused_musespark1x_routing=route))
    assert differing("vllm", problems("strided-rows", 4)) == 0
