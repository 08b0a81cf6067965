"""Every rule on the arguments of `route`, on anything that looks like a tensor; imports no torch.

A tensor is what answers ``.shape``, ``.stride()``, ``.dtype``, ``.data_ptr()`` and ``.device``. Whatever
breaks a rule is a ValueError that names the argument, what it must be and what it was.

The rules fall into what the tensors' shapes, strides, dtypes and devices fix (`read_signature`, and
`check_device`, which comes last), the numbers (`check_numbers`) and the addresses (`check_places`):
`spec.repeated` asks the first of them once for many calls. An accepted call words no message.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from spec.constants import ALIGNMENT, MAX_TOKENS, NUM_EXPERTS, ROW_STRIDE_MULTIPLE, TOP_K
from spec.layout import check_tile, metadata_size
from spec.values import as_integer, round_scale, shown

_WORD_BYTES: Final = 4
_BIAS_BYTES: Final = _WORD_BYTES * NUM_EXPERTS

Places = tuple[int, int, int, int, int | None]
"""The addresses of logits, bias, ids, weights and metadata, None without metadata."""


@dataclass(slots=True)
class Signature:
    """What the tensors fix whatever their addresses: they have passed every rule on it but `check_device`.

    batch, row_stride
        Of the logits, in elements.
    row_bytes, pick_bytes
        From first to last byte of the logits, and of ids or weights.
    with_metadata, metadata_elements
        Whether there is a metadata buffer, and its length: 0 without one.
    device
        The device of the logits.
    """

    batch: int
    row_stride: int
    row_bytes: int
    pick_bytes: int
    with_metadata: bool
    metadata_elements: int
    device: Any


@dataclass(slots=True)
class Call:
    """A checked call in plain Python numbers.

    batch, row_stride
        Of the logits, in elements.
    scale
        Rounded to float32.
    offset, count, tile
        0 without metadata.
    variant
        The index of the device, whether there is metadata, renormalize and early_dependents: what a compiled
        kernel is for.
    """

    batch: int
    row_stride: int
    scale: float
    offset: int
    count: int
    tile: int
    variant: tuple[Any, bool, bool, bool]

    @property
    def renormalize(self) -> bool:
        """Return whether the weights are divided by their sum."""
        return self.variant[2]


def check_route(
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
    *,
    device_type: str,
) -> Call:
    """Check every argument of `route` and return the call in plain numbers.

    Parameters
    ----------
    logits
        float32 ``[b, 256]``, 1 <= b <= 8, on 16 bytes, column stride 1, row stride a multiple of 4 from 0 up.
    bias
        float32 ``[256]``, contiguous, on 16 bytes.
    ids, weights
        int32 and float32 ``[b, 8]``, strides (8, 1).
    scale
        Any `numbers.Real` except bool; rounded to float32 once, beyond its range to infinity.
    renormalize
        bool.
    metadata
        None, or a contiguous int32 vector of at least ``metadata_size(tile_n)`` elements on 16 bytes.
    local_expert_offset, num_local_experts, tile_n
        Integers, looked at only with metadata: `check_range`, and tile in 1..256.
    early_dependents
        bool.
    device_type
        ``"cuda"`` or ``"cpu"``: where all the tensors must be, on one device; checked last.

    Returns
    -------
    Call

    Raises
    ------
    ValueError
        A rule is broken; the message names the argument.
    """
    signature, places = read_signature(logits, bias, ids, weights, metadata)
    call = check_numbers(
        signature, scale, renormalize, local_expert_offset, num_local_experts, tile_n, early_dependents
    )
    check_places(signature, *places)
    check_device(device_type, logits=logits, bias=bias, ids=ids, weights=weights, metadata=metadata)
    return call


def read_signature(logits: Any, bias: Any, ids: Any, weights: Any, metadata: Any) -> tuple[Signature, Places]:
    """Check shapes, strides and dtypes; return what later checks need of them, and the addresses."""
    shape, stride, dtype, row_begin, device = _read("logits", logits)
    if len(shape) != 2 or shape[1] != NUM_EXPERTS or not 1 <= shape[0] <= MAX_TOKENS:
        raise _wrong("logits", "shape", f"[b, {NUM_EXPERTS}], 1 <= b <= {MAX_TOKENS}", list(shape))
    batch, row_stride = shape[0], stride[0]
    if dtype != "float32":
        raise _wrong("logits", "dtype", "float32", dtype)
    if stride[1] != 1:
        raise _wrong("logits", "column stride", 1, stride[1])
    if row_stride % ROW_STRIDE_MULTIPLE or row_stride < 0:
        raise _wrong("logits", "row stride", f"a multiple of {ROW_STRIDE_MULTIPLE} from 0 up", row_stride)
    row_bytes = _WORD_BYTES * ((batch - 1) * row_stride + NUM_EXPERTS)

    picks = (batch, TOP_K)
    bias_begin = _read_dense("bias", bias, "float32", (NUM_EXPERTS,), (1,))
    ids_begin = _read_dense("ids", ids, "int32", picks, (TOP_K, 1))
    weights_begin = _read_dense("weights", weights, "float32", picks, (TOP_K, 1))
    elements, begin = (0, None) if metadata is None else _read_vector(metadata)
    pick_bytes = _WORD_BYTES * TOP_K * batch
    signature = Signature(batch, row_stride, row_bytes, pick_bytes, metadata is not None, elements, device)
    return signature, (row_begin, bias_begin, ids_begin, weights_begin, begin)


def check_numbers(
    signature: Signature,
    scale: Any,
    renormalize: Any,
    local_expert_offset: Any,
    num_local_experts: Any,
    tile_n: Any,
    early_dependents: Any,
) -> Call:
    """Check what is no tensor, and the metadata's length for its tile; return the call."""
    rounded = round_scale(scale)
    _check_bools(renormalize=renormalize, early_dependents=early_dependents)
    offset = count = tile = 0
    if signature.with_metadata:
        tile = check_tile(tile_n)
        offset, count = check_range(local_expert_offset, num_local_experts)
        _check_length(signature.metadata_elements, metadata_size(tile))
    index = getattr(signature.device, "index", None)
    variant = (index, signature.with_metadata, renormalize, early_dependents)
    return Call(signature.batch, signature.row_stride, rounded, offset, count, tile, variant)


def places_fit(
    signature: Signature, logits: int, bias: int, ids: int, weights: int, metadata: int | None
) -> bool:
    """Return whether every address is aligned and no output overlaps another argument."""
    logits_end = logits + signature.row_bytes
    bias_end = bias + _BIAS_BYTES
    ids_end = ids + signature.pick_bytes
    weights_end = weights + signature.pick_bytes
    if (
        logits % ALIGNMENT
        or bias % ALIGNMENT
        or (ids < weights_end and weights < ids_end)
        or (ids < logits_end and logits < ids_end)
        or (ids < bias_end and bias < ids_end)
        or (weights < logits_end and logits < weights_end)
        or (weights < bias_end and bias < weights_end)
    ):
        return False
    if metadata is None:
        return True
    end = metadata + _WORD_BYTES * signature.metadata_elements
    return not (
        metadata % ALIGNMENT
        or (metadata < weights_end and weights < end)
        or (metadata < ids_end and ids < end)
        or (metadata < logits_end and logits < end)
        or (metadata < bias_end and bias < end)
    )


def check_places(
    signature: Signature, logits: int, bias: int, ids: int, weights: int, metadata: int | None
) -> None:
    """Raise where an address is not aligned or an output overlaps another argument."""
    if places_fit(signature, logits, bias, ids, weights, metadata):
        return
    aligned = {"logits": logits, "bias": bias, "metadata": metadata or 0}
    for name, address in aligned.items():
        if address % ALIGNMENT:
            raise ValueError(f"{name} must start on {ALIGNMENT} bytes, not at {address:#x}")
    ranges = {
        "ids": (ids, ids + signature.pick_bytes),
        "weights": (weights, weights + signature.pick_bytes),
        "logits": (logits, logits + signature.row_bytes),
        "bias": (bias, bias + _BIAS_BYTES),
    }
    if metadata is not None:
        ranges = {"metadata": (metadata, metadata + _WORD_BYTES * signature.metadata_elements), **ranges}
    raise _overlapping(ranges)


def check_device(device_type: str, **tensors: Any) -> None:
    """Check that all tensors that are not None are on one device of that type."""
    devices = {name: tensor.device for name, tensor in tensors.items() if tensor is not None}
    home = devices["logits"]
    if _device_type(home) != device_type:
        raise ValueError(f"logits must be on a {device_type} device, not on {home}")
    for name, device in devices.items():
        if device != home:
            raise ValueError(f"{name} must be on the device of logits, {home}, not on {device}")


def check_range(local_expert_offset: Any, num_local_experts: Any) -> tuple[int, int]:
    """Return this rank's experts as two ints.

    Parameters
    ----------
    local_expert_offset, num_local_experts
        Integers (not bool): offset >= 0, count >= 1, offset + count <= 256.

    Raises
    ------
    ValueError
        One of them is no integer or out of range.
    """
    offset = as_integer("local_expert_offset", local_expert_offset)
    count = as_integer("num_local_experts", num_local_experts)
    if offset < 0:
        raise ValueError(f"local_expert_offset must be 0 or more, not {shown(offset)}")
    if count < 1:
        raise ValueError(f"num_local_experts must be 1 or more, not {shown(count)}")
    if offset + count > NUM_EXPERTS:
        raise ValueError(
            f"local_expert_offset + num_local_experts must be at most {NUM_EXPERTS}, "
            f"not {shown(offset)} + {shown(count)}"
        )
    return offset, count


def check_prepare(metadata: Any, renormalize: Any, early_dependents: Any) -> None:
    """Check the variant that `prepare` and the compile functions are asked for.

    Parameters
    ----------
    metadata, renormalize, early_dependents
        bool each.

    Raises
    ------
    ValueError
        One of them is no bool.
    """
    _check_bools(metadata=metadata, renormalize=renormalize, early_dependents=early_dependents)


def _check_bools(**values: Any) -> None:
    for name, value in values.items():
        if value is not True and value is not False:
            raise ValueError(f"{name} must be a bool, not {shown(value)}")


@lru_cache(maxsize=64)
def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


@lru_cache(maxsize=64)
def _device_type(device: Any) -> str:
    return str(getattr(device, "type", device))


def _read(name: str, tensor: Any) -> tuple[Any, Any, str, int, Any]:
    """Return shape, stride, dtype, address and device; what does not answer is no tensor."""
    try:
        return tensor.shape, tensor.stride(), _dtype_name(tensor.dtype), tensor.data_ptr(), tensor.device
    except Exception as error:  # sparse, fake and foreign objects refuse in ways of their own
        raise ValueError(f"{name} must be a strided tensor, not {type(tensor).__name__}: {error}") from error


def _read_dense(name: str, tensor: Any, dtype: str, shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Check a tensor of one dtype, shape and stride, and return its address."""
    its_shape, its_stride, its_dtype, address, _ = _read(name, tensor)
    if its_dtype != dtype:
        raise _wrong(name, "dtype", dtype, its_dtype)
    if its_shape != shape:
        raise _wrong(name, "shape", list(shape), list(its_shape))
    if its_stride != stride:
        raise _wrong(name, "strides", stride, tuple(its_stride))
    return address


def _read_vector(metadata: Any) -> tuple[int, int]:
    """Check all of the metadata buffer but how long it is; return its length and address."""
    shape, stride, dtype, address, _ = _read("metadata", metadata)
    if dtype != "int32":
        raise _wrong("metadata", "dtype", "int32", dtype)
    if len(shape) != 1:
        raise _wrong("metadata", "shape", "[n], n >= metadata_size(tile_n)", list(shape))
    if stride != (1,):
        raise _wrong("metadata", "strides", (1,), tuple(stride))
    return shape[0], address


def _check_length(elements: int, needed: int) -> None:
    if elements < needed:
        raise _wrong("metadata", "shape", f"[n], n >= metadata_size(tile_n) = {needed}", [elements])


def _wrong(name: str, what: str, rule: object, value: object) -> ValueError:
    return ValueError(f"{name} must have {what} {rule}, not {value}")


def _overlapping(ranges: dict[str, tuple[int, int]]) -> ValueError:
    """Word the first overlap; the outputs come first in ``ranges``."""
    names = list(ranges)
    first, second = next(
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if ranges[a][0] < ranges[b][1] and ranges[b][0] < ranges[a][1]
    )
    spans = (f"{name} at {ranges[name][0]:#x}..{ranges[name][1] - 1:#x}" for name in (first, second))
    return ValueError(f"{first} must not overlap {second}: {', '.join(spans)}")
