"""A pretended card: tensors on the CPU, graphs that are lists of launches, a clock that is told the time."""

from types import SimpleNamespace

import pytest
import torch

from oracle.bench import subjects


class Graph:
    def __init__(self, enqueue, launches):
        self.enqueue, self.launches = enqueue, launches


class Clock:
    """Like `timing.Clock`; ``times`` gives each sample of a graph, by the number of samples taken so far."""

    launches = 3

    def __init__(self, times=lambda graph, taken: 1.0):
        self.times, self.taken, self.busied = times, 0, 0

    def capture(self, enqueue):
        enqueue(1)
        return Graph(enqueue, self.launches)

    def synchronize(self):
        pass

    def replay(self, graph):
        graph.enqueue(graph.launches)

    def busy(self, graph, seconds):
        self.busied += 1

    def sample(self, graph):
        self.taken += 1
        return [self.times(graph, self.taken)] * 5


@pytest.fixture
def clock():
    return Clock


@pytest.fixture
def pretended(monkeypatch):
    """Let `oracle.bench.subjects` make its tensors on the CPU, and let all its kernels be there."""
    monkeypatch.setattr(subjects, "DEVICE", "cpu")
    monkeypatch.setattr(subjects, "unavailable", lambda kernel: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return monkeypatch
