"""Makes calls of a file's arrays, under the rules of the contract; whatever breaks one is a TrafficError."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle import replay
from oracle.problem import F32, I32, LARGEST_STRIDE, POISON_WORD, Batch, Ranges
from oracle.traffic.calls import FAMILY, UNKNOWN, Calls, Given
from oracle.traffic.files import Array, Content, TrafficError, read
from spec.constants import MAX_TOKENS, NUM_EXPERTS, ROW_STRIDE_MULTIPLE, TOP_K
from spec.contract import check_range
from spec.layout import check_tile, metadata_size

_ASSUMED: Final = {"scale": "scale 1", "renormalize": "renormalize True"}
_ASSUMED_RANGE: Final = {"local_expert_offset": "offset 0", "num_local_experts": "256 local experts"}
_RECORDING: Final = ("cute", "triton", "spec")


def load(path: Path) -> Iterator[Calls]:
    """Yield the calls of one file: of `oracle.traffic.record`, of `check`, or of anyone.

    Raises
    ------
    TrafficError
        The file is damaged or holds no calls.
    CannotRunError
        What reads this kind of file is not installed.
    """
    if replay.is_saved(path):
        try:
            _, batch, _ = replay.load(path)
        except replay.ReplayFileError as error:
            raise TrafficError(str(error)) from error
        batch = replace(batch, family=FAMILY)
        yield Calls(path, UNKNOWN, np.zeros(1, np.int64), batch, Given())
        return
    content = read(path)
    try:
        yield from _Reader(path, content).calls()
    except (ValueError, TypeError) as error:
        raise TrafficError(f"{path}: {error}") from error


class _Reader:
    """The arrays of one file, each taken out once under the rules of the contract."""

    def __init__(self, path: Path, content: Content) -> None:
        self.path = path
        self.ignored = content.ignored
        self.backend = content.about.get("backend", UNKNOWN)
        self.arrays = content.arrays
        logits = self._floats("logits")
        bias = self._floats("bias")
        for name, array, shape in (("logits", logits, "[n, b, 256]"), ("bias", bias, "[256]")):
            if (
                array.ndim == 0
                or array.shape[-1] != NUM_EXPERTS
                or array.ndim > (3 if name == "logits" else 2)
            ):
                raise ValueError(f"{name} must have the shape {shape}, not {list(array.shape)}")
        self.rows = logits.ndim < 3
        self.logits = logits.reshape(-1, NUM_EXPERTS) if self.rows else logits
        self.count = 1 if self.rows else len(logits)
        if not self.logits.size:
            raise ValueError("logits hold no row")
        if not self.rows and logits.shape[1] > MAX_TOKENS:
            raise ValueError(f"logits must have 1 <= b <= {MAX_TOKENS} rows a call, not {logits.shape[1]}")
        self.bias = self._each("bias", bias, 1)

    def calls(self) -> Iterator[Calls]:
        """Yield the file's calls; rows without calls are cut into calls of eight rows."""
        if not self.rows:
            yield self._made(self.logits, slice(None), 0)
            return
        for start in range(0, len(self.logits), MAX_TOKENS):
            if start and "tile_n" in self.arrays:
                raise ValueError(f"logits of more than {MAX_TOKENS} rows are no call with metadata")
            rows = slice(start, start + MAX_TOKENS)
            yield self._made(self.logits[None, rows], rows, start // MAX_TOKENS)

    def _made(self, logits: F32, rows: slice, number: int) -> Calls:
        tokens = logits.shape[1]
        stride = self._integers("row_stride", NUM_EXPERTS)
        if (stride % ROW_STRIDE_MULTIPLE).any() or (stride < 0).any():
            raise ValueError(f"row_stride must be a multiple of {ROW_STRIDE_MULTIPLE} from 0 up")
        same = (logits.view(np.uint32) == logits[:, :1].view(np.uint32)).all(axis=(1, 2))
        # Rows that overlap in memory, or lie too far apart to replay, are laid out apart: their values count.
        kept = (stride >= NUM_EXPERTS) & (stride <= LARGEST_STRIDE) | (stride == 0) & same
        stride = np.where(kept, stride, NUM_EXPERTS)
        ranges = self._ranges()
        batch = Batch(FAMILY, logits, self.bias, self._scale(), self._renormalize(), stride, ranges)
        given = Given(*self._picks(rows, tokens), *self._buffers(ranges))
        backend = self.backend if self.backend in _RECORDING else UNKNOWN
        names = _ASSUMED | (_ASSUMED_RANGE if ranges is not None else {})
        assumed = tuple(text for name, text in names.items() if name not in self.arrays)
        numbers = number + np.arange(self.count)
        return Calls(self.path, backend, numbers, batch, given, self.ignored, assumed)

    def _floats(self, name: str) -> F32:
        if name not in self.arrays:
            raise ValueError(f"there is no array {name}")
        array = self.arrays[name]
        if array.dtype != np.float32:
            raise ValueError(f"{name} must be float32, as the kernel takes it, not {array.dtype}")
        return np.ascontiguousarray(array)

    def _each(self, name: str, array: Array, axes: int = 0) -> Array:
        """Return an array of ``axes`` axes for every call, from one for all or one each."""
        if array.ndim == axes:
            array = array[None]
        if array.ndim != axes + 1 or len(array) not in (1, self.count):
            raise ValueError(f"{name} must be one for all or {self.count}, not {list(array.shape)}")
        return np.ascontiguousarray(np.broadcast_to(array, (self.count, *array.shape[1:])))

    def _integers(self, name: str, default: int) -> npt.NDArray[np.int64]:
        array = self.arrays.get(name, np.array(default))
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name} must be integers, not {array.dtype}")
        return self._each(name, array.astype(np.int64))

    def _scale(self) -> F32:
        array = self.arrays.get("scale", np.array(1.0, np.float32))
        if array.dtype.kind not in "iuf":
            raise ValueError(f"scale must be a real number, not {array.dtype}")
        with np.errstate(over="ignore"):
            return self._each("scale", array.astype(np.float32))

    def _renormalize(self) -> bool:
        array = self.arrays.get("renormalize", np.array(True))
        if array.dtype != np.bool_ or array.size == 0 or array.min() != array.max():
            raise ValueError("renormalize must be one bool, or the same one for all calls")
        return bool(array.reshape(-1)[0])

    def _ranges(self) -> Ranges | None:
        if "tile_n" not in self.arrays:
            for name in ("metadata", "local_expert_offset", "num_local_experts"):
                if name in self.arrays:
                    raise ValueError(f"there is {name} but no tile_n")
            return None
        offset, tile = self._integers("local_expert_offset", 0), self._integers("tile_n", 0)
        count = self._integers("num_local_experts", NUM_EXPERTS)
        for place in range(self.count):
            check_tile(int(tile[place]))
            check_range(int(offset[place]), int(count[place]))
        return Ranges(*(part.astype(np.int32) for part in (offset, count, tile)))

    def _picks(self, rows: slice, tokens: int) -> tuple[I32 | None, F32 | None]:
        found: dict[str, Any] = {"ids": None, "weights": None}
        for name in found:
            if name not in self.arrays:
                continue
            array = self._int32(name) if name == "ids" else self._floats(name)
            shape = (len(self.logits), TOP_K) if self.rows else (self.count, tokens, TOP_K)
            if array.shape != shape:
                raise ValueError(f"{name} must have the shape {list(shape)}, not {list(array.shape)}")
            found[name] = np.ascontiguousarray(array[None, rows] if self.rows else array)
        return found["ids"], found["weights"]

    def _int32(self, name: str) -> I32:
        array = self.arrays[name]
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name} must be int32, not {array.dtype}")
        made = array.astype(np.int32)
        if not np.array_equal(made, array):
            raise ValueError(f"{name} must be int32, and holds larger numbers")
        return made

    def _buffers(self, ranges: Ranges | None) -> tuple[I32 | None, I32 | None]:
        found: list[I32 | None] = []
        for name in ("metadata", "metadata_before"):
            if name not in self.arrays or ranges is None:
                found.append(None)
                continue
            array = self._each(name, self._int32(name), 1)
            needed = metadata_size(int(ranges.tile.max()))
            if array.shape[1] < needed:
                raise ValueError(f"{name} must have {needed} elements or more, not {array.shape[1]}")
            found.append(self._within(array[:, :needed], ranges.tile))
        return found[0], found[1]

    @staticmethod
    def _within(array: I32, tile: I32) -> I32:
        """Leave out what lies behind each call's own buffer."""
        made = array.copy()
        for place, each in enumerate(tile):
            made[place, metadata_size(int(each)) :] = POISON_WORD
        return made
