"""Every size, limit and float constant of the contract, once.

The kernels import these as compile-time constants; nothing else may restate them.
"""

from typing import Final

ARCHITECTURE: Final = "sm_90"
"""The cards whose results A1-A8 are, to the last bit; others may differ in the special function unit."""

COEFFICIENTS_FILE: Final = f"mufu_{ARCHITECTURE.replace('_', '')}.csv"
"""A5, A6: the integers of that architecture's special function unit, in spec/data."""

NUM_EXPERTS: Final = 256
"""Experts a token chooses among: the columns of ``logits``."""

TOP_K: Final = 8
"""Experts a token picks: the columns of ``ids`` and ``weights``."""

MAX_TOKENS: Final = 8
"""The largest decode batch b."""

MAX_TILE: Final = 256
"""The largest GEMM token tile, in rows."""

MAX_CTAS: Final = MAX_TOKENS * TOP_K
"""CTAs there can be at most: at tile 1 every route is one."""

ALIGNMENT: Final = 16
"""Bytes on which logits, bias and metadata start."""

ROW_STRIDE_MULTIPLE: Final = 4
"""Elements of which the row stride of ``logits`` is a multiple, so that every row starts on 16 bytes."""

SUM_EPSILON: Final = 1e-15
"""R5: added to the sum of the picked scores; rounded to float32 before use."""

NEG_LOG2E_BITS: Final = 0xBFB8AA3B
"""A7: the float32 bits of -log2(e)."""

NAN_BITS: Final = 0x7FFFFFFF
"""A8: the float32 bits of every NaN result."""
