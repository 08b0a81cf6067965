"""Moves runs of neighbouring elements in one go: a vector access is one move of a wider element."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Index = npt.NDArray[np.intp]

_WIDER: Final = {2: "u2", 4: "u4", 8: "u8", 16: "c16"}
"""A NumPy type for each width; complex128 stands for 16 bytes, which are only moved."""


def part(first: Index, size: int) -> Index:
    """Divide by a power of two: NumPy shifts several times as fast as it divides."""
    return first >> (size.bit_length() - 1) if size > 1 else first


def runs(first: Index, count: int) -> Index:
    """Return the element numbers of runs of ``count`` elements, one run after the other."""
    return (first[:, None] + np.arange(count)).reshape(-1)


def gather(array: Array, first: Index, count: int, aligned: bool) -> Array:
    """Return ``count`` neighbouring elements from each of ``first``, run after run.

    ``aligned`` says that every element of ``first`` is a multiple of ``count``, a power of two; the array
    then ends on 16 bytes.
    """
    if count == 1:
        return array.take(first)
    wider = _WIDER.get(count * array.itemsize)
    if wider is None or not aligned:
        return array.take(runs(first, count))
    return array.view(wider).take(part(first, count)).view(array.dtype)


def scatter(array: Array, first: Index, count: int, aligned: bool, values: Array) -> None:
    """Store runs of ``count`` elements, given one run after the other."""
    if count == 1:
        array[first] = values
        return
    wider = _WIDER.get(count * array.itemsize)
    if wider is None or not aligned:
        array[runs(first, count)] = values
    else:
        array.view(wider)[part(first, count)] = values.view(wider)


def columns(block: Array, count: int) -> list[Array]:
    """Split runs of ``count`` elements into one array for each place in the run."""
    if count == 1:
        return [block]
    table = block.reshape(-1, count)
    return [np.ascontiguousarray(table[:, k]) for k in range(count)]


def interleaved(values: list[Array], length: int, code: str) -> Array:
    """Join arrays (or scalars) into runs: the inverse of `columns`."""
    if len(values) == 1 and values[0].ndim:
        return values[0]
    block = np.empty((length, len(values)), code)
    for k, value in enumerate(values):
        block[:, k] = value
    return block.reshape(-1)
