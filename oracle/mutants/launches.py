"""Reads how the compiled code is launched: its CTAs, dependent on the one before, each argument in place."""

import re
from collections.abc import Callable
from importlib import import_module
from itertools import product
from typing import Any, Final

from oracle.artifacts import artifact
from oracle.backends.cute import PARAMETERS
from spec.constants import ALIGNMENT, NUM_EXPERTS, ROW_STRIDE_MULTIPLE, TOP_K

_PROGRAMMATIC_SERIALIZATION: Final = 6
"""``cudaLaunchAttributeProgrammaticStreamSerialization``."""

_CLUSTER: Final = re.compile(
    r"getelementptr %\d+\[0, \d\] [^\n]*struct<\(i32, i32, i32\)>\n\s+llvm\.store (%\w+), "
)
"""A store into the dimensions of the cluster that a launch attribute holds."""

_SHAPES: Final = {
    "logits": ((None, NUM_EXPERTS), (None, 1)),
    "bias": ((NUM_EXPERTS,), (1,)),
    "ids": ((None, TOP_K), (TOP_K, 1)),
    "weights": ((None, TOP_K), (TOP_K, 1)),
    "metadata": ((None,), (1,)),
}
_WORD: Final = 4
_PARAMETERS: Final = 9
"""Of the compiled function, as ``compile_routing`` promises it."""


def _cute() -> str | None:
    """Read the host code that the DSL makes, and what its tensors promise."""
    compiler = import_module("impl_cute.compiler")
    for metadata in (True, False):
        promised = _promises(compiler, metadata)
        if promised is not None:
            return promised
        made = compiler.compile_variant(metadata, True, "--gpu-arch sm_90a --enable-tvm-ffi")
        if not callable(getattr(made, "__tvm_ffi_object__", None)):
            return "there is no way to the bare function, which the host launches"
        text = str(made.ir_module)
        if f"Expects {_PARAMETERS} parameters" not in text:
            return "the compiled function takes other parameters, or a stream: it must find the current one"
        found = _read_host_code(text, metadata)
        if found is not None:
            return found
    return None


def _promises(compiler: Any, metadata: bool) -> str | None:
    """Say where the fake tensors promise what the contract does not."""
    names = [name for name in _SHAPES if metadata or name != "metadata"]
    tensors = [
        a for a in compiler._arguments(metadata) if hasattr(a, "element_type") and hasattr(a, "stride")
    ]
    if len(tensors) != len(names):
        return f"{len(tensors)} tensors, not {len(names)}"
    for name, tensor in zip(names, tensors, strict=True):
        shape, strides = _SHAPES[name]
        for promised, right in zip((*tensor.shape, *tensor.stride), (*shape, *strides), strict=True):
            if isinstance(promised, int) != (right is not None) or (right is not None and promised != right):
                return f"{name} promises {promised} where the contract says {right or 'any'}"
            if right is None and ROW_STRIDE_MULTIPLE % _divisor(promised):
                return f"{name} promises multiples of {_divisor(promised)}"
        aligned = _WORD if name in ("ids", "weights") else ALIGNMENT
        if aligned % tensor._assumed_align:
            return f"{name} promises {tensor._assumed_align} bytes"
        kind = "Int32" if name in ("ids", "metadata") else "Float32"
        if tensor.element_type.__name__ != kind:
            return f"{name} promises {tensor.element_type.__name__}"
    return None if "i64" in str(tensors[0].stride[0]) else "the row stride has 32 bits"


def _divisor(symbol: object) -> int:
    """Return what the symbolic number is promised to be a multiple of, from its text as ``?{i64 div=4}``."""
    match = re.search(r"div=(\d+)", str(symbol))
    return int(match[1]) if match is not None else 1


def _read_host_code(text: str, metadata: bool) -> str | None:
    """Follow straight-line LLVM: values into stack cells, cells into the launch's argument array."""
    body = re.search(r"llvm\.func @cutlass_launch_.*?\{\n(.*?)\n  \}", text, re.DOTALL)
    if body is None:
        return "no launch function"
    constants: dict[str, str] = dict(re.findall(r"(%\d+) = llvm\.mlir\.constant\((-?\d+) : i\d+\)", body[1]))
    values = {f"%arg{i}": f"arg{i}" for i in range(16)}
    for name, source, path in re.findall(r"(%\d+) = llvm\.extractvalue (%arg\d+)\[([\d, ]+)\]", body[1]):
        values[name] = f"{source[1:]}.{path.replace(', ', '.')}"
    cells: dict[str, str] = {}
    slots: dict[str, str] = {}
    fields: dict[str, str] = {}
    addresses: dict[str, tuple[str, str]] = {}
    for line in body[1].splitlines():
        address = re.search(r"(%\d+) = llvm\.getelementptr (%\d+)\[(.*?)\] .*?-> !llvm\.ptr, (.*)", line)
        stored = re.search(r"llvm\.store (%\w+), (%\d+) :", line)
        if address is not None:
            addresses[address[1]] = (address[2], constants.get(address[3], address[3]))
        elif stored is not None:
            value, place = stored.groups()
            base, index = addresses.get(place, ("", ""))
            if index.isdigit() and value in cells:
                slots[index] = cells[value]
            elif re.fullmatch(r"0, \d+(, \d+)?", index):
                fields.setdefault(
                    index[3:].replace(", ", "."), constants.get(value, values.get(value, value))
                )
            elif not base:
                cells[place] = values.get(value, value)
    cluster = [constants.get(value, values.get(value, value)) for value in _CLUSTER.findall(body[1])]
    return _launched(slots, fields, cluster, body[1], constants, metadata)


def _launched(
    slots: dict[str, str],
    fields: dict[str, str],
    cluster: list[str],
    body: str,
    constants: dict[str, str],
    metadata: bool,
) -> str | None:
    compiled = artifact("cute", metadata, True)
    tensors = [name for name in _SHAPES if metadata or name != "metadata"]
    numbers = ("scale", "offset", "count", "tile", "stream")
    sources = {name: f"arg{i}.0" for i, name in enumerate(tensors)}
    sources |= {name: f"arg{len(tensors) + i}" for i, name in enumerate(numbers)}
    sources |= {"tokens": "arg0.1.0", "row_stride": "arg0.1.1"}
    right = [sources[name] for name in PARAMETERS if name in sources]
    given = [slots.get(str(i), "nothing") for i in range(len(right))]
    if given != right:
        return f"the launch passes {given}, not {right}"
    sizes = [fields.get(f"{kind}.{axis}") for kind, axis in product((0, 1), range(3))]
    grid = sources["tokens"] if compiled.row_ctas else "1"
    if sizes != [grid, "1", "1", str(compiled.threads), "1", "1"]:
        return f"the launch is of {sizes}"
    if cluster != ([grid, "1", "1"] if compiled.cluster else []):
        return f"the launch is of clusters of {cluster}"
    if fields.get("3") != sources["stream"]:
        return "the launch is not on the caller's stream"
    set_attributes = {
        constants.get(v) for v in re.findall(r"llvm\.store (%\d+), %\d+ : i32, !llvm\.ptr", body)
    }
    if str(_PROGRAMMATIC_SERIALIZATION) not in set_attributes:
        return "the launch is not programmatic dependent"
    return None


def _triton() -> str | None:
    """Read what Triton's launcher will do from the compiled kernel's facts."""
    compiler = import_module("impl_triton.compiler")
    facts = compiler.build(True, True, "sm_90a").metadata
    if not facts.launch_pdl:
        return "the launch is not programmatic dependent"
    if facts.num_ctas != 1:
        return f"the launch is of {facts.num_ctas} CTAs"
    compiled = artifact("triton", True, True)
    if compiled.row_ctas or compiled.cluster:
        return "the one CTA is said to be more"
    return None


CHECKS: Final[dict[str, Callable[[], str | None]]] = {"cute": _cute, "triton": _triton}
