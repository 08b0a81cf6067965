"""The contract and the NumPy backend on real CPU tensors."""

import numpy as np
import pytest
import torch

import spec
from spec import contract, host
from spec.repeated import RepeatedCheck


def arguments(batch: int = 2) -> dict:
    generator = torch.Generator().manual_seed(batch)
    return {
        "logits": torch.randn(batch, 256, generator=generator),
        "bias": torch.randn(256, generator=generator),
        "ids": torch.full((batch, 8), -7, dtype=torch.int32),
        "weights": torch.full((batch, 8), -7.0),
        "scale": 2.5,
        "renormalize": True,
        "metadata": torch.full((spec.metadata_size(8),), -7, dtype=torch.int32),
        "local_expert_offset": 0,
        "num_local_experts": 256,
        "tile_n": 8,
        "early_dependents": False,
    }


@pytest.mark.parametrize("batch", range(1, 9), ids=lambda b: f"b{b}")
def test_route_writes_what_the_specification_says(batch):
    given = arguments(batch)
    assert host.route(**given) is None
    ids, weights = spec.route(given["logits"].numpy(), given["bias"].numpy(), 2.5)
    metadata = np.full(spec.metadata_size(8), -7, np.int32)
    spec.write_metadata(metadata, ids, 0, 256, 8)
    np.testing.assert_array_equal(given["ids"].numpy(), ids)
    np.testing.assert_array_equal(given["weights"].numpy().view(np.uint32), weights.view(np.uint32))
    np.testing.assert_array_equal(given["metadata"].numpy(), metadata)


@pytest.mark.parametrize(
    "logits",
    [
        pytest.param(torch.zeros(1, 256).expand(5, 256), id="row-stride-0"),
        pytest.param(torch.zeros(5, 1024)[:, 512:768], id="a-column-slice"),
        pytest.param(torch.zeros(5, 256, requires_grad=True), id="requires-grad"),
    ],
)
def test_legal_logits(logits):
    given = arguments(5) | {"logits": logits}
    host.route(**given)
    ids, _ = spec.route(np.zeros((5, 256), np.float32), given["bias"].numpy(), 1.0)
    assert given["ids"].tolist() == ids.tolist()
    assert not given["weights"].requires_grad


OUTSIDE = {
    "logits-sparse": ({"logits": torch.zeros(2, 256).to_sparse()}, "logits must be a strided tensor"),
    "logits-transposed": ({"logits": torch.zeros(256, 2).T}, "logits must have column stride 1"),
    "logits-half": ({"logits": torch.zeros(2, 256, dtype=torch.float16)}, "logits must have dtype float32"),
    "logits-float64": ({"logits": torch.zeros(2, 256, dtype=torch.float64)}, "logits must have dtype"),
    "logits-one-element-in": ({"logits": torch.zeros(2, 260)[:, 1:257]}, "logits must start on 16 bytes"),
    "bias-of-another-device": ({"bias": torch.zeros(256, device="meta")}, "bias must be on the device"),
    "ids-int64": ({"ids": torch.zeros(2, 8, dtype=torch.int64)}, "ids must have dtype int32"),
    "weights-expanded": ({"weights": torch.zeros(8).expand(2, 8)}, "weights must have strides"),
    "metadata-one-in": ({"metadata": torch.zeros(800, dtype=torch.int32)[1:]}, "metadata must start on"),
    "scale-a-tensor": ({"scale": torch.tensor(1.0)}, "scale must be a real number"),
    "renormalize-a-tensor": ({"renormalize": torch.tensor(True)}, "renormalize must be a bool"),
    "tile-a-bool-tensor": ({"tile_n": torch.tensor(True)}, "tile_n must be an integer"),
    "offset-a-float-tensor": ({"local_expert_offset": torch.tensor(1.0)}, "local_expert_offset must be"),
}


@pytest.mark.parametrize(("change", "message"), OUTSIDE.values(), ids=OUTSIDE)
def test_what_is_outside_is_named_and_nothing_is_written(change, message):
    given = arguments()
    outputs = [given[name] for name in ("ids", "weights", "metadata")]
    with pytest.raises(ValueError, match=message):
        host.route(**(given | change))
    assert all((output == -7).all() for output in outputs)


@pytest.mark.parametrize("library", [torch, None], ids=["torchs-comparison", "ours"])
@pytest.mark.parametrize(("change", "message"), OUTSIDE.values(), ids=OUTSIDE)
def test_what_is_outside_is_named_also_after_calls_that_have_passed(change, message, library):
    check = RepeatedCheck("cpu", library)
    for batch in (2, 2, 3):
        check(**arguments(batch))
    with pytest.raises(ValueError, match=message):
        check(**(arguments() | change))


def test_cuda_is_asked_for_in_vain_with_cpu_tensors():
    with pytest.raises(ValueError, match="logits must be on a cuda device, not on cpu"):
        contract.check_route(**arguments(), device_type="cuda")


def test_an_output_that_is_a_view_of_an_input_is_refused():
    given = arguments(1)
    given["weights"] = given["bias"][8:16].view(1, 8)
    before = given["bias"].clone()
    with pytest.raises(ValueError, match="weights must not overlap bias"):
        host.route(**given)
    assert torch.equal(given["bias"], before)
