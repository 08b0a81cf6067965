"""The measured tables of the special function unit: how 2^23 float32 results are packed into a file.

xz of three little-endian int64 (entry 0, the start of the difference chain, entry 1) and the int8 second
differences of the chain (start, entry 1, entry 2, ...): two cumulative sums rebuild it, then entry 0 is put
back. The chain's start extends the curve smoothly where entry 0 lies apart from it, as the exact 1.0 of a
reciprocal does.
"""

import lzma
from typing import Final

import numpy as np
import numpy.typing as npt

NAMES: Final = ("rcp", "ex2_pos", "ex2_neg")
"""``rcp.approx.ftz(1 + x)``, ``ex2.approx.ftz(x)``, ``ex2.approx.ftz(-x)`` for x = m / 2^23, m < 2^23."""

U32 = npt.NDArray[np.uint32]


def pack(table: U32) -> bytes:
    """Return the file of one table of float32 bits, uint32 ``[n]``.

    Raises
    ------
    ValueError
        A second difference does not fit 8 bits: not a table of this unit.
    """
    chain = table.astype(np.int64)
    chain[0] = 2 * chain[1] - chain[2]
    second = np.diff(chain, 2)
    if np.abs(second).max() > 127:
        raise ValueError("second differences beyond 8 bits: this table is no smooth curve")
    head = np.array([table[0], chain[0], chain[1]], "<i8")
    return lzma.compress(head.tobytes() + second.astype(np.int8).tobytes())


def unpack(file: bytes) -> U32:
    """Return the table that `pack` made ``file`` from."""
    raw = lzma.decompress(file)
    true_first, start, second_entry = (int(x) for x in np.frombuffer(raw[:24], "<i8"))
    slopes = np.concatenate([[second_entry - start], np.frombuffer(raw[24:], np.int8)]).astype(np.int64)
    chain = start + np.concatenate([[0], np.cumsum(np.cumsum(slopes))])
    chain[0] = true_first
    return chain.astype(np.uint32)
