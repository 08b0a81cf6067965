"""Calls of `route` outside the contract and just inside of it, by the rule they break or keep."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import inf, nan
from typing import Any, Final

import numpy as np

from oracle.mutants.pretended import Tensor
from spec.layout import metadata_size

TOKENS: Final = 3
TILE: Final = 8
_STEP: Final = 1 << 24
_BASES: Final = {
    name: (i + 1) * _STEP for i, name in enumerate(("logits", "bias", "ids", "weights", "metadata"))
}
_ALIGNED: Final = ("logits", "bias", "metadata")
_HUGE: Final = 10**5000

Change = dict[str, Any]


@dataclass(frozen=True)
class Wrong:
    """A call outside the contract: what its message begins with, and what else it must say."""

    change: Change
    begins: str
    says: tuple[str, ...] = ()


def arguments(change: Change, device: Any) -> Change:
    """Return arguments of `route` within the contract, by name, then changed.

    A dict changes some properties of that tensor, anything else replaces the argument.
    """
    tokens = change.get("b", TOKENS)
    size = metadata_size(TILE) + 3  # whole 16 bytes
    tensors: dict[str, Change] = {
        "logits": {"dtype": "torch.float32", "shape": (tokens, 256), "strides": (256, 1)},
        "bias": {"dtype": "torch.float32", "shape": (256,), "strides": (1,)},
        "ids": {"dtype": "torch.int32", "shape": (tokens, 8), "strides": (8, 1)},
        "weights": {"dtype": "torch.float32", "shape": (tokens, 8), "strides": (8, 1)},
        "metadata": {"dtype": "torch.int32", "shape": (size,), "strides": (1,)},
    }
    given: Change = {
        "scale": 2.5, "renormalize": True, "local_expert_offset": 64, "num_local_experts": 32, "tile_n": TILE,
    }  # fmt: skip
    for name, properties in tensors.items():
        given[name] = Tensor(**{"address": _BASES[name], "device": device, **properties})
    for name, value in change.items():
        if isinstance(value, dict):
            given[name] = Tensor(**{"address": _BASES[name], "device": device, **tensors[name], **value})
        elif name != "b":
            given[name] = value
    return given


def _bytes(name: str) -> int:
    """Return the length of an argument's byte range in the unchanged call."""
    return {
        "logits": 4 * 256 * TOKENS, "bias": 4 * 256, "ids": 4 * 8 * TOKENS, "weights": 4 * 8 * TOKENS,
        "metadata": 4 * (metadata_size(TILE) + 3),
    }[name]  # fmt: skip


def _neighbours() -> Iterator[tuple[str, str, int, int, bool]]:
    """Yield two tensors and the first's address: just touching the second, or just overlapping it."""
    order = ("metadata", "ids", "weights", "logits", "bias")
    for i, first in enumerate(order):
        for second in order[i + 1 :]:
            if {first, second} == {"logits", "bias"}:
                continue
            step = 16 if first in _ALIGNED else 4
            before, behind = _BASES[second] - _bytes(first), _BASES[second] + _bytes(second)
            for address, overlaps in (
                (before, False),
                (before + step, True),
                (behind - step, True),
                (behind, False),
            ):
                yield first, second, address, _bytes(first), overlaps


def _tensor_rules() -> Iterator[tuple[str, Wrong]]:
    row = "a multiple of 4 from 0 up"
    changes: tuple[tuple[str, Change, str, tuple[str, ...]], ...] = (
        ("logits", {"shape": (256,), "strides": (1,)}, "shape", ("[b, 256], 1 <= b <= 8, not [256]",)),
        ("logits", {"shape": (1, 3, 256), "strides": (768, 256, 1)}, "shape", ("not [1, 3, 256]",)),
        ("logits", {"shape": (3, 255)}, "shape", ("not [3, 255]",)),
        ("logits", {"shape": (3, 257)}, "shape", ("not [3, 257]",)),
        ("logits", {"shape": (0, 256)}, "shape", ("not [0, 256]",)),
        ("logits", {"shape": (9, 256)}, "shape", ("not [9, 256]",)),
        ("logits", {"dtype": "torch.float64"}, "dtype", ("float32, not float64",)),
        ("logits", {"dtype": "torch.int32"}, "dtype", ("float32, not int32",)),
        ("logits", {"strides": (512, 2)}, "column stride", ("1, not 2",)),
        ("logits", {"strides": (256, 0)}, "column stride", ("1, not 0",)),
        ("logits", {"strides": (258, 1)}, "row stride", (f"{row}, not 258",)),
        ("logits", {"strides": (1, 1)}, "row stride", (f"{row}, not 1",)),
        ("logits", {"strides": (-4, 1)}, "row stride", (f"{row}, not -4",)),
        ("logits", {"strides": (-256, 1)}, "row stride", (f"{row}, not -256",)),
        ("bias", {"shape": (255,)}, "shape", ("[256], not [255]",)),
        ("bias", {"shape": (1, 256), "strides": (256, 1)}, "shape", ("[256], not [1, 256]",)),
        ("bias", {"dtype": "torch.float16"}, "dtype", ("float32, not float16",)),
        ("bias", {"dtype": "torch.int32"}, "dtype", ("float32, not int32",)),
        ("bias", {"strides": (2,)}, "strides", ("(1,), not (2,)",)),
        ("bias", {"strides": (0,)}, "strides", ("(1,), not (0,)",)),
        ("metadata", {"dtype": "torch.int64"}, "dtype", ("int32, not int64",)),
        ("metadata", {"dtype": "torch.float32"}, "dtype", ("int32, not float32",)),
        ("metadata", {"shape": (1, 712), "strides": (712, 1)}, "shape", ("(tile_n), not [1, 712]",)),
        ("metadata", {"shape": (712, 1), "strides": (1, 1)}, "shape", ("not [712, 1]",)),
        ("metadata", {"shape": (708,)}, "shape", ("[n], n >= metadata_size(tile_n) = 709, not [708]",)),
        ("metadata", {"strides": (2,)}, "strides", ("(1,), not (2,)",)),
    )  # fmt: skip
    for name, change, what, says in changes:
        yield f"{name} {change}", Wrong({name: change}, f"{name} must have {what} ", says)
    for name, right, other in (("ids", "int32", "int64"), ("weights", "float32", "float64")):
        swapped = "float32" if right == "int32" else "int32"
        for b, change, what, said in (
            (3, {"dtype": f"torch.{other}"}, "dtype", f"{right}, not {other}"),
            (3, {"dtype": f"torch.{swapped}"}, "dtype", f"{right}, not {swapped}"),
            (3, {"shape": (3, 7)}, "shape", "[3, 8], not [3, 7]"),
            (3, {"shape": (3, 9)}, "shape", "[3, 8], not [3, 9]"),
            (3, {"shape": (4, 8)}, "shape", "[3, 8], not [4, 8]"),
            (3, {"shape": (24,), "strides": (1,)}, "shape", "[3, 8], not [24]"),
            (3, {"strides": (16, 1)}, "strides", "(8, 1), not (16, 1)"),
            (3, {"strides": (8, 2)}, "strides", "(8, 1), not (8, 2)"),
            (1, {"strides": (16, 1)}, "strides", "(8, 1), not (16, 1)"),
            (1, {"strides": (8, 2)}, "strides", "(8, 1), not (8, 2)"),
        ):
            yield (
                f"{name} {change} b={b}",
                Wrong({"b": b, name: change}, f"{name} must have {what} ", (said,)),
            )
    yield (
        "logits strided at b=1",
        Wrong({"b": 1, "logits": {"strides": (257, 1)}}, "logits must have row stride ", (row,)),
    )
    for name in _ALIGNED:
        for off in (4, 8, 12):
            at = _BASES[name] + off
            yield (
                f"{name} {off} bytes off",
                Wrong({name: {"address": at}}, f"{name} must start on 16 bytes", (f"not at {at:#x}",)),
            )
    for name in _BASES:
        yield f"{name} a list", Wrong({name: [0.0]}, f"{name} must be a strided tensor", ("not list",))
        if name != "metadata":
            yield f"{name} None", Wrong({name: None}, f"{name} must be a strided tensor", ("not NoneType",))


def _number_rules() -> Iterator[tuple[str, Wrong]]:
    values: tuple[Any, ...] = (True, None, "1.0", 1j, Decimal(1), [1.0], np.ones(1, np.float32), np.True_)
    for value in values:
        yield (
            f"scale {value!r}",
            Wrong({"scale": value}, "scale must be a real number (not bool), not ", (repr(value),)),
        )
    values = (1, 0, None, "yes", np.True_, 1.0)
    for name in ("renormalize", "early_dependents"):
        for value in values:
            yield f"{name} {value!r}", Wrong({name: value}, f"{name} must be a bool, not ", (repr(value),))
    for name in ("local_expert_offset", "num_local_experts", "tile_n"):
        values = (True, np.True_, 1.0, "1", None, Fraction(1))
        for value in values:
            yield f"{name} {value!r}", Wrong({name: value}, f"{name} must be an integer", (f"not {value!r}",))
    least, most = (
        "num_local_experts must be 1 or more, not ",
        "local_expert_offset + num_local_experts must be at most 256, not ",
    )
    for offset, count, begins, says in (
        (-1, 32, "local_expert_offset must be 0 or more, not ", "-1"),
        (-300, 32, "local_expert_offset must be 0 or more, not ", "-300"),
        (64, 0, least, "0"),
        (64, -5, least, "-5"),
        (256, 1, most, "256 + 1"),
        (0, 257, most, "0 + 257"),
        (1, 256, most, "1 + 256"),
        (200, 57, most, "200 + 57"),
        (_HUGE, 1, most, "<int> + 1"),
    ):
        change = {"local_expert_offset": offset, "num_local_experts": count}
        yield f"range {begins}{says}", Wrong(change, begins, (says,))
    for tile in (0, 257, -8, _HUGE):
        yield f"tile {min(tile, 999)}", Wrong({"tile_n": tile}, "tile_n must be an integer in 1..256, not ")
    yield (
        "metadata short for its tile",
        Wrong({"tile_n": 9}, "metadata must have shape ", ("= 773, not [712]",)),
    )


def _overlaps() -> Iterator[tuple[str, Wrong]]:
    for first, second, address, length, overlaps in _neighbours():
        if overlaps:
            start = _BASES[second]
            spans = (
                f"{first} at {address:#x}..{address + length - 1:#x}",
                f"{second} at {start:#x}..{start + _bytes(second) - 1:#x}",
            )
            moved = {first: {"address": address}}
            yield (
                f"{first} on {second} at {address:#x}",
                Wrong(moved, f"{first} must not overlap {second}: ", spans),
            )
    change: Change
    for tokens, into in ((2, 4096 - 64), (3, 8192 + 1020)):
        gaps = {"strides": (1024, 1)}
        change = {"b": tokens, "logits": gaps, "ids": {"address": _BASES["logits"] + into}}
        yield f"ids in a gap of {tokens} rows", Wrong(change, "ids must not overlap logits: ")
    # Outputs that touch are not what is wrong with these.
    for side in (-_bytes("ids"), _bytes("weights")):
        inside = _BASES["bias"] + 256
        change = {"ids": {"address": inside + side}, "weights": {"address": inside}, "bias": {}}
        change["bias"] = {"address": inside - 1024 + 32 if side > 0 else inside + 32}
        yield f"touching {side}, weights on bias", Wrong(change, "weights must not overlap bias: ")


def wrong_calls() -> dict[str, Wrong]:
    """Return calls that break one rule each, by a name; all tensors are on the right device."""
    return {**dict(_tensor_rules()), **dict(_number_rules()), **dict(_overlaps())}


def right_calls() -> Iterator[tuple[Change, Change]]:
    """Yield calls within the contract, and the numbers that the kernel must get."""
    for b in range(1, 9):
        yield {"b": b}, {"b": b}
    for stride in (0, 4, 260, 1 << 31, (1 << 31) + 4, 1 << 40):
        # The rows lie behind everything else: gaps belong to their range.
        yield {"logits": {"strides": (stride, 1), "address": 64 * _STEP}}, {"row_stride": stride}
    for scale, rounded in (
        (1, 1.0), (Fraction(1, 3), float(np.float32(1 / 3))), (1e39, inf), (-1e39, -inf), (inf, inf),
        (-0.0, -0.0), (np.float32(0.1), float(np.float32(0.1))), (0.1, float(np.float32(0.1))),
        (10**400, inf), (nan, nan),
    ):  # fmt: skip
        yield {"scale": scale}, {"scale": rounded}
    for renormalize in (True, False):
        yield {"renormalize": renormalize}, {"renormalize": renormalize}
    for offset, count in ((0, 1), (255, 1), (0, 256), (np.int32(128), np.int64(128)), (1, 255)):
        yield (
            {"local_expert_offset": offset, "num_local_experts": count},
            {"offset": int(offset), "count": int(count)},
        )
    for tile in (1, 256, 7):
        change = {"tile_n": tile, "metadata": {"shape": (metadata_size(tile),), "address": 64 * _STEP}}
        yield change, {"tile": tile}
    yield {"metadata": None}, {"offset": 0, "count": 0, "tile": 0}
    yield {"metadata": None, "renormalize": False}, {"renormalize": False, "offset": 0, "count": 0, "tile": 0}
    metadata: Change | None
    for metadata, early in product(({}, None), (False, True)):
        numbers = {} if metadata is not None else {"offset": 0, "count": 0, "tile": 0}
        yield {"metadata": metadata, "early_dependents": early}, numbers
    strange = {"metadata": None, "local_expert_offset": "x", "num_local_experts": -1, "tile_n": None}
    yield strange, {"offset": 0, "count": 0, "tile": 0}
    yield {"ids": {"address": _BASES["ids"] + 4}, "weights": {"address": _BASES["weights"] + 12}}, {}
    yield {"bias": {"address": _BASES["logits"] + 16}}, {}
    for first, _, address, _, overlaps in _neighbours():
        if not overlaps:
            yield {first: {"address": address}}, {}
