"""Programmatic dependent launch: `route` may start early, but waits for the kernel before it to end.

That kernel is `late`: it lets its dependents launch at once, spins, and only then copies words. `hasty` is a
dependent that does not wait: it shows that the tests could fail. `patient` is one that waits: with
`early_dependents` it starts beside `route` and still sees all that `route` wrote.
"""

import numpy as np
import pytest

from oracle.card import device
from oracle.problem import POISON_WORD

pytestmark = pytest.mark.card
ROUNDS = 1000
SPIN = 200_000
"""Clock cycles, about 100 us: longer than it takes to enqueue the next launch."""

COPY = """
  mov.u32 %r1, %tid.x;
next:
  setp.ge.u32 %p1, %r1, %r2;
  @%p1 bra end;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.volatile.global.u32 %r3, [%rd4];
  st.volatile.global.u32 [%rd5], %r3;
  add.u32 %r1, %r1, 256;
  bra next;
end:
  ret;
}
"""
HEAD = """
.visible .entry {name}(.param .u64 from, .param .u64 to, .param .u32 words, .param .u64 cycles) {{
  .reg .pred %p<3>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  ld.param.u32 %r2, [words];
  ld.param.u64 %rd6, [cycles];
"""
LATE = """
  griddepcontrol.launch_dependents;
  mov.u64 %rd7, %clock64;
spin:
  mov.u64 %rd8, %clock64;
  sub.s64 %rd8, %rd8, %rd7;
  setp.lt.s64 %p2, %rd8, %rd6;
  @%p2 bra spin;
"""
PTX = {
    name: ".version 8.0\n.target sm_90\n.address_size 64\n" + HEAD.format(name=name) + body + COPY
    for name, body in {"late": LATE, "hasty": "", "patient": "  griddepcontrol.wait;\n"}.items()
}


@pytest.fixture(scope="module")
def copy():
    """Enqueue `late`, `hasty` or `patient`: copy one tensor's words into another."""
    import torch

    torch.zeros(1, device="cuda")
    functions = {name: device.load(text.encode(), name) for name, text in PTX.items()}

    def enqueue(name, source, target, cycles=SPIN):
        params = [source.data_ptr().to_bytes(8, "little"), target.data_ptr().to_bytes(8, "little")]
        params += [source.numel().to_bytes(4, "little"), cycles.to_bytes(8, "little")]
        stream = torch.cuda.current_stream().cuda_stream
        device.launch(functions[name], params, threads=256, stream=stream, dependent=name != "late")

    return enqueue


@pytest.fixture(params=[False, True], ids=["dependents-at-the-end", "early-dependents"])
def early(request, host):
    host.prepare(early_dependents=request.param)
    return request.param


def route(host, logits, one, early):
    given = (logits, one.bias, one.ids, one.weights)
    host.route(*given, metadata=one.metadata, **one.arguments, early_dependents=early)


def outputs(one):
    return one.ids, one.weights.view(one.ids.dtype), one.metadata


@pytest.fixture
def problems(make):
    """Eight sets of logits on one bias, and what is right for each, on the card."""
    import torch

    import spec

    made = [make(seed, 8, 24, 16, 128) for seed in range(8)]
    bias = made[0].bias.cpu().numpy()
    for one in made:
        one.bias = made[0].bias
        one.want_ids, one.want_weights = spec.route(one.logits.cpu().numpy(), bias, 1.0)
        one.want_metadata[...] = one.metadata.cpu().numpy()
        spec.write_metadata(one.want_metadata, one.want_ids, 16, 128, 24)
        one.right = [torch.from_numpy(a.view(np.int32).ravel().copy()).cuda()
                     for a in (one.want_ids, one.want_weights, one.want_metadata)]  # fmt: skip
    torch.cuda.synchronize()
    return made


def test_the_late_producer_is_really_late(copy):
    """A dependent that does not wait reads old words."""
    import torch

    source, target, seen = (torch.zeros(1024, dtype=torch.int32, device="cuda") for _ in range(3))
    old = 0
    for number in range(1, 51):
        source.fill_(number)
        copy("late", source, target)
        copy("hasty", target, seen)
        old += int((seen != number).any())
    assert old >= 5


def test_route_never_reads_logits_that_a_late_producer_has_not_written_yet(host, problems, copy, early):
    import torch

    logits = torch.empty(8, 256, device="cuda")
    logits.copy_(problems[-1].logits)
    one = problems[0]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(ROUNDS):
        now = problems[number % 8]
        one.poison()
        copy("late", now.logits, logits)
        route(host, logits, one, early)
        for got, right in zip(outputs(one), now.right, strict=True):
            wrong += (got.ravel() != right).sum()
    assert int(wrong) == 0


def test_route_never_overwrites_outputs_that_a_late_reader_still_reads(host, problems, copy, early):
    import torch

    one = problems[0]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    one.poison()
    route(host, one.logits, one, early)
    for number in range(ROUNDS):
        which = number % 3
        kept = torch.empty_like(outputs(one)[which])
        before, now = problems[number % 8], problems[(number + 1) % 8]
        copy("late", outputs(one)[which], kept)
        route(host, now.logits, one, early)
        right = before.right[which]
        # What a problem leaves alone may hold words of earlier ones.
        wrong += ((kept.ravel() != right) & (right != POISON_WORD)).sum()
    assert int(wrong) == 0


def test_a_dependent_starts_beside_route_where_that_is_asked_for(host, problems, copy, early):
    """One that does not wait then reads outputs that are not written yet: `route` itself waits for `late`."""
    import torch

    one = problems[0]
    logits = torch.empty(8, 256, device="cuda")
    logits.copy_(one.logits)
    old = 0
    for _ in range(50):
        one.poison()
        seen = torch.empty_like(one.ids)
        copy("late", one.logits, logits)
        route(host, logits, one, early)
        copy("hasty", one.ids, seen)
        old += int((seen.ravel() != one.right[0]).any())
    assert old >= 5 if early else old < 5


def test_a_dependent_that_waits_sees_what_two_routes_in_a_row_wrote(host, problems, copy, early):
    import torch

    first, second = problems[:2]
    logits = torch.empty(8, 256, device="cuda")
    logits.copy_(problems[-1].logits)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(ROUNDS):
        now = problems[number % 8]
        first.poison()
        second.poison()
        seen = [
            torch.empty_like(words) for words in (outputs(first)[number % 3], outputs(second)[number % 3])
        ]
        copy("late", now.logits, logits)
        route(host, logits, first, early)
        route(host, logits, second, early)
        for one, words in zip((first, second), seen, strict=True):
            copy("patient", outputs(one)[number % 3], words)
        for words in seen:
            wrong += (words.ravel() != now.right[number % 3]).sum()
    assert int(wrong) == 0
