"""The contract for calls that repeat: what tensors' signatures fix is asked once for each signature.

A call passes quickly where its tensors have the shapes, strides, dtypes and devices of a call that has passed
`spec.contract` before. Numbers and addresses are checked on every call, by the functions of `spec.contract`.
Nothing here states a rule: tensors that differ from those that have passed go through all of them.
"""

from collections.abc import Callable
from typing import Any, Final

from spec.contract import (
    Call,
    check_device,
    check_numbers,
    check_places,
    places_fit,
    read_signature,
)

SIGNATURES: Final = 16
"""Signatures that are remembered with metadata, and without: every batch size, twice."""

PLACES: Final = 4096
"""Addresses of a call's tensors that are remembered with each: of every layer, in any buffers."""

Agree = Callable[..., bool]
"""Tells whether tensors have the shapes, strides, dtypes and devices of those that it was made of."""

Checked = tuple[Call, int, int, int, int, int | None]
"""The call, and the addresses of logits, bias, ids, weights and metadata (None without metadata)."""

# What tells whether tensors agree with those that passed, where such lay, their signature, the call, and the
# objects given as scale, renormalize, local_expert_offset, num_local_experts, tile_n and early_dependents.
_Passed = tuple[Agree, set[Any], Any, Any, Any, Any, Any, Any, Any, Any]

_NAMES: Final = ("logits", "bias", "ids", "weights", "metadata")
_NEVER_CHANGE: Final = (int, float, bool)


class RepeatedCheck:
    """`spec.contract.check_route` for a caller with many calls; threads may share it.

    Parameters
    ----------
    device_type
        ``"cuda"`` or ``"cpu"``, as in `check_route`.
    torch
        That module, where its tensors are to be expected: it compares them faster than is done here.
    """

    def __init__(self, device_type: str, torch: Any = None) -> None:
        self._device_type = device_type
        self._torch = torch if sees_all_that_matters(torch) else None
        # What has passed without metadata, and with it: the last one first.
        self._plain: tuple[_Passed, ...] = ()
        self._full: tuple[_Passed, ...] = ()

    def __call__(
        self,
        logits: Any,
        bias: Any,
        ids: Any,
        weights: Any,
        scale: Any,
        renormalize: Any,
        metadata: Any,
        local_expert_offset: Any,
        num_local_experts: Any,
        tile_n: Any,
        early_dependents: Any,
    ) -> Checked:
        """Check every argument of `route`, which are these, and return the call and where its tensors are.

        Raises
        ------
        ValueError
            A rule is broken; the message names the argument.
        """
        try:
            if metadata is None:
                agree, seen, signature, call, was_scale, sums, offset, count, tile, early = self._plain[0]
                again = agree(logits, bias, ids, weights)
                at = None
            else:
                agree, seen, signature, call, was_scale, sums, offset, count, tile, early = self._full[0]
                again = (
                    tile_n is tile
                    and num_local_experts is count
                    and local_expert_offset is offset
                    and agree(logits, bias, ids, weights, metadata)
                )
                at = metadata.data_ptr()
            places = logits.data_ptr(), bias.data_ptr(), ids.data_ptr(), weights.data_ptr(), at
        except Exception:  # nothing has passed yet, or these are no tensors: the contract says so
            again = False
        if (
            again
            and (scale is was_scale or (type(scale) is float and scale == was_scale != 0))
            and renormalize is sums
            and early_dependents is early
            and (places in seen or _fit(signature, places, seen))
        ):
            return call, *places
        return self._check(
            (logits, bias, ids, weights, metadata),
            (scale, renormalize, local_expert_offset, num_local_experts, tile_n, early_dependents),
        )

    def _check(self, tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Checked:
        """Check a call that is not the last one again, and put it first."""
        with_metadata = tensors[-1] is not None
        given = tensors if with_metadata else tensors[:-1]
        known = self._known(self._full if with_metadata else self._plain, given)
        signature, places = read_signature(*tensors) if known is None else known[2:]
        call = check_numbers(signature, *numbers)
        check_places(signature, *places)
        if known is None:
            check_device(self._device_type, **dict(zip(_NAMES, tensors, strict=True)))
            agree, seen = self._agreement(given), set[Any]()
        else:
            agree, seen = known[:2]
        kept = (number if type(number) in _NEVER_CHANGE else object() for number in numbers)
        passed: Any = (agree, seen, signature, call, *kept)
        if with_metadata:
            self._full = _first(passed, self._full)
        else:
            self._plain = _first(passed, self._plain)
        return call, *places

    def _known(
        self, passed: tuple[_Passed, ...], given: tuple[Any, ...]
    ) -> tuple[Agree, set[Any], Any, Any] | None:
        """Return what has passed with the signature of these tensors, and where they are; else None."""
        try:
            for agree, seen, signature, *_ in passed:
                if agree(*given):
                    places = (*(tensor.data_ptr() for tensor in given), None)
                    return agree, seen, signature, places[: len(_NAMES)]
        except Exception:  # of objects that are no tensors
            pass
        return None

    def _agreement(self, tensors: tuple[Any, ...]) -> Agree:
        if self._torch is not None:
            plain = (self._torch.Tensor, self._torch.nn.Parameter)
            if all(type(tensor) in plain for tensor in tensors):
                return _guarded(self._torch, tensors)
        return _compared(tensors)


def _first(passed: _Passed, others: tuple[_Passed, ...]) -> tuple[_Passed, ...]:
    return (passed, *(other for other in others if other[0] is not passed[0]))[:SIGNATURES]


def _fit(signature: Any, places: Any, seen: set[Any]) -> bool:
    """Return whether the contract lets the tensors lie there, and remember it if it does."""
    if not places_fit(signature, *places):
        return False
    if len(seen) >= PLACES:
        seen.clear()
    seen.add(places)
    return True


def _compared(tensors: tuple[Any, ...]) -> Agree:
    """Compare tensors by what the contract reads of them."""
    made_of = [(tuple(t.shape), tuple(t.stride()), t.dtype, t.device) for t in tensors]

    def agree(*tensors: Any) -> bool:
        return all(
            tensor.shape == shape
            and tensor.stride() == stride
            and tensor.dtype == dtype
            and tensor.device == device
            for tensor, (shape, stride, dtype, device) in zip(tensors, made_of, strict=True)
        )

    return agree


def _guarded(torch: Any, tensors: tuple[Any, ...]) -> Agree:
    """Compare tensors as torch's compiler does, in one call: also by type, layout and requires_grad."""
    sizes = [list(tensor.shape) for tensor in tensors]
    strides = [list(tensor.stride()) for tensor in tensors]
    guards = torch._C._dynamo.guards.TensorGuards(
        *tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
    )
    agree: Agree = guards.check
    return agree


def sees_all_that_matters(torch: Any) -> bool:
    """Return whether torch's own comparison is there and tells apart whatever the contract does.

    It is part of torch's compiler and may change with torch: it is tried before it is relied on.
    """

    def made(*shape: int, dtype: str = "int32", device: str = "cpu") -> Any:
        return torch.empty(shape, dtype=getattr(torch, dtype), device=device)

    try:
        agree = _guarded(torch, (made(1, 8),))
        # Each differs in one property alone: rows, strides, dtype, device, type.
        others = (
            made(2, 8),
            made(1, 16)[:, :8],
            made(1, 8, dtype="float32"),
            made(1, 8, device="meta"),
            None,
        )
        return agree(made(1, 8)) and not any(agree(other) for other in others)
    except Exception:  # of a torch that has none, or another
        return False
