"""Models that torch compiles around a call of `route`: one graph, the same bits, no copies."""

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from oracle.traffic.record import FOLDER, Recorder, recorded
from spec import torch_operator

POISON = -7


class Router(nn.Module):
    """A router GEMM, `route`, and something that uses what it wrote."""

    def __init__(self, route, tile):
        super().__init__()
        torch.manual_seed(3)
        self.gate = nn.Linear(32, 256, bias=False)
        self.register_buffer("bias", torch.randn(256) * 0.1)
        self.route, self.tile = route, tile

    def forward(self, hidden, metadata):
        logits = self.gate(hidden)
        ids = torch.empty(hidden.shape[0], 8, dtype=torch.int32)
        weights = torch.empty(hidden.shape[0], 8)
        self.route(
            logits, self.bias, ids, weights, scale=2.5, metadata=metadata, local_expert_offset=16,
            num_local_experts=64, tile_n=self.tile, early_dependents=True,
        )  # fmt: skip
        return ids + 1, weights * 2, metadata[:2] + 3, logits


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()


@pytest.fixture(params=["the-operator", "route-itself"])
def router(request, door):
    route = torch.ops.musespark_routing.route if request.param == "the-operator" else door.route
    with torch.no_grad():
        yield Router(route, 8)


@pytest.fixture
def metadata(door):
    return torch.full((door.metadata_size(8),), POISON, dtype=torch.int32)


def bits(tensors):
    return [each.view(torch.int32).tolist() for each in tensors]


def graphs_of(backend):
    """A compiler that keeps the graphs it is given, and the list it keeps them in."""
    graphs = []

    def compiler(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    return compiler, graphs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_any_batch_size_gives_the_same_bits_from_two_graphs(router, metadata, backend):
    compiler, graphs = graphs_of(backend)
    compiled = torch.compile(router, backend=compiler, fullgraph=True)
    for b in range(1, 9):
        hidden = torch.randn(b, 32)
        right, tested = metadata.clone(), metadata.clone()
        assert bits(compiled(hidden, tested)) == bits(router(hidden, right))
        assert torch.equal(tested, right)
        assert (right == POISON).sum() > 100
    assert len(graphs) == 2  # torch makes one for b = 1 alone, and one for the others
    for graph in graphs:
        called = [node for node in graph.graph.nodes if "musespark_routing" in str(node.target)]
        assert len(called) == 1


def test_nothing_breaks_the_graph(router, metadata):
    report = torch._dynamo.explain(router)(torch.randn(3, 32), metadata)
    assert (report.graph_count, report.graph_break_count) == (1, 0)


def test_what_is_written_is_a_result_of_the_functional_call(router, metadata):
    traced = []

    def keep(graph, inputs):
        traced.append(graph)
        return graph.forward

    hidden, right = torch.randn(3, 32), metadata.clone()
    compiled = torch.compile(router, backend=aot_autograd(fw_compiler=keep), fullgraph=True)
    assert bits(compiled(hidden, metadata)) == bits(router(hidden, right))
    assert torch.equal(metadata, right)
    (graph,) = traced
    (call,) = [node for node in graph.graph.nodes if "auto_functionalized" in str(node.target)]
    assert call.args[0] is torch.ops.musespark_routing.route.default
    used = {user.args[1] for user in call.users}
    assert used == {1, 2, 3}  # after the return value, which is None, come ids, weights and metadata


class Extern(Router):
    """A router whose results go where inductor calls torch's own functions, so that it compiles no C++."""

    def forward(self, hidden, metadata):
        logits = self.gate(hidden)
        ids = torch.empty(hidden.shape[0], 8, dtype=torch.int32)
        weights = torch.empty(hidden.shape[0], 8)
        self.route(logits, self.bias, ids, weights, 2.5, True, metadata, 16, 64, self.tile)
        return ids.topk(3).values, weights @ self.gate.weight[:8], metadata.topk(5).values, logits


@pytest.mark.parametrize("kind", [Extern, pytest.param(Router, marks=pytest.mark.slow)])
def test_inductor_gives_the_same_bits_and_copies_nothing(door, metadata, monkeypatch, kind):
    addresses = []
    route = torch_operator._offered.route

    def watched(*arguments):
        addresses.append([each.data_ptr() for each in arguments if isinstance(each, torch.Tensor)])
        route(*arguments)

    router = kind(torch.ops.musespark_routing.route, 8)
    monkeypatch.setattr(torch_operator._offered, "route", watched)
    with torch.no_grad():
        compiled = torch.compile(router, backend="inductor", fullgraph=True, dynamic=True)
        for b in (2, 5, 8):
            hidden, right, tested = torch.randn(b, 32), metadata.clone(), metadata.clone()
            addresses.clear()
            results = compiled(hidden, tested)
            logits, bias, _, _, buffer = addresses.pop()
            assert (logits, bias, buffer) == tuple(
                each.data_ptr() for each in (results[3], router.bias, tested)
            )
            assert bits(results) == bits(router(hidden, right))
            assert torch.equal(tested, right)


def test_a_call_outside_the_contract_does_not_compile(router, metadata):
    compiled = torch.compile(router, backend="eager", fullgraph=True)
    with pytest.raises(
        Exception, match=r"metadata must have shape \[n\], n >= metadata_size\(tile_n\) = 709"
    ):
        compiled(torch.randn(3, 32), metadata[:700].clone())
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"logits must have shape \[b, 256\], 1 <= b <= 8, not \[9, 256\]"):
        compiled(torch.randn(9, 32), metadata)


def test_the_operator_is_exported_for_any_batch_size(door, metadata):
    router = Router(torch.ops.musespark_routing.route, 8)
    batch = torch.export.Dim("b", min=2, max=8)
    shapes = {"hidden": {0: batch}, "metadata": None}
    exported = torch.export.export(router, (torch.randn(3, 32), metadata), dynamic_shapes=shapes)
    called = [node for node in exported.graph.nodes if "musespark_routing" in str(node.target)]
    assert len(called) == 1
    with torch.no_grad():
        for b in (2, 8):
            hidden, right, tested = torch.randn(b, 32), metadata.clone(), metadata.clone()
            assert bits(exported.module()(hidden, tested)) == bits(router(hidden, right))
            assert torch.equal(tested, right)


def test_a_view_of_a_larger_buffer_is_written_in_place(router, door):
    buffer = torch.full((2, 712), POISON, dtype=torch.int32)

    def forward(hidden, buffer):
        return router(hidden, buffer[1])

    hidden, right = torch.randn(4, 32), buffer.clone()
    expected = forward(hidden, right)
    compiled = torch.compile(forward, backend="aot_eager", fullgraph=True)
    assert bits(compiled(hidden, buffer)) == bits(expected)
    assert torch.equal(buffer, right)
    assert (buffer[0] == POISON).all()


def test_a_compiled_call_is_recorded_too(door, metadata, monkeypatch, tmp_path):
    route = recorded(torch_operator._offered.route, "spec", {FOLDER: str(tmp_path)})
    (recorder,) = (
        cell.cell_contents for cell in route.__closure__ if isinstance(cell.cell_contents, Recorder)
    )
    monkeypatch.setattr(torch_operator._offered, "route", route)
    torch_operator._replace(route)
    with torch.no_grad():
        router = Router(route, 8)
        torch.compile(router, backend="eager", fullgraph=True)(torch.randn(3, 32), metadata)
    recorder.flush()
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
