"""A figure: the same thing measured twice, interleaved with all others, and refused where the two differ."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, TypeVar

from oracle.progress import Progress

LIMIT: Final = 0.05
"""How far apart the two measurements of a figure may be, relative to the smaller one."""

TRIES: Final = 3
"""Pairs that are measured at most: a pair that differs by more than `LIMIT` is thrown away as a whole."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Figure:
    """One figure.

    unit
        Of all numbers here: ``us``, ``s``, ``launches/s``.
    first, second
        The median of each measurement's samples.
    median
        Of the samples of both.
    tries
        Pairs that were measured until two measurements agreed, 1..`TRIES`.
    """

    unit: str
    first: float
    second: float
    median: float
    tries: int = 1

    @property
    def spread(self) -> float:
        """How far the second measurement is from the first, relative to the smaller one."""
        return abs(self.first - self.second) / min(self.first, self.second)

    @property
    def refused(self) -> str | None:
        """Why there is no figure to print, in one line; None if there is one."""
        if self.spread <= LIMIT:
            return None
        return (
            f"refused: measured {self.first:.4g} and {self.second:.4g} {self.unit}, "
            f"{self.spread:.1%} apart and {LIMIT:.0%} allowed, in the last of {self.tries} tries"
        )

    @property
    def value(self) -> float | None:
        """The median, or None where it is refused."""
        return None if self.refused else self.median

    def record(self) -> dict[str, Any]:
        """Return the figure as JSON values; a refused one has ``refused`` and no ``median``."""
        head: dict[str, Any] = {"unit": self.unit}
        if self.refused:
            head["refused"] = self.refused
        else:
            head["median"] = float(f"{self.median:.5g}")
        pair = [float(f"{number:.5g}") for number in (self.first, self.second)]
        return head | {"spread": round(self.spread, 4), "measurements": pair, "tries": self.tries}


def figure(unit: str, first: Sequence[float], second: Sequence[float], tries: int = 1) -> Figure:
    """Return the figure of the samples of two measurements; all samples are above zero."""
    return Figure(unit, median(first), median(second), median([*first, *second]), tries)


def twice(
    keys: Sequence[Key],
    sample: Callable[[Key], Sequence[float]],
    unit: str,
    tell: Callable[[Key, Figure], None] = lambda key, figure: None,
    progress: Progress | None = None,
) -> dict[Key, Figure]:
    """Measure everything once, then everything a second time; again both, up to `TRIES`, what does not agree.

    Parameters
    ----------
    keys
        What to measure.
    sample
        Measures one of them: returns its samples.
    unit
        Of the samples.
    tell
        Called for each figure that is settled.
    progress
        Is told of the measurements.
    """
    progress = progress or Progress()
    found: dict[Key, Figure] = {}
    waiting = list(keys)

    def measured(key: Key) -> Sequence[float]:
        taken = sample(key)
        progress.advance(1)
        return taken

    for tries in range(1, TRIES + 1):
        with progress.over(2 * len(waiting), "measurements"):
            first = {key: measured(key) for key in waiting}
            for key in waiting:
                found[key] = figure(unit, first[key], measured(key), tries)
                if found[key].refused is None or tries == TRIES:
                    tell(key, found[key])
        waiting = [key for key in waiting if found[key].refused]
        if not waiting:
            break
    return found
