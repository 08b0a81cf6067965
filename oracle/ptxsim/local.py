"""Local memory: bytes of each thread's own."""

from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault
from oracle.ptxsim.geometry import Geometry, Index
from oracle.ptxsim.lanes import Lanes

Array = npt.NDArray[Any]


class Local:
    """The local variables of every lane of a tile; reads of bytes never written are errors."""

    def __init__(self, geometry: Geometry, size: int) -> None:
        self.size = size
        self.pitch = -(-size // 16) * 16
        self.octets = np.zeros(geometry.size * self.pitch, np.uint8)
        self.written = np.zeros(geometry.size * self.pitch, np.bool_)

    def _bytes(self, lanes: Lanes, address: Array, width: int, fault: Fault) -> Index:
        offset = address.view(np.int64)
        outside = (offset < 0) | (offset > self.size - width)
        if outside.any():
            position = int(np.flatnonzero(outside)[0])
            detail = f"{width} bytes outside the {self.size} bytes of local memory"
            raise fault("out of bounds", detail, position, *_place(offset, position))
        if (offset & (width - 1)).any():
            position = int(np.flatnonzero(offset & (width - 1))[0])
            raise fault("misaligned", f"an access of {width} bytes", position, *_place(offset, position))
        return (lanes.index * self.pitch + offset)[:, None] + np.arange(width)

    def load(self, lanes: Lanes, address: Array, code: str, count: int, fault: Fault) -> list[Array]:
        """Return ``count`` consecutive elements of type ``code`` from each lane's address."""
        size = np.dtype(code).itemsize
        where = self._bytes(lanes, address, size * count, fault)
        fresh = ~self.written[where].all(axis=1)
        if fresh.any():
            position = int(np.flatnonzero(fresh)[0])
            detail = "a read of local memory never written"
            raise fault("uninitialised", detail, position, *_place(address.view(np.int64), position))
        return [self.octets[where[:, k * size : (k + 1) * size]].view(code).reshape(-1) for k in range(count)]

    def store(self, lanes: Lanes, address: Array, code: str, values: list[Array], fault: Fault) -> None:
        """Write consecutive elements to each lane's address."""
        size = np.dtype(code).itemsize
        where = self._bytes(lanes, address, size * len(values), fault)
        self.written[where] = True
        for k, value in enumerate(values):
            spread = np.ascontiguousarray(np.broadcast_to(value, lanes.n)).view(np.uint8).reshape(-1, size)
            self.octets[where[:, k * size : (k + 1) * size]] = spread


def _place(offset: Array, position: int) -> tuple[int, str]:
    """Return the address of one access, and the words for it."""
    value = int(offset[position])
    return value & (1 << 64) - 1, f"local memory{value:+#x}"
