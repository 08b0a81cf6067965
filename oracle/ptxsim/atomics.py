"""Read-modify-write operations on elements that several lanes may share."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.geometry import Index

Array = npt.NDArray[Any]

_COMMUTATIVE: Final = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def accumulate(name: str, data: Array, cells: Index, value: Array) -> None:
    """Apply an atomic without result to ``data[cells]``; only ``inc`` and ``dec`` depend on the order."""
    if name in _COMMUTATIVE:
        _COMMUTATIVE[name].at(data, cells, value)
    else:
        exchange(name, data, cells, [value])


def exchange(name: str, data: Array, cells: Index, values: list[Array]) -> Array:
    """Apply an atomic to ``data[cells]`` as if lane after lane, and return what each lane found."""
    before = np.empty(len(cells), data.dtype)
    left = np.arange(len(cells))
    while len(left):
        _, first = np.unique(cells[left], return_index=True)
        now = left[first]
        old = data[cells[now]]
        before[now] = old
        data[cells[now]] = _changed(name, old, [v[now] for v in values])
        left = np.delete(left, first)
    return before


def _changed(name: str, old: Array, values: list[Array]) -> Array:
    value = values[0]
    one = old.dtype.type(1)
    operations: dict[str, Callable[[], Array]] = {
        "add": lambda: old + value,
        "min": lambda: np.minimum(old, value),
        "max": lambda: np.maximum(old, value),
        "and": lambda: old & value,
        "or": lambda: old | value,
        "xor": lambda: old ^ value,
        "exch": lambda: value,
        "cas": lambda: np.where(old == value, values[1], old),
        "inc": lambda: np.where(old >= value, 0, old + one).astype(old.dtype),
        "dec": lambda: np.where((old == 0) | (old > value), value, old - one).astype(old.dtype),
    }
    return operations[name]()
