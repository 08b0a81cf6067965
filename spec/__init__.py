"""What is right: Muse Spark decode routing in NumPy, bit for bit as sm_90 computes it.

Clauses A1-A8 are `spec.arithmetic`, R1-R6 `spec.selection`, M1-M8 `spec.permutation`; the rules on arguments
are `spec.contract`, sizes and limits `spec.constants`, buffer offsets `spec.layout`. `spec.scalar` says it
all a second time in plain integers, to test the first.
"""

from spec.arithmetic import (
    add_rn,
    div_full,
    ex2_approx,
    ex2_approx_ftz,
    fma_rn,
    mul_rn,
    rcp_approx,
    sigmoid,
)
from spec.constants import (
    ALIGNMENT,
    MAX_CTAS,
    MAX_TILE,
    MAX_TOKENS,
    NAN_BITS,
    NEG_LOG2E_BITS,
    NUM_EXPERTS,
    ROW_STRIDE_MULTIPLE,
    SUM_EPSILON,
    TOP_K,
)
from spec.layout import (
    FIELDS,
    META_CTA_BATCH,
    META_CTA_LIMIT,
    META_EXPANDED_TO_PERMUTED,
    META_NUM_CTAS,
    META_PADDED_TOKENS,
    META_PERMUTED_TO_TOKEN,
    Field,
    metadata_size,
)
from spec.permutation import Metadata, metadata, write_metadata, write_metadata_bulk
from spec.selection import ordered_key, route, select, weigh

__all__ = [
    "ALIGNMENT",
    "FIELDS",
    "MAX_CTAS",
    "MAX_TILE",
    "MAX_TOKENS",
    "META_CTA_BATCH",
    "META_CTA_LIMIT",
    "META_EXPANDED_TO_PERMUTED",
    "META_NUM_CTAS",
    "META_PADDED_TOKENS",
    "META_PERMUTED_TO_TOKEN",
    "NAN_BITS",
    "NEG_LOG2E_BITS",
    "NUM_EXPERTS",
    "ROW_STRIDE_MULTIPLE",
    "SUM_EPSILON",
    "TOP_K",
    "Field",
    "Metadata",
    "add_rn",
    "div_full",
    "ex2_approx",
    "ex2_approx_ftz",
    "fma_rn",
    "metadata",
    "metadata_size",
    "mul_rn",
    "ordered_key",
    "rcp_approx",
    "route",
    "select",
    "sigmoid",
    "weigh",
    "write_metadata",
    "write_metadata_bulk",
]
