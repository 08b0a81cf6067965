"""Reads how the compiled code is launched: its CTAs, dependent on the one before, each argument in place."""

import os
import re
from collections.abc import Callable
from importlib import import_module
from itertools import product
from typing import Any, Final

from oracle.artifacts import artifact
from oracle.backends.cute import PARAMETERS
from spec.constants import ALIGNMENT

_PROGRAMMATIC_SERIALIZATION: Final = 6
"""``cudaLaunchAttributeProgrammaticStreamSerialization``."""

_CLUSTER: Final = re.compile(
    r"getelementptr %\d+\[0, \d\] [^\n]*struct<\(i32, i32, i32\)>\n\s+llvm\.store (%\w+), "
)
"""A store into the dimensions of the cluster that a launch attribute holds."""

_PROMISED: Final = {
    "logits": ("Float32", ALIGNMENT),
    "row_stride": ("Int64", None),
    "bias": ("Float32", ALIGNMENT),
    "ids": ("Int32", 4),
    "weights": ("Float32", 4),
    "tokens": ("Int32", None),
    "scale": ("Float32", None),
    "metadata": ("Int32", ALIGNMENT),
    "offset": ("Int32", None),
    "count": ("Int32", None),
    "tile": ("Int32", None),
}
"""What the compiled function takes, in order: a number's type, or what an address points to and lies on."""

_WORDS: Final = {"Int64": "int64", "Int32": "int32", "Float32": "float32"}


def _cute() -> str | None:
    """Read the host code that the DSL makes, and what its arguments promise."""
    compiler = import_module("impl_cute.compiler")
    for metadata in (True, False):
        promised = _promises(compiler, metadata)
        if promised is not None:
            return promised
        made = compiler.compile_variant(metadata, True, "--gpu-arch sm_90a --enable-tvm-ffi")
        found = _read_host_code(str(made.ir_module), metadata) or _load(compiler, metadata)
        if found is not None:
            return found
    return None


def _promises(compiler: Any, metadata: bool) -> str | None:
    """Say where the arguments that are compiled for promise what the contract does not."""
    *given, stream = compiler._arguments(metadata)
    if len(given) != len(_PROMISED) or getattr(stream, "use_tvm_ffi_env_stream", True):
        return f"{len(given)} arguments, not {len(_PROMISED)}, or no stream"
    for (name, (kind, aligned)), argument in zip(_PROMISED.items(), given, strict=True):
        if name == "metadata" and not metadata:
            if argument is not None:
                return "metadata where there is none"
        elif aligned is None:
            if type(argument).__name__ != kind:
                return f"{name} is a {type(argument).__name__}"
        elif aligned % argument._assumed_align or argument._dtype.__name__ != kind:
            return f"{name} promises {argument._assumed_align} bytes of {argument._dtype.__name__}"
        elif argument.memspace.name != "gmem":
            return f"{name} points to {argument.memspace.name}"
    return None


def _load(compiler: Any, metadata: bool) -> str | None:
    """Load the code that the host would launch, and see what it says that it takes."""
    before = sorted(os.listdir())
    code = compiler.compile_object(metadata, True, "--gpu-arch sm_90a")
    if artifact("cute", metadata, True).cubin not in code:
        return "the object has another kernel than the one that is read"
    said = "nothing"
    try:
        compiler.load_object(code)()
    except TypeError as error:
        said = str(error)
    takes = [
        f"{name}: {_WORDS[kind] if aligned is None else 'DataPointer'}"
        for name, (kind, aligned) in _PROMISED.items()
    ]
    if not metadata:
        takes[list(_PROMISED).index("metadata")] = "metadata: None"
    right = f"launch({', '.join(takes)}, stream: Stream)"
    if right not in said:
        return f"the loaded function says {said}"
    if sorted(os.listdir()) != before:
        return "files are left in the current folder"
    return None


def _read_host_code(text: str, metadata: bool) -> str | None:
    """Follow straight-line LLVM: values into stack cells, cells into the launch's argument array."""
    body = re.search(r"llvm\.func @cutlass_launch_.*?\{\n(.*?)\n  \}", text, re.DOTALL)
    if body is None:
        return "no launch function"
    constants: dict[str, str] = dict(re.findall(r"(%\d+) = llvm\.mlir\.constant\((-?\d+) : i\d+\)", body[1]))
    values = {f"%arg{i}": f"arg{i}" for i in range(16)}
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
    passed = [name for name in _PROMISED if metadata or name != "metadata"]
    sources = {name: f"arg{i}" for i, name in enumerate([*passed, "stream"])}
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
