"""The Triton backend: the kernel in Gluon, its compiler, and the host functions."""

from spec.compilers import require

require("triton")
