"""vLLM's routing kernel, loaded from its one file without the rest of vLLM."""

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from oracle.errors import CannotRunError
from oracle.peers import build
from oracle.peers.find import find

_MODULE: Final = "musespark_peer_vllm_fused_routing"


@dataclass(frozen=True)
class Kernel:
    """The Triton kernel, compiled for the simulator.

    ptx, entry
        As Triton made it, and the kernel's name there.
    threads, shared
        Of one CTA; there is one a token. Bytes.
    arguments
        The names of its parameters, in order; Triton's own pointers follow them.
    """

    ptx: str
    entry: str
    threads: int
    shared: int
    arguments: tuple[str, ...]


@lru_cache(maxsize=2)
def load(torch: bool) -> Any:
    """Return vLLM's routing file as a module.

    Parameters
    ----------
    torch
        Whether the file gets the real torch, as its launching function needs, or only the name.

    Raises
    ------
    CannotRunError
        The file cannot be had, or needs more of vLLM than it did.
    """
    import triton
    import triton.language

    path = find("vllm").folder / build.VLLM_FILE
    platform = SimpleNamespace(is_cuda=lambda: True, is_rocm=lambda: False, is_arch_support_pdl=lambda: True)
    names = {
        "vllm": {},
        "vllm.platforms": {"current_platform": platform},
        "vllm.triton_utils": {"tl": triton.language, "triton": triton},
    }
    if not torch:
        names["torch"] = {"Tensor": object}
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise CannotRunError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        with _standing_in(names):
            spec.loader.exec_module(module)
    except Exception as error:
        raise CannotRunError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


@contextmanager
def _standing_in(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Let imports of these names find modules with only these attributes; put back what was there before."""
    before = {name: sys.modules.get(name) for name in modules}
    for name, attributes in modules.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(attributes)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


_SIGNATURE: Final = {
    "gating_output_ptr": "*fp32",
    "bias_ptr": "*fp32",
    "topk_weights_ptr": "*fp32",
    "topk_ids_ptr": "*i32",
    "is_padding": "constexpr",
    "is_padding_stride": "i32",
    "num_tokens": "i32",
    "num_experts": "i32",
    "stride_gm": "i32",
    "stride_gn": "constexpr",
    "stride_wm": "i32",
    "stride_wk": "constexpr",
    "stride_im": "i32",
    "stride_ik": "constexpr",
    "router_output_multiplier": "fp32",
    "route_scale": "fp32",
    "division_eps": "fp32",
    "TOPK": "constexpr",
    "TOPK_PADDED": "constexpr",
    "NUM_EXPERTS_PADDED": "constexpr",
    "NORMALIZATION_MODE": "constexpr",
    "HAS_MULTIPLIER": "constexpr",
    "HAS_EPS": "constexpr",
    "USE_PDL": "constexpr",
}
_CONSTANTS: Final = {
    "is_padding": None,
    "stride_gn": 1,
    "stride_wk": 1,
    "stride_ik": 1,
    "TOPK": 8,
    "TOPK_PADDED": 8,
    "NUM_EXPERTS_PADDED": 256,
    "NORMALIZATION_MODE": 0,
    "HAS_MULTIPLIER": False,
    "HAS_EPS": True,
    "USE_PDL": True,
}
_OPTIONS: Final = {"num_warps": 1, "launch_pdl": True, "enable_fp_fusion": True}
# What Triton assumes of the arguments that a launch of this shape has.
_MULTIPLES_OF_16: Final = (
    "gating_output_ptr",
    "bias_ptr",
    "topk_weights_ptr",
    "topk_ids_ptr",
    "num_experts",
    "stride_gm",
)


@lru_cache(maxsize=1)
def kernel() -> Kernel:
    """Compile the kernel for 256 experts, sigmoid, an epsilon and PDL, as its launching function has it.

    Raises
    ------
    CannotRunError
        Triton refuses it, or its parameters have changed.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    function = load(torch=False)._routing_kernel
    if tuple(function.arg_names) != tuple(_SIGNATURE):
        raise CannotRunError(f"vLLM's kernel takes other arguments: {', '.join(function.arg_names)}")
    place = {name: (number,) for number, name in enumerate(_SIGNATURE)}
    source = ASTSource(
        fn=function,
        signature=_SIGNATURE,
        constexprs={place[name]: value for name, value in _CONSTANTS.items()},
        attrs={place[name]: [["tt.divisibility", 16]] for name in _MULTIPLES_OF_16},
    )
    try:
        made: Any = compile(source, target=GPUTarget("cuda", 90, 32), options=_OPTIONS)
    except Exception as error:
        message = " ".join(str(error).split())[:300]
        raise CannotRunError(f"Triton cannot compile vLLM's kernel: {message}") from error
    arguments = tuple(name for name, kind in _SIGNATURE.items() if kind != "constexpr")
    return Kernel(made.asm["ptx"], made.metadata.name, 32, int(made.metadata.shared), arguments)
