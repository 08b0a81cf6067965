"""The kernels of the sweep: the very cubins that `route` launches, and the layout of their parameters."""

import hashlib
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import numpy as np

from oracle import ptxsim
from oracle.artifacts import artifact
from oracle.card import device
from oracle.card.engine import Kernel
from oracle.card.parameters import Layout, LayoutError, find

VARIANTS: Final = (False, True)
_DTYPES: Final = {
    "tokens": np.int32,
    "scale": np.uint32,
    "offset": np.int32,
    "count": np.int32,
    "tile": np.int32,
}
_DEBUG: Final = re.compile(r"^\s*(\.loc|\.file|//).*$|\s*//.*$", re.MULTILINE)


def fingerprint(backend: str, arch: str) -> str:
    """Return 16 hex digits for the backend's PTX with metadata, debug lines and paths left out."""
    digest = hashlib.sha256()
    for renormalize in VARIANTS:
        code = artifact(backend, True, renormalize, arch).ptx.split("\n\t.section")[0]
        digest.update(_DEBUG.sub("", code).encode())
    return digest.hexdigest()[:16]


def layout(backend: str, metadata: bool, renormalize: bool, arch: str) -> Layout:
    """Return where the parameters of one variant lie, from its adapter's packing."""
    compiled = artifact(backend, metadata, renormalize, arch)
    program = ptxsim.parse(compiled.ptx, compiled.entry)
    adapter: Any = import_module(f"oracle.backends.{backend}")

    def pack(values: Mapping[str, int]) -> list[bytes]:
        arrays = {name: np.array([value], _DTYPES.get(name, np.uint64)) for name, value in values.items()}
        arrays["scale"] = arrays["scale"].view(np.float32)
        if not metadata:
            del arrays["metadata"]
        given = adapter.parameters(arrays)
        # What a compiler appends, such as pointers to scratch memory, is null.
        given += [np.zeros(param.size, np.uint8) for param in program.params[len(given) :]]
        made = []
        for param, array in zip(program.params, given, strict=True):
            made.append(np.ascontiguousarray(array).tobytes())
            if len(made[-1]) != param.size:
                raise LayoutError(
                    f"{backend}: parameter {param.name} takes {param.size} bytes, not {len(made[-1])}"
                )
        return made

    return find(pack)


def load(backend: str, metadata: bool, arch: str) -> tuple[Kernel, Kernel]:
    """Load the backend's variants without and with renormalize on the current device."""
    made = []
    for renormalize in VARIANTS:
        compiled = artifact(backend, metadata, renormalize, arch)
        function = device.load(compiled.cubin, compiled.entry, compiled.dynamic_shared)
        where = layout(backend, metadata, renormalize, arch)
        made.append(Kernel(int(function), compiled, where))
    return made[0], made[1]
