"""Compile one variant of the kernel for one architecture: no GPU, no driver, no torch.

`host` launches what `build` returns, the simulator reads what `compile_kernel` returns: both see one PTX.
The signature is written out here, so nothing about a call can specialise the kernel.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

from impl_triton import kernel
from spec.constants import ALIGNMENT

OPTIONS: Final = {"arch": str, "maxnreg": int, "ptx_version": int, "ptx_options": str}
"""What ``options`` may name: ``arch`` as in `compile_kernel`, and Triton's own that leave results alone."""

SIGNATURE: Final = {
    "logits": "*fp32",
    "bias": "*fp32",
    "ids": "*i32",
    "weights": "*fp32",
    "metadata": "*i32",
    "b": "i32",
    "stride4": "i64",
    "scale": "fp32",
    "offset": "i32",
    "count": "i32",
    "tile": "i32",
    "with_metadata": "constexpr",
    "renormalize": "constexpr",
    "early_dependents": "constexpr",
}
"""The kernel's parameters in order, with their types in the variant with metadata."""
_ALIGNED: Final = ("logits", "bias", "metadata")
_FIXED_OPTIONS: Final = {"num_warps": kernel.WARPS, "launch_pdl": True, "enable_fp_fusion": False}
_WARP: Final = 32


@dataclass(frozen=True)
class Compiled:
    """One compiled variant.

    ptx, cubin
        What Triton made for the one architecture.
    entry
        The kernel's name in both.
    threads, dynamic_shared
        Of a CTA; bytes that a launch must ask for.
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
    metadata: bool, renormalize: bool, arch: str = "sm_90a", options: str = "", early_dependents: bool = False
) -> Compiled:
    """Compile one variant.

    Parameters
    ----------
    metadata, renormalize
        The variant.
    arch
        ``sm_90a``, ``sm_100a``, ``sm_103a``, ``sm_120a`` or a later one; ``options`` may name another.
    options
        ``name=value`` pairs with commas between; the names are those of `OPTIONS`.
    early_dependents
        Whether it launches its dependents first.

    Raises
    ------
    ValueError
        ``arch`` or ``options`` is not of that form.
    """
    made = build(metadata, renormalize, arch, options, early_dependents)
    facts = made.metadata
    return Compiled(
        made.asm["ptx"],
        made.asm["cubin"],
        facts.name,
        _WARP * facts.num_warps,
        facts.shared,
        row_ctas=False,
        cluster=False,
    )


def build(
    metadata: bool, renormalize: bool, arch: str, options: str = "", early_dependents: bool = False
) -> Any:
    """Compile one variant, as `compile_kernel` does, to Triton's own ``CompiledKernel``, not yet loaded."""
    constants: dict[str, Any] = {
        "with_metadata": metadata,
        "renormalize": renormalize,
        "early_dependents": early_dependents,
    }
    if not metadata:
        constants["metadata"] = None
    signature = {name: "constexpr" if name in constants else kind for name, kind in SIGNATURE.items()}
    # Only what the contract promises: ids and weights are element-aligned, and integers are any integers.
    aligned = [["tt.divisibility", ALIGNMENT]]
    attributes = {(i,): aligned for i, name in enumerate(signature) if name in _ALIGNED}
    source = GluonASTSource(kernel.route_kernel, signature, constants, attributes)
    chosen = parse_options(options)
    target = GPUTarget("cuda", _target_number(str(chosen.pop("arch", arch))), _WARP)
    return triton.compile(source, target=target, options=chosen | _FIXED_OPTIONS)


def parse_options(options: str) -> dict[str, int | str]:
    """Read ``options``, as `compile_kernel` describes it."""
    parsed: dict[str, int | str] = {}
    for item in filter(None, (part.strip() for part in options.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        kind = OPTIONS.get(name)
        if kind is None or not equals:
            raise ValueError(f"options must be name=value, name one of {', '.join(OPTIONS)}, not {item!r}")
        try:
            parsed[name] = kind(value)
        except ValueError:
            raise ValueError(f"options: {name} must be an integer, not {value!r}") from None
    return parsed


def _target_number(arch: str) -> int:
    """Return 90 for ``sm_90a``: Triton adds the ``a`` itself."""
    match = re.fullmatch(r"sm_(\d{2,3})a", arch)
    if match is None or int(match[1]) < 90:
        raise ValueError(f"arch must be sm_90a or a later sm_NNa, not {arch!r}")
    return int(match[1])
