"""Recording on the card: with both kernels, and around the capture of a graph."""

import importlib

import pytest
import torch
from safetensors import safe_open

import spec
from oracle import cli
from oracle.traffic.record import FOLDER, Recorder, recorded

pytestmark = [pytest.mark.card, pytest.mark.parametrize("backend", ["cute", "triton"])]


def made(backend, folder):
    host = importlib.import_module(f"impl_{backend}.host")
    host.prepare()
    route = recorded(host.route, backend, {FOLDER: str(folder)})
    return route, next(
        each.cell_contents for each in route.__closure__ if isinstance(each.cell_contents, Recorder)
    )


def tensors(b=8, tile=64):
    return (
        torch.randn(b, 256, device="cuda"),
        torch.randn(256, device="cuda"),
        torch.empty(b, 8, dtype=torch.int32, device="cuda"),
        torch.empty(b, 8, device="cuda"),
        torch.zeros(spec.metadata_size(tile), dtype=torch.int32, device="cuda"),
    )


def files(folder):
    return sorted(folder.glob("*.safetensors"))


def test_calls_on_the_card_are_recorded_with_its_name_and_replay_there(backend, tmp_path, capsys):
    route, recorder = made(backend, tmp_path / "calls")
    for b in range(1, 9):
        logits, bias, ids, weights, metadata = tensors(b)
        route(logits, bias, ids, weights, 2.5, True, metadata, 64, 64, 64)
    recorder.flush()
    with safe_open(files(tmp_path / "calls")[0], "np") as file:
        assert file.metadata()["device"] == torch.cuda.get_device_name()
    assert cli.main(["replay", str(tmp_path / "calls"), "--backend", backend, "--device", "cuda"]) == 0
    assert f"PASS: {backend} on record, {backend} on cuda: " in capsys.readouterr().out


def test_a_captured_call_is_not_recorded_and_the_graph_gives_what_it_gives(backend, tmp_path, caplog):
    route, recorder = made(backend, tmp_path)
    logits, bias, ids, weights, metadata = tensors()
    right = [torch.empty_like(ids), torch.empty_like(weights), torch.zeros_like(metadata)]
    importlib.import_module(f"impl_{backend}.host").route(
        logits, bias, right[0], right[1], 2.5, True, right[2], 64, 64, 64
    )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        route(logits, bias, ids, weights, 2.5, True, metadata, 64, 64, 64)
        route(logits, bias, ids, weights, 2.5, True, metadata, 64, 64, 64)
    graph.replay()
    torch.cuda.synchronize()
    for one, other in zip((ids, weights, metadata), right, strict=True):
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))
    recorder.flush()
    assert files(tmp_path) == []
    assert [each.message for each in caplog.records] == [
        "calls inside a CUDA graph are not recorded, neither its capture nor its replays"
    ]
