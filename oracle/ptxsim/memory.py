"""Global memory: the buffers of a caller, each at its own place in a launch's address space.

Buffer i lies at ``(i + 1) << 40``, so the high bits of an address name the buffer and a stray pointer is in
none. Each base is a multiple of 16 bytes and of no more, because no more is promised; launches see only their
own slices.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

NameAt = Callable[[int, int], str]
"""Says what a caller calls the byte of a launch at an offset from its buffer's start; empty for no name."""

REGION_BITS: Final = 40
"""A buffer's region of the address space is 2^40 bytes."""

_FIRST_BYTE: Final = 0x1010
_LAST_STRIDE: Final = 1 << 36


@dataclass(frozen=True)
class Buffer:
    """One buffer of every launch.

    Attributes
    ----------
    name
        For messages.
    address
        uint64 ``[L]``: the address of each launch's first byte.
    octets
        uint8 ``[L, bytes]``: a view of the caller's array.
    rows, row_bytes, stride
        The bytes are ``rows`` rows of ``row_bytes``, ``stride`` (int64 ``[L]``) apart in the address space.
    writable
        The kernel may write it, and may read only what it wrote.
    dependent
        It holds what an earlier kernel writes: it may be read only after ``griddepcontrol.wait``.
    name_at
        The caller's names of its elements, for messages, or ``None``.
    first_launch
        The number of the first of these launches.
    """

    name: str
    number: int
    address: U64
    octets: npt.NDArray[np.uint8]
    rows: int
    row_bytes: int
    stride: I64
    writable: bool
    dependent: bool
    name_at: NameAt | None = None
    first_launch: int = 0
    views: dict[str, Array] = field(default_factory=dict, repr=False)

    def view(self, code: str) -> Array | None:
        """Return all bytes as elements of type ``code``, flat; ``None`` if rows are not whole."""
        if code not in self.views:
            size = np.dtype(code).itemsize
            if self.row_bytes % size or self.octets.ctypes.data % size:
                return None
            self.views[code] = self.octets.reshape(-1).view(code)
        return self.views[code]

    def part(self, first: int, last: int) -> "Buffer":
        """Return the same buffer for launches ``first`` up to ``last``."""
        cut = slice(first, last)
        return Buffer(
            self.name,
            self.number,
            self.address[cut],
            self.octets[cut],
            self.rows,
            self.row_bytes,
            self.stride[cut],
            self.writable,
            self.dependent,
            self.name_at,
            self.first_launch + first,
        )

    def place(self, launch: int, offset: int) -> str:
        """Say where an offset lies, for one of these launches: ``ids+0x68 = ids[3,2]``."""
        name = self.name_at(self.first_launch + launch, offset) if self.name_at else ""
        return f"{self.name}{offset:+#x}" + (f" = {name}" if name else "")


class Memory:
    """The buffers of ``launches`` independent launches.

    Parameters
    ----------
    launches
        L, at least 1.
    """

    def __init__(self, launches: int) -> None:
        if launches < 1:
            raise ValueError(f"launches must be at least 1, not {launches}")
        self.launches = launches
        self.buffers: list[Buffer] = []

    def add(
        self,
        name: str,
        array: Array,
        *,
        writable: bool = False,
        dependent: bool = False,
        address_offset: int = 0,
        name_at: NameAt | None = None,
    ) -> Buffer:
        """Add a contiguous buffer.

        Parameters
        ----------
        name
            For messages.
        array
            ``[L, ...]``, C-contiguous, elements of 1, 2, 4 or 8 bytes; a writable one is written in place.
        writable
            The kernel may write it; it may then read only elements that it has written.
        dependent
            An earlier kernel writes it.
        address_offset
            Bytes by which the buffer is moved off its 16-byte alignment, 0..4095.
        name_at
            Names its elements in messages, by launch and byte offset.

        Raises
        ------
        ValueError
            The array does not fit the above.
        """
        if array.ndim < 1:
            raise ValueError(f"{name} needs one row a launch")
        rows = array.reshape(array.shape[0], 1, -1)
        stride = np.zeros(self.launches, np.int64)
        return self._add(name, array, rows, stride, writable, dependent, address_offset, name_at)

    def add_rows(
        self,
        name: str,
        array: Array,
        stride: npt.ArrayLike,
        *,
        writable: bool = False,
        dependent: bool = False,
        address_offset: int = 0,
        name_at: NameAt | None = None,
    ) -> Buffer:
        """Add a buffer of rows that lie apart in the address space, with nothing in between.

        Parameters
        ----------
        name, writable, dependent, address_offset, name_at
            As for `add`.
        array
            ``[L, rows, n]``, C-contiguous.
        stride
            int64 ``[L]``, bytes from row to row: 0 (every row is then row 0, and not writable) or at least a
            row's bytes, up to 2^36.

        Raises
        ------
        ValueError
            The array or a stride does not fit the above.
        """
        if array.ndim != 3:
            raise ValueError(f"{name} must be [launches, rows, n], not {array.shape}")
        strides = np.asarray(stride, np.int64)
        row_bytes = array.shape[2] * array.itemsize
        allowed = (strides >= row_bytes) & (strides <= _LAST_STRIDE) | (strides == 0)
        if strides.shape != (self.launches,) or not allowed.all():
            raise ValueError(
                f"the strides of {name} must be {self.launches} values, each 0 or {row_bytes}..2^36 bytes"
            )
        if writable and not strides.all():
            raise ValueError(f"{name} cannot be writable with stride 0: its rows would overlap")
        if array.shape[1] << 36 > 1 << (REGION_BITS - 1):
            raise ValueError(f"{name} has more than 8 rows")
        return self._add(name, array, array, strides, writable, dependent, address_offset, name_at)

    def _add(
        self,
        name: str,
        array: Array,
        rows: Array,
        stride: I64,
        writable: bool,
        dependent: bool,
        address_offset: int,
        name_at: NameAt | None,
    ) -> Buffer:
        if array.shape[0] != self.launches:
            raise ValueError(f"{name} must have {self.launches} launches, not {array.shape[0]}")
        if not array.flags.c_contiguous or array.itemsize not in (1, 2, 4, 8):
            raise ValueError(f"{name} must be C-contiguous, of elements of 1, 2, 4 or 8 bytes")
        if writable and not array.flags.writeable:
            raise ValueError(f"{name} is to be written, but its array is read-only")
        if not 0 <= address_offset < 4096:
            raise ValueError(f"address_offset of {name} must be 0..4095, not {address_offset}")
        number = len(self.buffers) + 1
        base = (number << REGION_BITS) + _FIRST_BYTE + address_offset
        octets = array.reshape(self.launches, -1).view(np.uint8)
        buffer = Buffer(
            name,
            number,
            np.full(self.launches, base, np.uint64),
            octets,
            rows.shape[1],
            rows.shape[2] * array.itemsize,
            stride,
            writable,
            dependent,
            name_at,
        )
        self.buffers.append(buffer)
        return buffer

    def part(self, first: int, last: int) -> Sequence[Buffer]:
        """Return the buffers of launches ``first`` up to ``last``."""
        return [buffer.part(first, last) for buffer in self.buffers]
