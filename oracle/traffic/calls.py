"""Calls of `route` out of files: a batch for the backends, and what the file says came out."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.problem import F32, I32, POISON_WORD, Batch, Outputs
from spec.layout import metadata_size

FAMILY: Final = "recorded"
"""What a batch of such calls has as its family."""

UNKNOWN: Final = "unknown"
"""Who made the outputs of a file that does not say so."""


@dataclass(frozen=True)
class Given:
    """Outputs that a file holds; what it does not hold is None.

    ids, weights
        int32 and float32 ``[L, b, 8]``.
    metadata, before
        int32 ``[L, n]``, n as in `Outputs`: the buffer after the call, and before it.
    """

    ids: I32 | None = None
    weights: F32 | None = None
    metadata: I32 | None = None
    before: I32 | None = None

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.ids, self.weights, self.metadata))

    def take(self, index: npt.NDArray[np.intp]) -> "Given":
        """Return the outputs of the calls at ``index``, in that order."""
        parts: tuple[Any, ...] = (self.ids, self.weights, self.metadata, self.before)
        return Given(*(None if part is None else part[index] for part in parts))

    @staticmethod
    def joined(parts: list["Given"]) -> "Given":
        """Put outputs of calls of one kind together; shorter buffers are filled up with `POISON_WORD`."""

        def together(name: str) -> Any:
            arrays = [getattr(part, name) for part in parts]
            if arrays[0] is None:
                return None
            if arrays[0].ndim == 3:
                return np.concatenate(arrays)
            made = np.full(
                (sum(map(len, arrays)), max(array.shape[1] for array in arrays)), POISON_WORD, np.int32
            )
            start = 0
            for array in arrays:
                made[start : start + len(array), : array.shape[1]] = array
                start += len(array)
            return made

        return Given(*(together(name) for name in ("ids", "weights", "metadata", "before")))

    def against(self, expected: Outputs, tile: I32 | None) -> tuple[Outputs, int]:
        """Return buffers to compare with ``expected``, and the number of words that the file says.

        What the file does not say is taken as expected. An element that nothing writes holds what it held
        before; where the file does not say what that was, it may hold anything.
        """
        ids = expected.ids if self.ids is None else self.ids
        weights = expected.weights if self.weights is None else self.weights
        words = sum(part.size for part in (self.ids, self.weights) if part is not None)
        if expected.metadata is None or self.metadata is None or tile is None:
            return Outputs(ids, weights, expected.metadata), words
        metadata = expected.metadata.copy()
        length = min(metadata.shape[1], self.metadata.shape[1])
        mine, after = metadata[:, :length], self.metadata[:, :length]
        untouched = mine == POISON_WORD
        if self.before is None:
            words += int((~untouched).sum())
            kept = untouched
        else:
            words += sum(metadata_size(int(each)) for each in tile)
            kept = untouched & (after == self.before[:, :length])
        mine[...] = np.where(kept, POISON_WORD, after)
        return Outputs(ids, weights, metadata), words


@dataclass(frozen=True)
class Calls:
    """Calls of one file with one b and one variant.

    backend
        Who made the outputs: ``cute``, ``triton``, ``spec`` or ``unknown``.
    number
        Of each call in the file, int64 ``[L]``.
    ignored, assumed
        Names of the file's arrays that mean nothing here; what it does not say of the inputs, and what is
        taken instead.
    """

    file: Path
    backend: str
    number: npt.NDArray[np.int64]
    batch: Batch
    given: Given
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.number)

    @property
    def key(self) -> tuple[object, ...]:
        """What calls must have in common to share a batch."""
        given, batch = self.given, self.batch
        parts = (given.ids, given.weights, given.metadata, given.before)
        present = tuple(part is not None for part in parts)
        return self.backend, batch.tokens, batch.renormalize, batch.shift, batch.ranges is not None, present

    def take(self, index: npt.NDArray[np.intp]) -> "Calls":
        """Return the calls at ``index``, in that order."""
        return replace(
            self, number=self.number[index], batch=self.batch.take(index), given=self.given.take(index)
        )
