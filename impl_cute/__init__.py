"""The CuTe DSL backend: one kernel of one CTA, and the host functions that compile and launch it."""

from spec.compilers import require

require("cute")
