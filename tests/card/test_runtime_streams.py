"""Streams, threads and devices."""

import threading

import pytest

pytestmark = pytest.mark.card
SPIN = 20_000_000
"""Clock cycles, about 10 ms, that a stream is kept busy."""


def problem(make, seed, tokens=8):
    tile = (0, 1, 8, 24, 256)[seed % 5]
    offset = seed * 7 % 200
    return make(seed, tokens, tile, offset, 1 + seed % (256 - offset), renormalize=seed % 3 > 0)


def test_route_runs_on_the_side_stream_that_is_current(host, make):
    import torch

    stream = torch.cuda.Stream()
    for seed in range(10):
        one = problem(make, seed)
        right = one.logits.clone()
        one.logits.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            one.logits.copy_(right)
            one.route(host)
        stream.synchronize()
        assert one.wrong() == 0


def test_route_does_not_wait_for_the_card(host, make):
    import torch

    one = problem(make, 1)
    one.route(host)
    torch.cuda.synchronize()
    torch.cuda._sleep(20 * SPIN)
    one.route(host)
    event = torch.cuda.Event()
    event.record()
    assert not event.query()
    torch.cuda.synchronize()


def test_two_streams_at_once_each_get_their_own_results(host, make):
    import torch

    streams = [torch.cuda.Stream() for _ in range(2)]
    problems = [problem(make, seed, 1 + seed % 8) for seed in range(400)]
    torch.cuda.synchronize()
    for number, one in enumerate(problems):
        with torch.cuda.stream(streams[number % 2]):
            one.route(host)
    torch.cuda.synchronize()
    assert [one.wrong() for one in problems] == [0] * 400


def test_eight_threads_at_once_each_get_their_own_results(host, make):
    import torch

    problems = [
        [problem(make, 50 * thread + seed, 1 + seed % 8) for seed in range(50)] for thread in range(8)
    ]
    torch.cuda.synchronize()
    start, failures = threading.Barrier(8), []

    def work(mine):
        try:
            start.wait()
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(4):
                    for one in mine:
                        one.route(host)
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in problems]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert failures == []
    assert [one.wrong() for mine in problems for one in mine] == [0] * 400


def test_eight_threads_may_be_the_first_to_route(script):
    assert "right 64" in script("threads_first")


def test_the_current_device_is_left_as_it_was(host, make):
    import torch

    last = f"cuda:{torch.cuda.device_count() - 1}"
    one = make(3, 4, tile=8, device=last)
    before = torch.cuda.current_device()
    one.route(host)
    assert torch.cuda.current_device() == before
    host.prepare()
    assert torch.cuda.current_device() == before
    torch.cuda.synchronize(last)
    assert one.wrong() == 0


def test_tensors_that_require_grad_are_read_and_no_graph_is_recorded(host, make):
    one = make(4, 4)
    one.logits = one.logits.clone().requires_grad_()
    one.route(host)
    assert one.wrong() == 0
    assert one.weights.grad_fn is None
