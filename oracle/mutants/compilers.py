"""Judges the compile functions of both backends, and how the compiled code is launched."""

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any, Final

from oracle.artifacts import Compiled
from oracle.mutants import code, launches

_OTHER_ARCH: Final = "sm_100a"


def noticed(backend: str) -> str | None:
    """Return what the compile functions of ``backend`` do wrong, None if nothing shows.

    Parameters
    ----------
    backend
        ``cute`` or ``triton``, whose package is imported as it is found.
    """
    try:
        compiler = import_module(f"impl_{backend}.compiler")
        checks: dict[str, Callable[[Any], Iterator[str]]] = {"cute": _cute, "triton": _triton}
        for complaint in chain(checks[backend](compiler), _common(backend, compiler)):
            return complaint
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _common(backend: str, compiler: Any) -> Iterator[str]:
    before = sorted(os.listdir())
    compiled: Compiled = compiler.compile_kernel(False, True, _OTHER_ARCH)
    fault = code.fault(backend, compiled, _OTHER_ARCH)
    if fault is not None:
        yield fault
    if f".entry {compiled.entry}(" not in compiled.ptx:
        yield f"the entry is not {compiled.entry}"
    if sorted(os.listdir()) != before:
        yield "files are left in the current folder"


def _cute(compiler: Any) -> Iterator[str]:
    named = {
        "": False, "--keep-ptx": False, "--gpu-arch sm_100a": True, "--keep-ptx --gpu-arch=sm_100a": True,
        "--dump-dir '--gpu-arch of old'": False,
    }  # fmt: skip
    for options, names in named.items():
        if compiler.names_arch(options) is not names:
            yield f"names_arch({options!r}) is not {names}"
    if ".loc" not in compiler.compile_kernel(False, True, options="--generate-line-info").ptx:
        yield "options do not reach the compiler"
    if (
        "\n.target sm_90a\n" not in compiler.compile_kernel(False, True).ptx
        or compiler.DEFAULT_ARCH != "sm_90a"
    ):
        yield "the default is not sm_90a"
    made: list[str] = []
    gate = threading.Barrier(4)

    def compile_one() -> None:
        gate.wait()
        made.append(compiler.compile_kernel(False, True).ptx)

    threads = [threading.Thread(target=compile_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(made) != 4 or len(set(made)) != 1:
        yield "four threads cannot compile at once"


def _triton(compiler: Any) -> Iterator[str]:
    right = {
        "": {}, "maxnreg=64": {"maxnreg": 64},
        " ptx_version = 88 ,arch=sm_1a,": {"ptx_version": 88, "arch": "sm_1a"},
        "ptx_options=-O1": {"ptx_options": "-O1"}, "ptx_options=--a=b": {"ptx_options": "--a=b"},
    }  # fmt: skip
    for options, parsed in right.items():
        if compiler.parse_options(options) != parsed:
            yield f"parse_options({options!r}) is not {parsed}"
    wrong = {
        "num_warps=4": "not 'num_warps=4'", "maxnreg": "not 'maxnreg'",
        "maxnreg=x": "maxnreg must be an integer",
        "enable_fp_fusion=1": "maxnreg, ptx_version, ptx_options", "=3": "name=value",
    }  # fmt: skip
    for options, said in wrong.items():
        yield from _refused(partial(compiler.parse_options, options), said, options)
    for arch in ("sm_80a", "sm_89a", "sm_90", "sm90a", "90", "sm_9a", "sm_1000a", "sm_90a "):
        yield from _refused(partial(compiler.compile_kernel, False, True, arch), repr(arch), arch)
    if (
        f".target {_OTHER_ARCH}"
        not in compiler.compile_kernel(False, True, "sm_90a", f"arch={_OTHER_ARCH}").ptx
    ):
        yield "the arch of the options does not win"
    if ".maxnreg 64" not in compiler.compile_kernel(False, True, options="maxnreg=64").ptx:
        yield "options do not reach the compiler"
    if "\n.target sm_90a\n" not in compiler.compile_kernel(False, True).ptx:
        yield "the default is not sm_90a"


def _refused(call: Callable[[], Any], said: str, what: str) -> Iterator[str]:
    try:
        call()
    except ValueError as error:
        if said in str(error):
            return
        yield f"{what!r} is refused as {error}"
        return
    yield f"{what!r} is accepted"


def launch_noticed(backend: str) -> str | None:
    """Return what is wrong with how the compiled code would be launched, None if nothing shows."""
    try:
        return launches.CHECKS[backend]()
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
