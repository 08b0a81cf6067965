"""Programmatic dependent launch: `route` may start early, but waits for the kernel before it to end.

That kernel is `late`: it lets its dependents launch at once, spins, and only then copies words. `hasty` is a
dependent that does not wait: it shows that the tests could fail.
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
    for name, body in {"late": LATE, "hasty": ""}.items()
}


@pytest.fixture(scope="module")
def copy():
    """Enqueue `late` or `hasty`: copy one tensor's words into another."""
    import torch

    torch.zeros(1, device="cuda")
    functions = {name: device.load(text.encode(), name) for name, text in PTX.items()}

    def enqueue(name, source, target, cycles=SPIN):
        params = [source.data_ptr().to_bytes(8, "little"), target.data_ptr().to_bytes(8, "little")]
        params += [source.numel().to_bytes(4, "little"), cycles.to_bytes(8, "little")]
        stream = torch.cuda.current_stream().cuda_stream
        device.launch(functions[name], params, threads=256, stream=stream, dependent=name == "hasty")

    return enqueue


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


def test_route_never_reads_logits_that_a_late_producer_has_not_written_yet(host, problems, copy):
    import torch

    host.prepare()
    logits = torch.empty(8, 256, device="cuda")
    logits.copy_(problems[-1].logits)
    one = problems[0]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(ROUNDS):
        now = problems[number % 8]
        one.poison()
        copy("late", now.logits, logits)
        host.route(logits, one.bias, one.ids, one.weights, metadata=one.metadata, **one.arguments)
        outputs = (one.ids, one.weights.view(torch.int32), one.metadata)
        for got, right in zip(outputs, now.right, strict=True):
            wrong += (got.ravel() != right).sum()
    assert int(wrong) == 0


def test_route_never_overwrites_outputs_that_a_late_reader_still_reads(host, problems, copy):
    import torch

    host.prepare()
    one = problems[0]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    outputs = (one.ids, one.weights.view(torch.int32), one.metadata)
    one.poison()
    host.route(problems[0].logits, one.bias, one.ids, one.weights, metadata=one.metadata, **one.arguments)
    for number in range(ROUNDS):
        which = number % 3
        kept = torch.empty_like(outputs[which])
        before, now = problems[number % 8], problems[(number + 1) % 8]
        copy("late", outputs[which], kept)
        host.route(now.logits, one.bias, one.ids, one.weights, metadata=one.metadata, **one.arguments)
        right = before.right[which]
        # What a problem leaves alone may hold words of earlier ones.
        wrong += ((kept.ravel() != right) & (right != POISON_WORD)).sum()
    assert int(wrong) == 0
