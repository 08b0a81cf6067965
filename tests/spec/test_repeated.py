"""Calls that repeat: what passes without every rule asked again, and that nothing else does."""

from types import SimpleNamespace

import pytest
import torch

from oracle.mutants.repeats import PROPERTIES, blind_to
from spec import repeated
from spec.layout import metadata_size
from spec.repeated import RepeatedCheck

LIBRARIES = pytest.mark.parametrize("library", [torch, None], ids=["torchs-comparison", "ours"])
KINDS = pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])


def call(metadata=True, batch=3, **change):
    """Right arguments of a `RepeatedCheck`."""
    return {
        "logits": torch.zeros(batch, 256),
        "bias": torch.zeros(256),
        "ids": torch.zeros(batch, 8, dtype=torch.int32),
        "weights": torch.zeros(batch, 8),
        "scale": 2.5,
        "renormalize": True,
        "metadata": torch.zeros(metadata_size(8), dtype=torch.int32) if metadata else None,
        "local_expert_offset": 0,
        "num_local_experts": 256,
        "tile_n": 8,
        "early_dependents": False,
        **change,
    }


@pytest.fixture
def asked(monkeypatch):
    """Count how often the tensors go through the contract's rules on them."""
    counted = []
    read = repeated.read_signature

    def read_and_count(*tensors):
        counted.append(tensors)
        return read(*tensors)

    monkeypatch.setattr(repeated, "read_signature", read_and_count)
    return counted


@LIBRARIES
@KINDS
def test_a_signature_is_asked_about_once_whatever_the_tensors_and_numbers(asked, library, metadata):
    check = RepeatedCheck("cpu", library)
    for number in range(1, 6):
        given = call(metadata, scale=float(number), renormalize=number % 2 == 0, tile_n=number)
        found, *places = check(**given)
        tensors = [given[name] for name in ("logits", "bias", "ids", "weights", "metadata")]
        assert places == [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        assert (found.batch, found.row_stride, found.scale) == (3, 256, float(number))
        assert found.tile == (number if metadata else 0)
        assert found.variant == (None, metadata, number % 2 == 0, False)
    assert len(asked) == 1


@LIBRARIES
def test_every_batch_size_is_known_again_with_metadata_and_without(asked, library):
    check = RepeatedCheck("cpu", library)
    for _ in range(3):
        for batch in range(1, 9):
            for metadata in (False, True):
                assert check(**call(metadata, batch))[0].batch == batch
    assert len(asked) == 16


IN_PLACE = {
    "resize_": (lambda t: t.resize_(2, 8), "shape"),
    "resize_-to-more-rows": (lambda t: t.resize_(4, 8), "shape"),
    "as_strided_": (lambda t: t.as_strided_((3, 8), (1, 3)), "strides"),
    "set_": (lambda t: t.set_(torch.zeros(3, 16, dtype=t.dtype)[:, :8]), "strides"),
    "data": (lambda t: setattr(t, "data", torch.zeros(3, 8, dtype=torch.int64)), "dtype"),
    "t_": (lambda t: t.t_(), "shape"),
    "unsqueeze_": (lambda t: t.unsqueeze_(0), "shape"),
    "onto-another-argument": (lambda t: t.set_(SHARED.view(-1)[:24].view(torch.int32).view(3, 8)), "overlap"),
}
SHARED = torch.zeros(3, 256)


@LIBRARIES
@KINDS
@pytest.mark.parametrize(("change", "says"), IN_PLACE.values(), ids=IN_PLACE)
def test_a_tensor_that_has_passed_is_judged_as_it_is_now(library, metadata, change, says):
    check = RepeatedCheck("cpu", library)
    given = call(metadata, logits=SHARED)
    for _ in range(2):
        check(**given)
    change(given["ids"])
    with pytest.raises(ValueError, match=f"ids must .*{says}"):
        check(**given)


@LIBRARIES
def test_parameters_subclasses_and_tensors_of_an_inference_pass(asked, library):
    class Mine(torch.Tensor):
        pass

    check = RepeatedCheck("cpu", library)
    bias = torch.zeros(256)
    for kind in (
        torch.nn.Parameter(bias),
        torch.nn.Parameter(bias, requires_grad=False),
        bias.as_subclass(Mine),
    ):
        for _ in range(2):
            check(**call(bias=kind))
    with torch.inference_mode():
        for _ in range(2):
            check(**call())
    assert len(asked) <= 4


def test_a_subclass_is_compared_by_what_it_says_of_itself():
    class Shifting(torch.Tensor):
        strides = (8, 1)

        def stride(self):
            return self.strides

    check = RepeatedCheck("cpu", torch)
    given = call(ids=torch.zeros(3, 8, dtype=torch.int32).as_subclass(Shifting))
    check(**given)
    Shifting.strides = (16, 1)
    with pytest.raises(ValueError, match="ids must have strides"):
        check(**given)


def test_what_is_given_is_not_known_again_where_its_value_may_change():
    class Growing(float):
        pass

    class Number:
        value = 8

        def __index__(self):
            return self.value

    check, number = RepeatedCheck("cpu"), Number()
    assert check(**call(tile_n=number))[0].tile == 8
    number.value = 7
    assert check(**call(tile_n=number))[0].tile == 7
    assert check(**call(scale=Growing(1.5)))[0].scale == 1.5


@pytest.mark.parametrize("metadata", [False, True])
def test_zeros_of_both_signs_and_nans_stay_what_they_are(metadata):
    check = RepeatedCheck("cpu")
    for scale in (0.0, -0.0, 0, -0.0, float("nan"), 1.0, float("nan")):
        found, *_ = check(**call(metadata, scale=scale))
        assert str(found.scale) == str(float(scale))


def test_it_forgets_what_it_cannot_keep(asked, monkeypatch):
    monkeypatch.setattr(repeated, "PLACES", 3)
    check = RepeatedCheck("cpu", torch)
    kept = [call() for _ in range(9)]
    for given in kept * 2:
        check(**given)
        assert len(check._full[0][1]) <= 3
    for stride in range(256, 256 + 4 * 40, 4):
        check(**call(logits=torch.zeros(3, 512).as_strided((3, 256), (stride, 1))))
    assert len(check._full) == 16
    assert len(asked) == 40


def test_torchs_comparison_is_relied_on_here():
    assert repeated.sees_all_that_matters(torch)


@pytest.mark.parametrize("what", [*PROPERTIES, "everything", "nothing", "errors"])
def test_a_comparison_that_does_not_see_a_difference_is_not_relied_on(what, asked):
    library = blind_to(what)
    assert not repeated.sees_all_that_matters(library)
    check = RepeatedCheck("cpu", library)
    for _ in range(2):
        check(**call())
    assert len(asked) == 1
    with pytest.raises(ValueError, match="ids must have dtype"):
        check(**call(ids=torch.zeros(3, 8, dtype=torch.int64)))


@pytest.mark.parametrize(
    "library", [SimpleNamespace(), SimpleNamespace(_C=None), None], ids=["none", "old", "no"]
)
def test_without_torchs_comparison_the_rules_hold(library):
    check = RepeatedCheck("cpu", library)
    check(**call())
    with pytest.raises(ValueError, match="weights must have shape"):
        check(**call(weights=torch.zeros(2, 8)))
