"""What the kernels, the host and `prepare` are to reach, and whether they do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from oracle.bench import host_time, prepare
from oracle.bench.figures import Figure
from oracle.bench.kernels import Kernels
from oracle.bench.points import BATCHES, INPUTS, NATURAL, NO_METADATA, OURS, TIED_TILES, TILES, Point

Numbers = tuple[float | None, ...]

STRAIGHTFORWARD: Final[Mapping[int, Numbers]] = {
    NO_METADATA: (1.54, 1.72, 1.76, 2.17),
    1: (2.37, 2.37, 2.39, 2.79),
    8: (2.51, 2.53, 2.56, 2.96),
    64: (2.71, 2.74, 2.82, 3.43),
    256: (3.45, 3.61, 3.93, 5.29),
}
"""Microseconds per launch by tile, at each of `BATCHES`, of a straightforward CuTe DSL kernel.

It has one CTA, a warp a row, and eight rounds of reduction, ballot and find-first. It was measured on an
H200 in the way of `oracle.bench.timing`.
"""

_CUTE_PLAIN: Final = ((1.15, 1.2, 1.2, 1.25), (1.0, 1.0, 1.0, 1.05))
_CUTE_METADATA: Final = ((1.7, 2.0, 2.0, 2.0), (1.4, 1.75, 1.75, 1.75))
_TRITON_FLOOR: Final = 2.6
_HOST: Final = {"cute": (6.0, 4.0), "triton": (9.0, 6.0)}
_PREPARE: Final = {("cute", prepare.COLD): 1.5, ("triton", prepare.COLD): 5.0,
                   ("cute", prepare.WARM): 0.5, ("triton", prepare.WARM): 0.5}  # fmt: skip

STRETCH, TARGET, MISSED, NO_FIGURE, NO_RIVAL = "stretch", "target", "missed", "no figure", "no rival"


@dataclass(frozen=True)
class Goal:
    """One line of the table of targets.

    what
        In words, with its unit.
    measured, target, stretch
        A number for each of `BATCHES`, or one alone; None where there is none. Reached is at most the number.
    """

    what: str
    measured: Numbers
    target: Numbers
    stretch: Numbers

    def reached(self) -> tuple[str, ...]:
        """Return for each number what it reached."""
        return tuple(map(_reached, self.measured, self.target, self.stretch))

    def record(self) -> dict[str, Any]:
        """Return the goal as JSON values."""
        return {
            "what": self.what,
            "measured": [_rounded(number) for number in self.measured],
            "target": [_rounded(number) for number in self.target],
            "stretch": [_rounded(number) for number in self.stretch],
            "reached": list(self.reached()),
        }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _reached(measured: float | None, target: float | None, stretch: float | None) -> str:
    if measured is None:
        return NO_FIGURE
    if target is None:
        return NO_RIVAL
    if measured > target:
        return MISSED
    return STRETCH if stretch is not None and measured <= stretch else TARGET


def of_kernels(found: Kernels) -> list[Goal]:
    """Return the goals of the kernels' time per launch."""

    def row(kernel: str, tile: int = NO_METADATA, inputs: str = NATURAL) -> Numbers:
        return tuple(found.microseconds(Point(kernel, b, tile, inputs)) for b in BATCHES)

    goals = [Goal("cute, no metadata, us", row("cute"), *_CUTE_PLAIN)]
    goals += [Goal(f"cute, tile {tile}, us", row("cute", tile), *_CUTE_METADATA) for tile in TILES]
    published = row("vllm")
    goals.append(
        Goal("triton, no metadata, us", row("triton"), _times(published, 0.75), _times(published, 0.5))
    )
    for tile in TILES:
        ours = row("cute", tile)
        target = _each(ours, lambda time: max(1.5 * time, _TRITON_FLOOR))
        goals.append(Goal(f"triton, tile {tile}, us", row("triton", tile), target, _times(ours, 1.2)))
    for kernel in OURS:
        for inputs in INPUTS:
            for tile in TIED_TILES if inputs != NATURAL else ():
                name = f"{kernel}, {f'tile {tile}' if tile else 'no metadata'}, {inputs}, us"
                goals.append(
                    Goal(
                        name, row(kernel, tile, inputs), STRAIGHTFORWARD[tile], _times(row(kernel, tile), 1.1)
                    )
                )
    return goals


def of_host(found: Mapping[host_time.Key, Figure]) -> list[Goal]:
    """Return the goals of the host's time per eager call."""
    goals = []
    for (kernel, tile, part), figure in found.items():
        if kernel in _HOST and part == host_time.WHOLE:
            target, stretch = _HOST[kernel]
            name = f"host, {kernel}, {f'tile {tile}' if tile else 'no metadata'}, us a call"
            goals.append(Goal(name, (figure.value,), (target,), (stretch,)))
    return goals


def of_prepare(found: Mapping[prepare.Key, Figure]) -> list[Goal]:
    """Return the goals of `prepare`."""
    return [
        Goal(f"prepare, {backend}, {state} caches, s", (figure.value,), (_PREPARE[backend, state],), (None,))
        for (backend, state), figure in found.items()
    ]


def _each(numbers: Numbers, make: Callable[[float], float]) -> Numbers:
    return tuple(None if number is None else make(number) for number in numbers)


def _times(numbers: Numbers, factor: float) -> Numbers:
    return _each(numbers, lambda number: number * factor)
