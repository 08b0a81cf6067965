"""Compiling one variant of the kernel, on machines with and without a GPU; imports no torch."""

import re
import shlex
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cutlass.cute as cute
from cutlass import AddressSpace, Float32, Int32, Int64, Numeric
from cutlass.cute.runtime import make_fake_stream, make_ptr

from impl_cute.kernel import ROW_CTAS, launch, threads
from spec.constants import ALIGNMENT

DEFAULT_ARCH: Final = "sm_90a"
_WORD: Final = 4
_ARCH_OPTION: Final = "--gpu-arch"
_FUNCTION: Final = "route"
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
    """Return what `cute.compile` makes of one variant: it holds its PTX and cubin, and is not to be called.

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
        given = (*_arguments(metadata), renormalize, early_dependents)
        # No engine: what is launched is loaded from what `compile_object` returns.
        return cute.compile(launch, *given, options=f"{keep} {options}", no_jit_engine=True)


def compile_object(metadata: bool, renormalize: bool, options: str, early_dependents: bool = False) -> bytes:
    """Compile one variant to machine code of the host with the cubin in it, for `load_object`.

    Parameters
    ----------
    metadata, renormalize, early_dependents
        The variant, as in `compile_kernel`.
    options
        Options of `cute.compile`, as text; ``--gpu-arch`` must be among them.
    """
    compiled = compile_variant(metadata, renormalize, f"--enable-tvm-ffi {options}", early_dependents)
    with _LOCK, _file(b"") as path:
        compiled.export_to_c(path, function_name=_FUNCTION)
        return Path(path).read_bytes()


def load_object(code: bytes) -> Any:
    """Return the function of what `compile_object` returned; it compiles nothing, and needs no GPU to load.

    It takes what `launch` takes but for the constants: addresses, numbers and the stream as integers, None
    for no metadata.

    Raises
    ------
    RuntimeError
        It is no such code.
    """
    with _LOCK, _file(code) as path:
        return getattr(cute.runtime.load_module(path, enable_tvm_ffi=True), _FUNCTION)


def names_arch(options: str) -> bool:
    """Return whether ``options`` choose the architecture themselves."""
    return any(token.split("=")[0] == _ARCH_OPTION for token in shlex.split(options))


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """Name a file with that content for as long as it lasts: the DSL writes and reads code by path."""
    with tempfile.TemporaryDirectory(prefix="muse-cute-") as folder:
        path = Path(folder) / f"{_FUNCTION}.o"
        path.write_bytes(content)
        yield str(path)


def _arguments(metadata: bool) -> tuple[Any, ...]:
    """Arguments of `launch` that promise what the contract promises; their values mean nothing."""
    logits = bias = _address(Float32, ALIGNMENT)
    buffer = _address(Int32, ALIGNMENT) if metadata else None
    number = Int32(0)
    return (
        logits, Int64(0), bias, _address(Int32, _WORD), _address(Float32, _WORD), number, Float32(0), buffer,
        number, number, number, make_fake_stream(),
    )  # fmt: skip


def _address(kind: type[Numeric], aligned: int) -> Any:
    return make_ptr(kind, 0, AddressSpace.gmem, assumed_align=aligned)
