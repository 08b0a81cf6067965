"""Compiling one variant of the kernel, on machines with and without a GPU; imports no torch."""

import re
import shlex
import tempfile
import threading
from dataclasses import dataclass
from typing import Any, Final

import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from impl_cute.kernel import ROW_CTAS, launch, threads
from spec.constants import ALIGNMENT, NUM_EXPERTS, ROW_STRIDE_MULTIPLE, TOP_K

DEFAULT_ARCH: Final = "sm_90a"
_WORD: Final = 4
_ARCH_OPTION: Final = "--gpu-arch"
_LOCK: Final = threading.Lock()  # the DSL raises when two threads compile at once


@dataclass(frozen=True)
class Compiled:
    """One variant's code, and how it is launched.

    ptx, cubin
        What the DSL made for the one architecture.
    entry
        The kernel's name in both.
    threads, dynamic_shared
        Of a CTA; bytes.
    row_ctas
        The grid has a CTA a token row, not one in all.
    cluster
        The CTAs of a launch form one cluster.
    """

    ptx: str
    cubin: bytes
    entry: str
    threads: int
    dynamic_shared: int
    row_ctas: bool
    cluster: bool


def compile_kernel(
    metadata: bool,
    renormalize: bool,
    arch: str = DEFAULT_ARCH,
    options: str = "",
    early_dependents: bool = False,
) -> Compiled:
    """Compile one variant for reading or simulating it; needs no GPU and no driver.

    Parameters
    ----------
    metadata, renormalize
        The variant: with M1-M8 or without; R5 with the sum or without.
    arch
        ``sm_90a``, ``sm_100a``, ``sm_103a``, ``sm_120a`` or another the DSL knows.
    options
        More options of `cute.compile`, as text.
    early_dependents
        Whether it launches its dependents first.

    Returns
    -------
    Compiled
    """
    compiled = compile_variant(metadata, renormalize, f"{_ARCH_OPTION} {arch} {options}", early_dependents)
    ptx = compiled.__ptx__
    (entry,) = re.findall(r"^\.visible \.entry (\w+)\(", ptx, re.MULTILINE)
    return Compiled(
        ptx,
        compiled.__cubin__,
        entry,
        threads(metadata),
        dynamic_shared=0,  # all shared memory is static
        row_ctas=ROW_CTAS,
        cluster=ROW_CTAS and metadata,
    )


def compile_variant(metadata: bool, renormalize: bool, options: str, early_dependents: bool = False) -> Any:
    """Return what `cute.compile` makes of one variant: a callable that also holds its PTX and cubin.

    Parameters
    ----------
    metadata, renormalize, early_dependents
        The variant, as in `compile_kernel`.
    options
        Options of `cute.compile`, as text; ``--gpu-arch`` must be among them.
    """
    with _LOCK, tempfile.TemporaryDirectory(prefix="muse-cute-") as dump:
        # An own empty folder: dumps of other variants and processes have the same names.
        keep = f"--keep-ptx --keep-cubin --dump-dir {shlex.quote(dump)}"
        constants = (renormalize, early_dependents)
        return cute.compile(launch, *_arguments(metadata), *constants, options=f"{keep} {options}")


def names_arch(options: str) -> bool:
    """Return whether ``options`` choose the architecture themselves."""
    return any(token.split("=")[0] == _ARCH_OPTION for token in shlex.split(options))


def _arguments(metadata: bool) -> tuple[Any, ...]:
    """Fake arguments of `launch` that promise what the contract promises and nothing more."""
    rows = cute.sym_int32()
    stride = cute.sym_int64(divisibility=ROW_STRIDE_MULTIPLE)
    logits = make_fake_tensor(Float32, (rows, NUM_EXPERTS), (stride, 1), assumed_align=ALIGNMENT)
    bias = make_fake_tensor(Float32, (NUM_EXPERTS,), (1,), assumed_align=ALIGNMENT)
    ids = make_fake_tensor(Int32, (rows, TOP_K), (TOP_K, 1), assumed_align=_WORD)
    weights = make_fake_tensor(Float32, (rows, TOP_K), (TOP_K, 1), assumed_align=_WORD)
    buffer = make_fake_tensor(Int32, (cute.sym_int32(),), (1,), assumed_align=ALIGNMENT) if metadata else None
    numbers = (Float32(0), Int32(0), Int32(0), Int32(0))
    return logits, bias, ids, weights, buffer, *numbers, make_fake_stream(use_tvm_ffi_env_stream=True)
