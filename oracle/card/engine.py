"""The compiled loop of the sweep: sweep.cu behind ctypes, for the card, or for this host in its tests."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import spec
from oracle.artifacts import Compiled
from oracle.card import build
from oracle.card.device import CardError
from oracle.card.parameters import Layout
from oracle.card.points import PROBLEMS, RANGES, Problems, Unit, ranges

SETS: Final = 2
"""Sets of output slots: one is compared while the next is written."""

MAX_BACKENDS: Final = 2
EXAMPLES: Final = 32
AREAS: Final = ("ids", "weights", "metadata")

_MAX_PARAMS: Final = 32
_MAX_IMAGE: Final = 512
_MAX_PATCHES: Final = 32


class _Patch(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("field", "at", "size", "divisor")]


class _Kernel(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("threads", "dynamic_shared", "row_ctas", "cluster")),
        *((name, ctypes.c_int32) for name in ("params", "patches")),
        ("param_at", ctypes.c_int32 * _MAX_PARAMS),
        ("patch", _Patch * _MAX_PATCHES),
        ("image", ctypes.c_uint8 * _MAX_IMAGE),
    ]


class _Problems(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p) for name in ("logits", "row_stride", "bias", "scale", "ids", "weights")
    ]


class _Job(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("tokens", "tile", "backends", "points", "start", "step")),
        ("number", ctypes.c_uint64),
        ("problems", _Problems),
    ]


class _Side(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in AREAS]


class _Mismatch(ctypes.Structure):
    _fields_ = [
        ("point", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("backend", "area", "index")),
        *((name, ctypes.c_uint32) for name in ("expected", "actual", "problem")),
    ]


class Report(ctypes.Structure):
    """What the comparison found; see sweep.cu."""

    _fields_ = [
        ("words", ctypes.c_uint64),
        ("mismatches", ctypes.c_uint64 * MAX_BACKENDS),
        ("between", ctypes.c_uint64),
        ("sum", ctypes.c_uint64 * (MAX_BACKENDS + 1)),
        ("examples", ctypes.c_uint64),
        ("example", _Mismatch * EXAMPLES),
    ]


@dataclass(frozen=True)
class Kernel:
    """One loaded kernel: the driver's handle, its code, and where its parameters take their values."""

    function: int
    compiled: Compiled
    layout: Layout


@dataclass(frozen=True)
class _OnCard:
    """One b's inputs and answers in the card's memory, and the host's arrays that sweep.cu reads."""

    memory: tuple[int, ...]
    arrays: tuple[npt.NDArray[Any], ...]
    problems: _Problems


def _pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Engine:
    """Launches kernels at points and compares what they write. A context manager: it holds the card's memory.

    Parameters
    ----------
    arch
        ``"sm_90"`` and the like, or None for this host.
    kernels
        Per backend, one or two: the kernel without and the one with renormalize, both with metadata.
    streams, threads
        Streams that launches are spread over, and host threads that launch; ``threads`` divides ``streams``.
    points, tile
        The most points of one call of `run`, and the largest tile.
    """

    def __init__(
        self,
        arch: str | None,
        kernels: Sequence[tuple[Kernel, Kernel]],
        streams: int = 32,
        threads: int = 4,
        points: int = RANGES,
        tile: int = spec.MAX_TILE,
    ) -> None:
        self._library = build.load("sweep.cu", arch)
        self._library.sweep_open.restype = ctypes.c_void_p
        self._library.card_memory.restype = ctypes.c_void_p
        self._check_sizes()
        self._backends = len(kernels)
        self._memory: list[int] = []
        self._loaded: dict[int, _OnCard] = {}
        table = ranges()
        opened = self._library.sweep_open(streams, threads, _pointer(table), len(table))
        if opened is None:
            raise CardError("the sweep could not be set up; the line above says why")
        self._sweep = ctypes.c_void_p(opened)
        for backend, pair in enumerate(kernels):
            for renormalize, kernel in enumerate(pair):
                self._library.sweep_set(self._sweep, backend, renormalize, ctypes.byref(_structure(kernel)))
        slot = 4 * points * self._library.slot_words()
        for set_ in range(SETS):
            for backend in range(self._backends):
                areas = [
                    self._allocate(size)
                    for size in (slot, slot, 4 * points * self._library.metadata_words(tile))
                ]
                self._library.sweep_slots(self._sweep, set_, backend, ctypes.byref(_Side(*areas)))

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *unused: object) -> None:
        self._library.sweep_close(self._sweep)
        for memory in self._memory:
            self._library.card_free(ctypes.c_void_p(memory))

    def on_launch(self, function: Callable[[int, int, int, Any], int]) -> Any:
        """Have the host's build call ``function`` for each launch; keep the result.

        It is given the kernel, the CTAs of the grid and of its cluster (0: none), and the parameters.
        """
        kinds = ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)
        callback = ctypes.CFUNCTYPE(*kinds)(function)
        self._library.sweep_launch(self._sweep, callback)
        return callback

    def load(
        self, tokens: int, problems: Problems, ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> None:
        """Bring one b's `points.problems` and `points.answers` to the card."""
        if tokens in self._loaded:
            return
        logits = problems.memory()
        at = [self._bring(array) for array in (logits, problems.bias, ids, weights)]
        q = np.arange(PROBLEMS, dtype=np.uint64)
        arrays = (
            np.uint64(at[0]) + q * np.uint64(logits.strides[0]),
            problems.row_stride,
            np.uint64(at[1]) + q * np.uint64(problems.bias.strides[0]),
            problems.scale,
        )
        made = _Problems(*(array.ctypes.data for array in arrays), at[2], at[3])
        self._loaded[tokens] = _OnCard(tuple(at), arrays, made)

    def run(self, unit: Unit, start: int = 0, step: int = 1) -> int:
        """Launch every backend at the unit's points ``start``, ``start + step``, ..; return how many points.

        The comparison is enqueued, too; `report` waits for it.
        """
        points = len(range(start, RANGES, step))
        job = _Job(
            tokens=unit.tokens,
            tile=unit.tile,
            backends=self._backends,
            points=points,
            start=start,
            step=step,
            number=unit.number,
            problems=self._loaded[unit.tokens].problems,
        )
        if error := self._library.sweep_run(self._sweep, ctypes.byref(job)):
            raise CardError(f"b {unit.tokens}, tile {unit.tile}: CUDA error {error}")
        return points

    def report(self) -> Report:
        """Wait for everything enqueued and return what was found since the last call."""
        report = Report()
        if error := self._library.sweep_report(self._sweep, ctypes.byref(report)):
            raise CardError(f"CUDA error {error} while waiting for the launches")
        return report

    def _allocate(self, size: int) -> int:
        memory = self._library.card_memory(ctypes.c_uint64(size))
        if memory is None:
            raise CardError(f"no memory for {size:,} bytes on the card")
        self._memory.append(memory)
        return int(memory)

    def _bring(self, array: npt.NDArray[Any]) -> int:
        memory = self._allocate(array.nbytes)
        flat = np.ascontiguousarray(array)
        if error := self._library.card_write(
            ctypes.c_void_p(memory), _pointer(flat), ctypes.c_uint64(flat.nbytes)
        ):
            raise CardError(f"CUDA error {error} while copying to the card")
        return memory

    def _check_sizes(self) -> None:
        sizes = (ctypes.c_int * 4)()
        number = self._library.struct_sizes(sizes)
        mine = [ctypes.sizeof(kind) for kind in (_Kernel, _Job, Report, _Side)]
        if list(sizes) != mine or number != PROBLEMS:
            raise build.BuildError(
                f"sweep.cu and engine.py disagree: {list(sizes)}, {number} and {mine}, {PROBLEMS}"
            )


def _structure(kernel: Kernel) -> _Kernel:
    layout = kernel.layout
    if (
        len(layout.param_at) > _MAX_PARAMS
        or len(layout.image) > _MAX_IMAGE
        or len(layout.patches) > _MAX_PATCHES
    ):
        raise CardError("a kernel's parameters are larger than sweep.cu holds")
    how = {
        name: getattr(kernel.compiled, name) for name in ("threads", "dynamic_shared", "row_ctas", "cluster")
    }
    made = _Kernel(function=kernel.function, **how)
    made.params, made.patches = len(layout.param_at), len(layout.patches)
    made.param_at[: made.params] = layout.param_at
    for place, patch in enumerate(layout.patches):
        made.patch[place] = _Patch(patch.field, patch.at, patch.size, patch.divisor)
    ctypes.memmove(made.image, layout.image, len(layout.image))
    return made
