"""Judges calls that repeat: what has passed once must not let pass what differs from it."""

from collections.abc import Callable, Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from oracle.mutants.calls import Change, arguments, wrong_calls
from oracle.mutants.judging import call, check_launch, device, must, refused
from oracle.mutants.pretended import Machine, original
from spec.layout import metadata_size

_SAME_VALUE: Final[tuple[tuple[Change, Change], ...]] = (
    ({"scale": 1.0}, {"scale": True}),
    ({"scale": 1}, {"scale": True}),
    ({"tile_n": 1}, {"tile_n": True}),
    ({"tile_n": 8}, {"tile_n": 8.0}),
    ({"num_local_experts": 1}, {"num_local_experts": True}),
    ({"local_expert_offset": 0}, {"local_expert_offset": False}),
    ({"renormalize": True}, {"renormalize": 1}),
    ({"early_dependents": False}, {"early_dependents": 0}),
)
"""Of two calls, the second is wrong."""

_ONLY_WITH_METADATA: Final = ("metadata", "local_expert_offset", "num_local_experts", "tile_n")


def _wrong_calls_after_right_ones_are_refused(machine: Machine) -> None:
    host = machine.host()
    for name, wrong in wrong_calls().items():
        alike = {key: value for key, value in wrong.change.items() if key == "b"}
        both = [(alike, wrong.change)]
        if not set(wrong.change) & set(_ONLY_WITH_METADATA):
            both.append(({**alike, "metadata": None}, {**wrong.change, "metadata": None}))
        for right, change in both:
            host.route(**call(**right))
            refused(machine, host, call(**change), (wrong.begins, *wrong.says), f"{name}, after a right call")
            elsewhere = {**call(**right), "weights": arguments(right, device(1))["weights"]}
            refused(machine, host, elsewhere, ("weights must be on",), f"{name}, then another card")


def _what_equals_a_right_number_is_none(machine: Machine) -> None:
    host = machine.host()
    for right, wrong in _SAME_VALUE:
        host.route(**call(**right))
        (name,) = wrong
        refused(machine, host, call(**wrong), (f"{name} must be ",), f"{wrong} after {right}")


def _numbers_that_change_are_seen(machine: Machine) -> None:
    host = machine.host()
    scales = (
        2.5, float("2.5"), 2, 2.0, 0.0, -0.0, 0, float("nan"), float("nan"), float("inf"), float("-inf"), 0.1,
    )  # fmt: skip
    changes: list[tuple[Change, Change]] = [
        ({"scale": scale}, {"scale": float(np.float32(scale))}) for scale in scales
    ]
    for name, number in (
        ("local_expert_offset", "offset"),
        ("num_local_experts", "count"),
        ("tile_n", "tile"),
    ):
        changes += [({name: value}, {number: value}) for value in (7, 8, 7)]
    for name in ("renormalize", "early_dependents"):
        changes += [({name: value}, {}) for value in (True, False, True)]
    for metadata in (True, False):
        for change, numbers in changes:
            given = call(**change) if metadata else call(**change, metadata=None)
            right = numbers if metadata else {**numbers, "offset": 0, "count": 0, "tile": 0}
            host.route(**given)
            check_launch(machine.launched[-1], given, right, f"{change}, metadata {metadata}")


def _what_is_known_is_not_asked_again(machine: Machine) -> None:
    repeated = import_module("spec.repeated")
    asked: list[str] = []
    functions = {name: getattr(repeated, name) for name in ("read_signature", "check_numbers", "places_fit")}
    for name, function in functions.items():

        def asking(*given: Any, name: str = name, function: Any = function) -> Any:
            asked.append(name)
            return function(*given)

        setattr(repeated, name, asking)
    try:
        _count_what_is_asked(repeated.RepeatedCheck("cuda"), asked)
    finally:
        vars(repeated).update(functions)


def _count_what_is_asked(check: Any, asked: list[str]) -> None:
    places, numbers = ["places_fit"], ["check_numbers"]
    kinds: tuple[Change, ...] = ({}, {"metadata": None})
    for kind in kinds:
        steps: tuple[tuple[Change, list[str]], ...] = (
            ({}, ["read_signature", "check_numbers"]), ({}, places), ({}, []), ({}, []),
            ({"ids": {"address": 1 << 41}}, places), ({"ids": {"address": 1 << 41}}, []), ({}, []),
            ({"scale": float("2.5")}, []), ({"scale": 3.5}, numbers), ({"scale": 7 / 2}, []),
            ({"scale": 2}, numbers), ({"scale": 2.0}, []), ({"scale": 2}, []),
            ({"renormalize": False}, numbers), ({"renormalize": False}, []),
        )  # fmt: skip
        for number, (change, right) in enumerate(steps):
            asked.clear()
            check(**_named(call(**{**kind, **change})))
            must(asked == right, f"call {number}, {kind}: {asked} instead of {right}")


def _every_signature_is_known_again(machine: Machine) -> None:
    repeated: Any = import_module("spec.repeated")
    check = repeated.RepeatedCheck("cuda")
    for way in (False, True):
        for b in [*range(1, 9)] * 2:
            given = call(b=b) if way else call(b=b, metadata=None)
            found, *places = check(**_named(given))
            must(found.batch == b, f"b={b} is taken for {found.batch}")
            must(places[0] == given["logits"].address, f"b={b}: the logits are elsewhere")
    must(len(check._plain) == len(check._full) == 8, "a signature is kept twice, or not at all")
    first = check._full[-1][0]
    check(**_named(call(b=1)))
    must(check._full[0][0] is first, "a signature that is known is made again")
    for stride in range(300, 300 + 4 * 40, 4):
        check(**_named(call(logits={"strides": (stride, 1), "address": 1 << 40})))
    must(len(check._full) == 16, f"{len(check._full)} signatures are kept")
    enough, repeated.PLACES = repeated.PLACES, 4
    must(enough >= 1000, "places are forgotten before they come again")
    most = 0
    for step in range(12):
        check(**_named(call(ids={"address": (1 << 41) + 4 * step})))
        most = max(most, len(check._full[0][1]))
    repeated.PLACES = enough
    must(most == 4, f"{most} places are kept, not 4")


def _named(given: Change) -> Change:
    return {"early_dependents": False, **given}


def _tensors_of_torch(strided: bool, metadata: bool) -> dict[str, Any]:
    import torch

    # Plainly made: the pretended machine has its own zeros.
    rows = torch.ones(3, 512 if strided else 256)[:, :256]
    made = {"logits": rows, "bias": torch.ones(256), "weights": torch.ones(3, 8)}
    return {
        **made,
        "ids": torch.ones(3, 8, dtype=torch.int32),
        "metadata": torch.ones(metadata_size(8) + 3, dtype=torch.int32) if metadata else None,
    }


def _changes_of_torch(tensors: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    import torch

    yield "ids", "strides", torch.ones(3, 16, dtype=torch.int32)[:, :8]
    yield "ids", "dtype", torch.ones(3, 8, dtype=torch.int64)
    yield "weights", "shape", torch.ones(4, 8)
    yield "weights", "dtype", torch.ones(3, 8, dtype=torch.int32)
    yield "bias", "strides", torch.ones(512)[::2]
    yield "bias", "shape", torch.ones(1, 256)
    yield "logits", "column stride", torch.ones(3, 512)[:, ::2]
    yield "logits", "row stride", torch.ones(3, 258)[:, :256]
    yield "bias", "be on the device", torch.ones(256, device="meta")
    yield "bias", "start on 16 bytes", torch.ones(260)[1:257]
    yield "weights", "not overlap", tensors["bias"][8:32].view(3, 8)
    yield "ids", "be a strided tensor", [1]
    if tensors["metadata"] is not None:
        yield "metadata", "shape", tensors["metadata"][:-4]
        yield "metadata", "not overlap", tensors["logits"].view(-1)[:712].view(torch.int32)


def _tensors_of_torch_are_compared_whole(machine: Machine) -> None:
    repeated = import_module("spec.repeated")
    own = real_torch()
    must(repeated.RepeatedCheck("cpu", own)._torch is own, "torch's own comparison is not relied on")
    must(repeated.RepeatedCheck("cpu")._torch is None, "a torch is relied on that is not given")
    numbers = (2.5, True)
    for library in (own, None):
        check = repeated.RepeatedCheck("cpu", library)
        for metadata in (False, True):
            tensors = _tensors_of_torch(False, metadata)
            asked = {"scale": 2.5, "renormalize": True, "early_dependents": False, "local_expert_offset": 0}
            asked |= {"num_local_experts": 256, "tile_n": 8}
            for _ in range(2):
                found, *places = check(**tensors, **asked)
                right = [None if each is None else each.data_ptr() for each in tensors.values()]
                by_name = dict(zip(("logits", "bias", "ids", "weights", "metadata"), places, strict=True))
                must([by_name[name] for name in tensors] == right, "the tensors are elsewhere")
                must((found.batch, found.row_stride, found.scale) == (3, 256, numbers[0]), f"{found}")
                for name, says, other in _changes_of_torch(tensors):
                    _not_taken(check, {**tensors, name: other, **asked}, f"{name} must ", says)
            in_place = {**tensors, "ids": tensors["ids"].clone()}
            check(**in_place, **asked)
            in_place["ids"].resize_(2, 8)
            _not_taken(check, {**in_place, **asked}, "ids must have shape", "not [2, 8]")
            wide = _tensors_of_torch(True, metadata)
            must(check(**wide, **asked)[0].row_stride == 512, "another row stride is taken for the first")
            must(check(**tensors, **asked)[0].row_stride == 256, "a row stride is not taken back")


PROPERTIES: Final = ("rows", "strides", "dtype", "device", "type")


def blind_to(what: str) -> Any:
    """Return a torch whose own comparison does not see one of `PROPERTIES`; or sees, or says, nothing at all.

    Parameters
    ----------
    what
        Of `PROPERTIES`; ``everything``: all tensors agree; ``nothing``: none do; ``errors``: it raises.
    """
    import torch

    def comparison(*tensors: Any, dynamic_dims_sizes: Any, dynamic_dims_strides: Any) -> Any:
        (first,) = tensors
        whole = torch._C._dynamo.guards.TensorGuards(
            first, dynamic_dims_sizes=dynamic_dims_sizes, dynamic_dims_strides=dynamic_dims_strides
        )
        seen_otherwise: dict[str, Callable[[Any], Any]] = {
            "rows": lambda given: given[:1],
            "strides": lambda given: torch.ones(given.shape, dtype=given.dtype) if given.is_cpu else given,
            "dtype": lambda given: given.view(first.dtype) if given.is_cpu else given,
            "device": lambda given: torch.ones_like(given, device="cpu"),
            "type": lambda given: first if given is None else given,
        }

        def check(given: Any) -> bool:
            if what in ("everything", "nothing"):
                return what == "everything"
            if what == "errors":
                raise RuntimeError(what)
            seen = given if given is None and what != "type" else seen_otherwise[what](given)
            return bool(whole.check(seen))

        return SimpleNamespace(check=check)

    guards = SimpleNamespace(TensorGuards=comparison)
    return SimpleNamespace(
        **vars(real_torch()) | {"_C": SimpleNamespace(_dynamo=SimpleNamespace(guards=guards))}
    )


def real_torch() -> Any:
    """Return what the check takes of torch, also where the machine is a pretended one."""
    import torch

    names = ("int32", "float32", "Tensor", "nn", "_C")
    return SimpleNamespace(empty=original("empty"), **{name: getattr(torch, name) for name in names})


def _a_comparison_that_is_blind_is_not_relied_on(machine: Machine) -> None:
    repeated = import_module("spec.repeated")
    for what in (*PROPERTIES, "everything", "nothing", "errors"):
        relied = repeated.RepeatedCheck("cpu", blind_to(what))._torch
        must(relied is None, f"torch's comparison may be blind to {what}")
    relied = repeated.RepeatedCheck("cpu", SimpleNamespace())._torch
    must(relied is None, "a torch without its own comparison is relied on")


def _not_taken(check: Any, given: Change, begins: str, says: str) -> None:
    try:
        check(**given)
    except ValueError as error:
        must(str(error).startswith(begins) and says in str(error), f"refused as: {str(error)[:200]}")
    else:
        must(False, f"{begins}{says} is let pass")


CHECKS: Final[tuple[Callable[[Machine], None], ...]] = (
    _wrong_calls_after_right_ones_are_refused,
    _what_equals_a_right_number_is_none,
    _numbers_that_change_are_seen,
    _what_is_known_is_not_asked_again,
    _every_signature_is_known_again,
    _tensors_of_torch_are_compared_whole,
    _a_comparison_that_is_blind_is_not_relied_on,
)
