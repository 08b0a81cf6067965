"""What the checks of the hosts share: calls on a pretended machine, and what a launch must have got."""

import math
import struct
from typing import Any

from oracle.mutants.calls import TILE, TOKENS, Change, arguments
from oracle.mutants.pretended import STREAM, Machine
from spec.layout import metadata_size


class NoticedError(Exception):
    """A check failed; its text says which and how."""


def must(condition: bool, what: str) -> None:
    """Raise where the condition does not hold."""
    if not condition:
        raise NoticedError(what)


def device(index: int = 0, kind: str = "cuda") -> Any:
    """Return a device of torch."""
    import torch

    return torch.device(kind) if kind != "cuda" else torch.device("cuda", index)


def call(index: int = 0, **change: Any) -> Change:
    """Return arguments of `route`, on a device of the machine."""
    return arguments(change, device(index))


def check_launch(launch: Change, given: Change, numbers: Change, where: str) -> None:
    """Hold a launch to the call that led to it, and to the numbers that the kernel must get."""
    right: Change = {
        "b": TOKENS, "row_stride": 256, "scale": 2.5, "offset": 64, "count": 32, "tile": TILE,
        "device": given["logits"].device.index, "stream": STREAM + given["logits"].device.index, **numbers,
    }  # fmt: skip
    right["variant"] = (
        given["metadata"] is not None,
        right.pop("renormalize", given.get("renormalize", True)),
        given.get("early_dependents", False),
    )
    for name in ("logits", "bias", "ids", "weights", "metadata"):
        right[name] = None if given[name] is None else given[name].address
    for name, value in right.items():
        must(same(launch[name], value), f"{where}: {name} is {launch[name]!r}, not {value!r}")


def same(one: Any, other: Any) -> bool:
    """Return whether two values are one, in type and bits."""
    if isinstance(other, float):
        bits = [struct.pack("d", value) for value in (one, other)]
        return isinstance(one, float) and (bits[0] == bits[1] or (math.isnan(one) and math.isnan(other)))
    return type(one) is type(other) and bool(one == other)


def refused(machine: Machine, host: Any, given: Change, says: tuple[str, ...], name: str) -> None:
    """Hold `route` to refuse a call in these words, before anything is compiled or launched."""
    before = len(machine.built), len(machine.launched)
    try:
        host.route(**given)
    except ValueError as error:
        text = str(error)
        must(
            text.startswith(says[0]) and all(part in text for part in says),
            f"{name} is refused as: {text[:200]}",
        )
    else:
        raise NoticedError(f"{name} is accepted")
    must((len(machine.built), len(machine.launched)) == before, f"{name} is compiled or launched")


def check_scratch(launch: Change) -> None:
    """Hold a run on scratch tensors to the contract."""
    tensors = {
        name: launch.get(f"{name}_tensor") for name in ("logits", "bias", "ids", "weights", "metadata")
    }
    shapes = {"logits": (1, 256), "bias": (256,), "ids": (1, 8), "weights": (1, 8)}
    for name, shape in shapes.items():
        tensor: Any = tensors[name]
        kind = "torch.int32" if name == "ids" else "torch.float32"
        must(
            tuple(tensor.shape) == shape and str(tensor.dtype) == kind and tensor.is_contiguous(),
            f"scratch {name}",
        )
    kinds = [type(launch[name]) for name in ("scale", "offset", "count", "tile")]
    must(kinds == [float, int, int, int], f"scratch numbers are {kinds}")
    with_metadata = launch["variant"][0]
    metadata: Any = tensors["metadata"]
    must((metadata is not None) == with_metadata, "scratch metadata")
    if with_metadata:
        tile, offset, count = launch["tile"], launch["offset"], launch["count"]
        must(1 <= tile <= 256 and offset >= 0 and 1 <= count <= 256 - offset, "scratch numbers")
        must(
            str(metadata.dtype) == "torch.int32" and metadata.numel() >= metadata_size(tile),
            "scratch metadata",
        )
    names = ("logits", "bias", "ids", "weights", *(("metadata",) if with_metadata else ()))
    spans = [(launch[n], launch[n] + 4 * tensors[n].numel()) for n in names]  # type: ignore[union-attr]
    must(
        all(a[0] >= b[1] or b[0] >= a[1] for i, a in enumerate(spans) for b in spans[:i]), "scratch overlaps"
    )
