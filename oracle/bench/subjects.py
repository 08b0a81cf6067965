"""The points on the card: each one's tensors, how it is enqueued, and whether what it wrote is right."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Final

import numpy as np

import spec
from oracle import backends
from oracle.bench import floors
from oracle.bench.points import EARLY, NO_METADATA, OURS, SCALE, Point, problem
from oracle.compare import PERMITTED, compare, expect
from oracle.problem import I32, POISON_WORD, Batch, Outputs

DEVICE: Final = "cuda"
_BACKEND: Final = {"flashinfer": "flashinfer-logits"}


@dataclass(frozen=True)
class Subject:
    """A point made ready.

    call
        One eager call, of kernels that have one: `route` of ours, the launching function of others.
    enqueue
        Puts so many launches on the current stream, one after the other.
    poison
        Fills the outputs with `POISON_WORD`.
    differing
        Output words that are not as they must be; None where nothing says how they must be.
    """

    point: Point
    call: Callable[[], object] | None
    enqueue: Callable[[int], object]
    poison: Callable[[], None]
    differing: Callable[[], int | None]


class Tensors:
    """One problem's tensors on the device, and the comparison of what they hold with the specification."""

    def __init__(self, point: Point) -> None:
        import torch

        self._torch = torch
        self.batch = problem(point)
        outputs = Outputs.poisoned(self.batch)
        self._expected = expect(self.batch)
        self.logits, self.bias, self.ids, self.weights = (
            torch.from_numpy(array[0]).to(DEVICE, copy=True)
            for array in (self.batch.logits, self.batch.bias, outputs.ids, outputs.weights)
        )
        self.metadata = None
        if outputs.metadata is not None:
            self.metadata = torch.from_numpy(outputs.metadata[0]).to(DEVICE, copy=True)

    def poison(self) -> None:
        """Fill the outputs with `POISON_WORD`."""
        for tensor in (self.ids, self.weights, self.metadata):
            if tensor is not None:
                tensor.view(self._torch.int32).fill_(POISON_WORD)

    def written(self) -> Outputs:
        """Return what the outputs hold now."""
        metadata = None if self.metadata is None else self._words(self.metadata)
        return Outputs(self._words(self.ids), self._words(self.weights).view(np.float32), metadata)

    def _words(self, tensor: Any) -> I32:
        words: I32 = tensor.view(self._torch.int32).cpu().numpy()[None]
        return words

    def differing(self, backend: str) -> int:
        """Return the words that are not right for ``backend``, by the table of what may vary."""
        actual = self.written()
        right = PERMITTED[backend].right(self.batch, self._expected, actual)
        return int(compare(right, actual).sum())


def unavailable(kernel: str) -> str | None:
    """Why a kernel cannot be timed on the card here, in one line; None if it can."""
    if kernel in floors.TEXTS:
        return backends.unavailable("torch", "cuda")
    name = EARLY.get(kernel, kernel)
    return backends.unavailable(_BACKEND.get(name, name), "cuda")


def subject(point: Point) -> Subject:
    """Make one point ready; its kernel is available."""
    make = {"vllm": _vllm, "torch": _torch, "flashinfer": _flashinfer}
    if point.kernel in OURS or point.kernel in EARLY:
        return _ours(point)
    if point.kernel in floors.TEXTS:
        return _floor(point)
    return make[point.kernel](point)


def _in_a_row(call: Callable[[], object]) -> Callable[[int], None]:
    def enqueue(count: int) -> None:
        for _ in repeat(None, count):
            call()

    return enqueue


def _ours(point: Point) -> Subject:
    name = EARLY.get(point.kernel, point.kernel)
    host = _host(name)
    options = {"early_dependents": True} if point.kernel in EARLY else {}
    host.prepare(True, **options)
    tensors = Tensors(point)
    call = partial(host.route, *arguments(point, tensors), **options)
    return Subject(point, call, _in_a_row(call), tensors.poison, partial(tensors.differing, name))


def _host(name: str) -> Any:
    return importlib.import_module(f"impl_{name}.host")


def arguments(point: Point, tensors: Tensors) -> tuple[Any, ...]:
    """Return what `route` is called with."""
    given = (tensors.logits, tensors.bias, tensors.ids, tensors.weights, SCALE, True)
    if point.tile == NO_METADATA:
        return given
    return (*given, tensors.metadata, 0, spec.NUM_EXPERTS, point.tile)


def _vllm(point: Point) -> Subject:
    from oracle.peers import vllm

    tensors = Tensors(point)
    call = partial(
        vllm.load(torch=True).fused_musespark1x_routing,
        tensors.logits,
        tensors.bias,
        spec.TOP_K,
        SCALE,
        router_score_division_eps=spec.SUM_EPSILON,
        topk_weights=tensors.weights,
        topk_ids=tensors.ids,
    )
    return Subject(point, call, _in_a_row(call), tensors.poison, partial(tensors.differing, "vllm"))


def _torch(point: Point) -> Subject:
    import torch

    tensors = Tensors(point)
    keep = torch.empty_like(tensors.weights)
    ids = torch.empty_like(tensors.ids, dtype=torch.int64)

    def call() -> None:
        scores = torch.sigmoid(tensors.logits)
        torch.topk(scores + tensors.bias, spec.TOP_K, out=(keep, ids))
        picked = torch.gather(scores, -1, ids)
        total = picked.sum(dim=-1, keepdim=True)
        torch.mul(picked, SCALE / total, out=tensors.weights)

    # Its sigmoid, sum and order of ties are its own: no table says which bits it must give.
    return Subject(point, call, _in_a_row(call), tensors.poison, lambda: None)


def _flashinfer(point: Point) -> Subject:
    import torch

    from oracle.backends import flashinfer as adapter
    from oracle.peers.flashinfer import driver

    batch = problem(point)
    buffers = adapter.allocate(batch, Outputs.poisoned(batch), from_logits=True)
    outputs = [name for name in buffers if name not in adapter.INPUTS]
    tensors = {name: torch.from_numpy(array).to(DEVICE, copy=True) for name, array in buffers.items()}
    poisoned = {name: tensors[name].clone() for name in outputs}
    where = {name: np.array([tensor.data_ptr()], np.uint64) for name, tensor in tensors.items()}
    calls = adapter.Addresses(where).calls(batch)

    def enqueue(count: int) -> None:
        driver().launch(np.repeat(calls, count), torch.cuda.current_stream().cuda_stream)

    def poison() -> None:
        for name in outputs:
            tensors[name].copy_(poisoned[name])

    def differing() -> int:
        found = {name: tensors[name].cpu().numpy() for name in outputs}
        return _flashinfer_differing(batch, found, adapter.assemble)

    return Subject(point, None, enqueue, poison, differing)


def _flashinfer_differing(
    batch: Batch, found: dict[str, Any], assemble: Callable[[dict[str, Any], Any], None]
) -> int:
    actual = Outputs.poisoned(batch)
    actual.ids[...] = found["replay"]
    actual.weights.view(np.int32)[...] = found["weights"].view(np.int32)
    if actual.metadata is not None:
        assemble(found, actual.metadata)
    right = PERMITTED["flashinfer-logits"].right(batch, expect(batch), actual)
    return int(compare(right, actual).sum())


def _floor(point: Point) -> Subject:
    import torch

    tensors = Tensors(point)
    has_arguments = point.kernel == "floor"
    read_and_written = (tensors.logits, tensors.ids, tensors.weights) if has_arguments else ()
    addresses = tuple(tensor.data_ptr() for tensor in read_and_written)
    threads = floors.WARP * point.batch

    def call() -> None:
        floors.enqueue(point.kernel, addresses, threads, torch.cuda.current_stream().cuda_stream)

    def differing() -> int:
        written = tensors.written()
        largest = tensors.batch.logits.view(np.int32).max(axis=-1, keepdims=True)
        right = largest if has_arguments else POISON_WORD
        return sum(int((words.view(np.int32) != right).sum()) for words in (written.ids, written.weights))

    return Subject(point, None, _in_a_row(call), tensors.poison, differing)
