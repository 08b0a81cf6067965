"""What a kernel's PTX must show whatever the inputs are: rounding, the order around the wait, the loads."""

from typing import Final

from oracle import inspection
from oracle.artifacts import Compiled
from oracle.backends.cute import PARAMETERS

_LOGITS: Final = 0
_BIAS: Final = {"cute": list(PARAMETERS).index("bias"), "triton": 1}
"""Numbers of kernel parameters."""
_ARITHMETIC: Final = (
    "add",
    "sub",
    "mul",
    "fma",
    "mad",
    "div",
    "rcp",
    "ex2",
    "min",
    "max",
    "neg",
    "abs",
    "sqrt",
)
_PERMITTED: Final = ("add.rn.f32", "mul.rn.f32", "ex2.approx.ftz.f32", "rcp.approx.ftz.f32")
_THREADS: Final = {"cute": (256, 288), "triton": (256,)}
"""Of a CTA; the CuTe kernel has a warp more with metadata."""
_LOAD: Final = {"cute": "ld.global.f32 ", "triton": ".v4."}
"""How wide a thread reads: one expert in the CuTe kernel, four at once in Triton's."""


def fault(
    backend: str, compiled: Compiled, arch: str = "sm_90a", early_dependents: bool = False
) -> str | None:
    """Return what is wrong with one variant's code, None if nothing is.

    Parameters
    ----------
    backend
        ``cute`` or ``triton``.
    compiled
        The variant, compiled for ``arch``.
    early_dependents
        Whether it is one that launches its dependents first.
    """
    if f".target {arch}" not in compiled.ptx or not compiled.cubin.startswith(b"\x7fELF"):
        return f"not compiled for {arch}"
    if compiled.threads not in _THREADS[backend]:
        return f"{compiled.threads} threads"
    if (compiled.dynamic_shared > 0) != (".extern .shared" in compiled.ptx):
        return f"{compiled.dynamic_shared} bytes of dynamic shared memory"
    listing = inspection.ptx_listing(compiled.ptx, compiled.entry)
    if inspection.contractible(listing):
        return "A1, A2: a product or sum that may be contracted"
    for instruction in listing:
        opcode = instruction.opcode
        arithmetic = opcode.endswith(".f32") and opcode.split(".")[0] in _ARITHMETIC
        if arithmetic and opcode not in _PERMITTED:
            return f"A1-A6: {opcode}"
    if early_dependents and not inspection.launches_dependents_first(listing):
        return "dependents are not launched first"
    if not early_dependents and inspection.launches_dependents(listing):
        return "dependents are launched early"
    accesses = inspection.ptx_accesses(listing, compiled.ptx, compiled.entry)
    for access in accesses:
        if access.kind == "load":
            early = _BIAS[backend] in access.origins
            if (access.before, access.after) != (early, not early):
                return f"a load on the wrong side of the wait: {access.text}"
            if _LOAD[backend] not in access.text:
                return f"a load of another width: {access.text}"
            if not early and _LOGITS not in access.origins:
                return f"a load of what is no input: {access.text}"
        elif access.before or not access.after:
            return f"a store ahead of the wait: {access.text}"
    return None


def instructions(ptx: str) -> str:
    """Return the PTX without what depends on the source's lines: comments, ``.loc``, debug sections."""
    kept = []
    for line in ptx.split("\n\t.section")[0].splitlines():
        text = line.split("//")[0].strip()
        if (
            text
            and not text.startswith((".loc", ".file"))
            and "$L__tmp" not in text
            and "$L__func" not in text
        ):
            kept.append(text)
    return "\n".join(kept)
