"""What is asked of a backend and what it answers: a batch of routing problems, and its output buffers.

Neighbours: `oracle.cases` makes batches, `oracle.backends` answers them, `oracle.compare` judges the answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import spec

POISON_WORD: Final = 0x5A5A5A5A
"""The bits of every output element before a run: as an id, a weight or a metadata entry it is never right."""

LARGEST_STRIDE: Final = 1 << 34
"""Elements between rows beyond which a call is not replayed: the simulator gives a buffer 2^39 bytes."""

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranges:
    """The metadata side of L problems: int32 ``[L]`` each, in the contract's ranges."""

    offset: I32
    count: I32
    tile: I32


@dataclass(frozen=True)
class Batch:
    """L independent problems of one family, one b and one kernel variant.

    logits
        float32 ``[L, b, 256]``, the values, whatever the stride in memory is.
    bias
        float32 ``[L, 256]``.
    scale
        float32 ``[L]``.
    row_stride
        int64 ``[L]``, elements between rows in memory: 0 (all rows are then equal) or 4 k >= 256.
    ranges
        ``None``: the variant without metadata.
    seed, index
        What `oracle.cases.batch` made the problems from, int and int64 ``[L]``; ``None``: not from a family.
    shift
        Elements, 0..3, by which the simulator lets ids and weights start off 16 bytes. The contract asks for
        no alignment of theirs; by default it shows where a kernel relies on some.
    """

    family: str
    logits: F32
    bias: F32
    scale: F32
    renormalize: bool
    row_stride: I64
    ranges: Ranges | None = None
    seed: int = 0
    index: I64 | None = None
    shift: tuple[int, int] = (1, 1)

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def tokens(self) -> int:
        """b, the tokens of every problem here."""
        return int(self.logits.shape[1])

    @staticmethod
    def joined(parts: Sequence["Batch"]) -> "Batch":
        """Put batches of one family, b, variant, seed and shift together, in order."""

        def together(pick: Callable[[Any], Any]) -> Any:
            return np.concatenate([pick(part) for part in parts])

        first = parts[0]
        return Batch(
            family=first.family,
            logits=together(lambda part: part.logits),
            bias=together(lambda part: part.bias),
            scale=together(lambda part: part.scale),
            renormalize=first.renormalize,
            row_stride=together(lambda part: part.row_stride),
            ranges=None
            if first.ranges is None
            else Ranges(
                together(lambda part: part.ranges.offset),
                together(lambda part: part.ranges.count),
                together(lambda part: part.ranges.tile),
            ),
            seed=first.seed,
            index=None if first.index is None else together(lambda part: part.index),
            shift=first.shift,
        )

    def take(self, index: npt.NDArray[np.intp] | slice) -> "Batch":
        """Return the problems at ``index``, in that order."""
        ranges = self.ranges
        if ranges is not None:
            ranges = Ranges(ranges.offset[index], ranges.count[index], ranges.tile[index])
        return Batch(
            family=self.family,
            logits=self.logits[index],
            bias=self.bias[index],
            scale=self.scale[index],
            renormalize=self.renormalize,
            row_stride=self.row_stride[index],
            ranges=ranges,
            seed=self.seed,
            index=None if self.index is None else self.index[index],
            shift=self.shift,
        )


@dataclass(frozen=True)
class Outputs:
    """The output buffers of a batch: ids int32 and weights float32 ``[L, b, 8]``, metadata int32 ``[L, n]``.

    n is `spec.metadata_size` of the largest tile in the batch: a problem with a smaller tile has more guard.
    """

    ids: I32
    weights: F32
    metadata: I32 | None

    def take(self, index: npt.NDArray[np.intp] | slice) -> "Outputs":
        """Return the outputs of the problems at ``index``, in that order."""
        metadata = None if self.metadata is None else self.metadata[index]
        return Outputs(self.ids[index], self.weights[index], metadata)

    def put(self, index: npt.NDArray[np.intp], part: "Outputs") -> None:
        """Write the outputs of some problems at ``index``."""
        self.ids[index] = part.ids
        self.weights.view(np.int32)[index] = part.weights.view(np.int32)
        if self.metadata is not None and part.metadata is not None:
            self.metadata[index] = part.metadata

    def blank(self, problems: int) -> "Outputs":
        """Poisoned buffers of the same shapes for so many problems."""
        ids = np.full((problems, *self.ids.shape[1:]), POISON_WORD, np.int32)
        metadata = (
            None
            if self.metadata is None
            else np.full((problems, self.metadata.shape[1]), POISON_WORD, np.int32)
        )
        return Outputs(ids, ids.copy().view(np.float32), metadata)

    @staticmethod
    def poisoned(batch: Batch) -> "Outputs":
        """Buffers for ``batch`` with every element set to `POISON_WORD`."""
        shape = (len(batch), batch.tokens, spec.TOP_K)
        ids = np.full(shape, POISON_WORD, np.int32)
        metadata = None
        if batch.ranges is not None:
            size = spec.metadata_size(int(batch.ranges.tile.max()))
            metadata = np.full((len(batch), size), POISON_WORD, np.int32)
        return Outputs(ids, ids.copy().view(np.float32), metadata)
