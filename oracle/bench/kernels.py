"""The kernels' time per launch: every point checked, then measured twice, in one process."""

from dataclasses import dataclass, field
from typing import Any, Final

from oracle.bench import figures, timing
from oracle.bench.figures import Figure
from oracle.bench.points import EARLY, OURS, Point, points
from oracle.bench.subjects import Subject, subject, unavailable
from oracle.report import Reporter

_WARM_SECONDS: Final = 0.5


@dataclass
class Kernels:
    """What was found.

    figures
        Microseconds per launch.
    differing
        Output words, after a replayed graph, that are not as they must be; None where nothing says how.
    left_out
        Why a kernel was not run.
    """

    figures: dict[Point, Figure] = field(default_factory=dict)
    differing: dict[Point, int | None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> dict[Point, int]:
        """Points of our own kernels, and their differing words where there are any."""
        return {
            point: n
            for point, n in self.differing.items()
            if n and EARLY.get(point.kernel, point.kernel) in OURS
        }

    def microseconds(self, point: Point) -> float | None:
        """Return the figure of a point; None where it was refused or not measured."""
        found = self.figures.get(point)
        return found.value if found else None

    def records(self) -> list[dict[str, Any]]:
        """Return a row of JSON values for each point."""
        rows = []
        for point, found in self.figures.items():
            row = {"kernel": point.kernel, "inputs": point.inputs, "tile": point.tile, "b": point.batch}
            launches = 2 * found.tries * timing.REPLAYS * timing.LAUNCHES
            rows.append(row | found.record() | {"launches": launches, "differing": self.differing[point]})
        return rows


def measure(reporter: Reporter, wanted: list[Point] | None = None, clock: Any = None) -> Kernels:
    """Measure ``wanted``, all points unless given; each figure is told as it is settled.

    ``clock`` is a `timing.Clock`, or something like it.
    """
    found = Kernels()
    chosen = points() if wanted is None else wanted
    for kernel in dict.fromkeys(point.kernel for point in chosen):
        reason = unavailable(kernel)
        if reason is not None:
            found.left_out[kernel] = reason
            reporter.say(f"{kernel}: not measured: {reason}")
    clock = clock or timing.Clock()
    subjects: dict[Point, Subject] = {}  # a graph holds addresses: their tensors must outlive its last replay
    graphs: dict[Point, Any] = {}
    runnable = [point for point in chosen if point.kernel not in found.left_out]
    with reporter.over(len(runnable), "points captured"):
        for point in runnable:
            made = subjects[point] = subject(point)
            graphs[point] = clock.capture(made.enqueue)
            found.differing[point] = check(made, clock, graphs[point])
            reporter.advance(1)
    if not graphs:
        return found
    reporter.say(f"{len(graphs)} points captured and checked; measuring each twice, then checking again")
    clock.busy(next(reversed(graphs.values())), _WARM_SECONDS)

    def settled(point: Point, figure: Figure) -> None:
        found.figures[point] = figure
        reporter.say(f"{point!s:34} {line(figure)}")

    figures.twice(list(graphs), lambda point: clock.sample(graphs[point]), "us", settled, reporter)
    for point, made in subjects.items():
        after = check(made, clock, graphs[point])
        found.differing[point] = None if after is None else max(after, found.differing[point] or 0)
        if found.differing[point]:
            reporter.say(f"{point}: {found.differing[point]} output words are not as they must be")
    return found


def check(made: Subject, clock: Any, graph: Any) -> int | None:
    """Run the graph over poisoned outputs: return the words that differ from what must be there."""
    made.poison()
    clock.synchronize()
    clock.replay(graph)
    return made.differing()


def line(figure: Figure) -> str:
    """Return a figure in one line, or why there is none."""
    if figure.refused:
        return figure.refused
    return f"{figure.median:9.4g} {figure.unit}, two measurements {figure.spread:.1%} apart"
