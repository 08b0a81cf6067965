"""`torch.ops.musespark_routing.route`: the door's `route` as an operator of torch, whole under torch.compile.

torch learns from `SCHEMA` what a call reads and writes. While it traces, it calls the operator with tensors
that have no data; `spec.contract` judges them too, but for where they lie. This module imports no torch: it
waits until somebody else has, so that who needs none pays for none and no order of imports matters.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from spec.contract import check_route

NAME: Final = "musespark_routing::route"
SCHEMA: Final = (
    "(Tensor logits, Tensor bias, Tensor(a!) ids, Tensor(b!) weights, float scale, bool renormalize=True, "
    "Tensor(c!)? metadata=None, int local_expert_offset=0, int num_local_experts=0, int tile_n=0, "
    "bool early_dependents=False) -> ()"
)
"""`route` in torch's words; ``!`` marks what is written."""


@dataclass
class _Offered:
    """What the door has offered last, and what torch has been told, which is told once a process."""

    route: Any = None
    device_type: str = ""
    library: Any = None
    replaced: set[Callable[..., None]] = field(default_factory=set)


_offered: Final = _Offered()


def offer(route: Callable[..., None], device_type: str) -> None:
    """Register ``route`` as the operator, which torch.compile takes also where it meets ``route`` itself.

    Both happen now where torch, and the part of it that compiles, are imported already, else when they are.

    Parameters
    ----------
    route
        The door's function.
    device_type
        ``"cuda"`` or ``"cpu"``: where its tensors must be.
    """
    _offered.route, _offered.device_type = route, device_type
    _when_imported("torch", _register)
    _when_imported("torch._dynamo", partial(_replace, route))


def _register() -> None:
    if _offered.library is not None:
        return
    torch: Any = sys.modules["torch"]

    def run(*arguments: Any, **named: Any) -> None:
        _offered.route(*arguments, **named)

    namespace, name = NAME.split("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    # The kernels take rows by their stride: what a compiler hands over must lie as it was described.
    library.define(name + SCHEMA, tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag))
    library.impl(name, run, "CompositeExplicitAutograd")  # on any device: `route` says which it takes
    torch.library.register_fake(NAME, _check, lib=library)
    _offered.library = library  # the registration lives as long as this object


def _check(
    logits: Any,
    bias: Any,
    ids: Any,
    weights: Any,
    scale: Any,
    renormalize: Any = True,
    metadata: Any = None,
    local_expert_offset: Any = 0,
    num_local_experts: Any = 0,
    tile_n: Any = 0,
    early_dependents: Any = False,
) -> None:
    tensors = (None if each is None else _Described(each) for each in (logits, bias, ids, weights, metadata))
    logits, bias, ids, weights, metadata = tensors
    check_route(
        logits, bias, ids, weights, scale, renormalize, metadata,
        local_expert_offset, num_local_experts, tile_n, early_dependents, device_type=_offered.device_type,
    )  # fmt: skip


def _replace(route: Callable[..., None]) -> None:
    torch: Any = sys.modules["torch"]
    operator = torch.ops.musespark_routing.route.default

    def traced(
        logits: Any,
        bias: Any,
        ids: Any,
        weights: Any,
        scale: Any,
        renormalize: bool = True,
        metadata: Any = None,
        local_expert_offset: int = 0,
        num_local_experts: int = 0,
        tile_n: int = 0,
        early_dependents: bool = False,
    ) -> None:
        operator(
            logits, bias, ids, weights, scale, renormalize, metadata,
            local_expert_offset, num_local_experts, tile_n, early_dependents,
        )  # fmt: skip

    if route not in _offered.replaced:
        torch.compiler.substitute_in_graph(route)(traced)
        _offered.replaced.add(route)


class _Described:
    """A tensor without data, as `spec.contract` reads tensors."""

    def __init__(self, tensor: Any) -> None:
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device
        self.stride = tensor.stride

    def data_ptr(self) -> "_Address":
        return _Address()


class _Address:
    """Where a tensor without data will lie, of which nothing is known: it breaks no rule."""

    def __add__(self, distance: Any) -> "_Address":
        return self

    def __mod__(self, alignment: int) -> int:
        return 0

    def __lt__(self, other: "_Address") -> bool:
        return False


def _when_imported(name: str, then: Callable[[], None]) -> None:
    if sys.modules.get(name) is not None:
        then()
    else:
        sys.meta_path.insert(0, _Awaiting(name, then))


class _Awaiting(MetaPathFinder):
    """Calls a function once a module has been imported, which it finds where the finders after it do."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the awaited module; its loader, which a mere question never runs, says when it is there."""
        if fullname != self._name:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        found = next((each for each in specs if each is not None), None)
        loader: Any = None if found is None else found.loader
        if loader is not None:
            load = loader.exec_module

            def load_and_call(module: ModuleType) -> None:
                load(module)
                sys.meta_path.remove(self)
                self._then()

            loader.exec_module = load_and_call
        return found
