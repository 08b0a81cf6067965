"""Every rule on the arguments of `route`, on anything that looks like a tensor; imports no torch.

A tensor is what answers ``.shape``, ``.stride()``, ``.dtype``, ``.data_ptr()`` and ``.device``. Whatever
breaks a rule is a ValueError that names the argument, what it must be and what it was. Every call to `route`
passes here, so an accepted call reads each property once and words no message.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from spec.constants import ALIGNMENT, MAX_TOKENS, NUM_EXPERTS, ROW_STRIDE_MULTIPLE, TOP_K
from spec.layout import check_tile, metadata_size
from spec.values import as_integer, round_scale, shown

_WORD_BYTES: Final = 4


@dataclass(slots=True)
class Call:
    """A checked call in plain Python numbers; offset, count and tile are 0 without metadata."""

    batch: int
    scale: float
    renormalize: bool
    offset: int
    count: int
    tile: int
    early_dependents: bool


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
    if row_begin % ALIGNMENT:
        raise _misaligned("logits", row_begin)
    row_end = row_begin + _WORD_BYTES * ((batch - 1) * row_stride + NUM_EXPERTS)

    bias_begin, bias_device = _read_dense("bias", bias, "float32", (NUM_EXPERTS,), (1,))
    if bias_begin % ALIGNMENT:
        raise _misaligned("bias", bias_begin)
    bias_end = bias_begin + _WORD_BYTES * NUM_EXPERTS

    picks = (batch, TOP_K)
    ids_begin, ids_device = _read_dense("ids", ids, "int32", picks, (TOP_K, 1))
    ids_end = ids_begin + _WORD_BYTES * TOP_K * batch
    weights_begin, weights_device = _read_dense("weights", weights, "float32", picks, (TOP_K, 1))
    weights_end = weights_begin + _WORD_BYTES * TOP_K * batch

    rounded = round_scale(scale)
    if renormalize is not True and renormalize is not False:
        raise _no_bool("renormalize", renormalize)
    if early_dependents is not True and early_dependents is not False:
        raise _no_bool("early_dependents", early_dependents)

    if (
        (ids_begin < weights_end and weights_begin < ids_end)
        or (ids_begin < row_end and row_begin < ids_end)
        or (ids_begin < bias_end and bias_begin < ids_end)
        or (weights_begin < row_end and row_begin < weights_end)
        or (weights_begin < bias_end and bias_begin < weights_end)
    ):
        raise _overlapping(
            ids=(ids_begin, ids_end),
            weights=(weights_begin, weights_end),
            logits=(row_begin, row_end),
            bias=(bias_begin, bias_end),
        )

    offset = count = tile = 0
    one_device = bias_device == device and ids_device == device and weights_device == device
    if metadata is not None:
        tile = check_tile(tile_n)
        offset, count = check_range(local_expert_offset, num_local_experts)
        begin, length, metadata_device = _read_vector(metadata, metadata_size(tile))
        end = begin + _WORD_BYTES * length
        if (
            (begin < weights_end and weights_begin < end)
            or (begin < ids_end and ids_begin < end)
            or (begin < row_end and row_begin < end)
            or (begin < bias_end and bias_begin < end)
        ):
            raise _overlapping(
                metadata=(begin, end),
                ids=(ids_begin, ids_end),
                weights=(weights_begin, weights_end),
                logits=(row_begin, row_end),
                bias=(bias_begin, bias_end),
            )
        one_device = one_device and metadata_device == device
    if not one_device or _device_type(device) != device_type:
        raise _misplaced(device_type, logits=logits, bias=bias, ids=ids, weights=weights, metadata=metadata)
    return Call(batch, rounded, renormalize, offset, count, tile, early_dependents)


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
    variant = {"metadata": metadata, "renormalize": renormalize, "early_dependents": early_dependents}
    for name, value in variant.items():
        if value is not True and value is not False:
            raise _no_bool(name, value)


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


def _read_dense(
    name: str, tensor: Any, dtype: str, shape: tuple[int, ...], stride: tuple[int, ...]
) -> tuple[int, Any]:
    """Check a tensor of one dtype, shape and stride, and return its address and device."""
    its_shape, its_stride, its_dtype, address, device = _read(name, tensor)
    if its_dtype != dtype:
        raise _wrong(name, "dtype", dtype, its_dtype)
    if its_shape != shape:
        raise _wrong(name, "shape", list(shape), list(its_shape))
    if its_stride != stride:
        raise _wrong(name, "strides", stride, tuple(its_stride))
    return address, device


def _read_vector(metadata: Any, needed: int) -> tuple[int, int, Any]:
    """Check the metadata buffer of ``needed`` elements or more, and return its address, length and device."""
    shape, stride, dtype, address, device = _read("metadata", metadata)
    if dtype != "int32":
        raise _wrong("metadata", "dtype", "int32", dtype)
    if len(shape) != 1 or shape[0] < needed:
        raise _wrong("metadata", "shape", f"[n], n >= metadata_size(tile_n) = {needed}", list(shape))
    if stride != (1,):
        raise _wrong("metadata", "strides", (1,), tuple(stride))
    if address % ALIGNMENT:
        raise _misaligned("metadata", address)
    return address, shape[0], device


def _no_bool(name: str, value: object) -> ValueError:
    return ValueError(f"{name} must be a bool, not {shown(value)}")


def _wrong(name: str, what: str, rule: object, value: object) -> ValueError:
    return ValueError(f"{name} must have {what} {rule}, not {value}")


def _misaligned(name: str, address: int) -> ValueError:
    return ValueError(f"{name} must start on {ALIGNMENT} bytes, not at {address:#x}")


def _overlapping(**ranges: tuple[int, int]) -> ValueError:
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


def _misplaced(device_type: str, **tensors: Any) -> ValueError:
    """Word the first tensor that is not on the one device, ``logits`` first."""
    devices = {name: tensor.device for name, tensor in tensors.items() if tensor is not None}
    home = devices["logits"]
    if home.type != device_type:
        return ValueError(f"logits must be on a {device_type} device, not on {home}")
    name = next(name for name, device in devices.items() if device != home)
    return ValueError(f"{name} must be on the device of logits, {home}, not on {devices[name]}")
