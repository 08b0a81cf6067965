"""Time per launch on the card: a CUDA graph of launches in a row on one stream, replayed many times."""

import time
from collections.abc import Callable
from typing import Any, Final

from oracle.bench import floors

LAUNCHES: Final = 200
"""Launches in a row in one graph."""

REPLAYS: Final = 60
"""Replays of a graph in one measurement, each timed by two events."""

_WARM: Final = 3
_LONGEST_HOLD: Final = 20e-3
_MICROSECONDS: Final = 1e3
"""In an event's millisecond."""


class Clock:
    """One stream with its events; graphs are captured and replayed on it."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._stream = torch.cuda.Stream()
        self._starts = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS)]
        self._ends = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS)]

    def capture(self, enqueue: Callable[[int], None]) -> Any:
        """Return the graph of what ``enqueue(LAUNCHES)`` puts on the current stream.

        It ran once before, outside the capture: compiling and loading are done.
        """
        with self._torch.cuda.stream(self._stream):
            enqueue(1)
            self._stream.synchronize()
            graph = self._torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                enqueue(LAUNCHES)
            finally:
                graph.capture_end()
        return graph

    def synchronize(self) -> None:
        """Wait for everything on the card, on whatever stream."""
        self._torch.cuda.synchronize()

    def replay(self, graph: Any) -> None:
        """Run the graph once and wait for it."""
        with self._torch.cuda.stream(self._stream):
            graph.replay()
        self._stream.synchronize()

    def busy(self, graph: Any, seconds: float) -> None:
        """Replay for some seconds, so that the card's clocks are up."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.replay(graph)

    def sample(self, graph: Any) -> list[float]:
        """Return the microseconds per launch of each of `REPLAYS` replays.

        The stream is held until all of them are enqueued: no event waits for the host.
        """
        with self._torch.cuda.stream(self._stream):
            start = time.perf_counter()
            for place in range(_WARM):
                self._enqueue(graph, place)
            hold = min((time.perf_counter() - start) * REPLAYS / _WARM * 1.5, _LONGEST_HOLD)
            self._stream.synchronize()
            floors.enqueue("hold", (int(hold * 1e9),), 1, self._stream.cuda_stream)
            for place in range(REPLAYS):
                self._enqueue(graph, place)
            self._stream.synchronize()
        pairs = zip(self._starts, self._ends, strict=True)
        return [start.elapsed_time(end) * _MICROSECONDS / LAUNCHES for start, end in pairs]

    def _enqueue(self, graph: Any, place: int) -> None:
        self._starts[place].record(self._stream)
        graph.replay()
        self._ends[place].record(self._stream)
