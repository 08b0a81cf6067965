"""What runs under compute-sanitizer: a backend's kernels without torch, or kernels with a planted fault.

``python -m oracle.card.sanitized NAME``, NAME a backend or ``fault-`` and a name of `FAULTS`.
"""

import sys
from typing import Final

import numpy as np

import spec
from oracle.card import device, kernels
from oracle.card.engine import Kernel
from oracle.card.parameters import Layout

BACKENDS: Final = ("cute", "triton")
TILES: Final = (1, 3, 8, 192, 256)
EXPERTS: Final = ((0, 256), (64, 64), (255, 1))
FAULTS: Final = {
    "memcheck": "out-of-bounds",
    "racecheck": "race",
    "initcheck": "uninitialised",
    "synccheck": "barrier",
}
"""The fault that each tool must report."""

_HEAD: Final = ".version 7.8\n.target sm_90\n.address_size 64\n"
_BODIES: Final = {
    # One thread stores just past 64 bytes.
    "out-of-bounds": """
.visible .entry fault(.param .u64 out) {
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1+4096], 1;
  ret;
}""",
    # Two warps store to and load from one shared word with no barrier in between.
    "race": """
.visible .entry fault(.param .u64 out) {
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  .shared .align 4 .b32 word;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  st.shared.u32 [word], %r1;
  ld.shared.u32 %r2, [word];
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
  ret;
}""",
    # A load of memory that nothing wrote.
    "uninitialised": """
.visible .entry fault(.param .u64 out) {
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.global.u32 %r1, [%rd1+16];
  add.u32 %r1, %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}""",
    # Half of a warp is not in the mask of the warp barrier that all of it comes to.
    "barrier": """
.visible .entry fault(.param .u64 out) {
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  and.b32 %r2, %r1, 31;
  setp.lt.u32 %p1, %r2, 16;
  vote.sync.ballot.b32 %r3, %p1, 0xffffffff;
  bar.warp.sync %r3;
  st.global.u32 [%rd1], %r3;
  ret;
}""",
}


def fault_ptx(name: str) -> str:
    """Return the PTX of a kernel ``fault`` with the fault of that name."""
    return f"{_HEAD}{_BODIES[name]}\n"


def run_fault(name: str) -> None:
    """Launch the kernel with that fault once, two warps."""
    out = device.Memory(np.zeros(64, np.uint32), filled=False)
    function = device.load(fault_ptx(name).encode(), "fault")
    device.launch(function, [out.address.to_bytes(8, "little")], threads=64)
    device.call("cuCtxSynchronize")


def _params(layout: Layout, values: dict[str, int]) -> list[bytes]:
    image = layout.fill(values)
    ends = [*layout.param_at[1:], len(image)]
    return [image[start:end] for start, end in zip(layout.param_at, ends, strict=True)]


def _launch(kernel: Kernel, params: list[bytes], tokens: int) -> None:
    code = kernel.compiled
    device.launch(
        device.driver().CUfunction(kernel.function),
        params,
        code.threads,
        code.dynamic_shared,
        dependent=True,
        grid=code.grid(tokens),
        cluster=code.cluster_ctas(tokens),
    )


def run_backend(backend: str) -> int:
    """Launch every variant at every b, with metadata at every tile and range; return the launches."""
    arch = f"{device.card().arch}a"
    random = np.random.default_rng(1)
    bias = (random.standard_normal(spec.NUM_EXPERTS) * 0.05).astype(np.float32)
    on_card = device.Memory(bias)
    launches = 0
    loaded = {metadata: kernels.load(backend, metadata, arch) for metadata in (False, True)}
    for tokens in range(1, spec.MAX_TOKENS + 1):
        logits = random.standard_normal((tokens, spec.NUM_EXPERTS), np.float32)
        rows = device.Memory(logits)
        for metadata, pair in loaded.items():
            points = [(tile, *experts) for tile in TILES for experts in EXPERTS] if metadata else [(0, 0, 0)]
            for renormalize, kernel in enumerate(pair):
                right, _ = spec.route(logits, bias, 1.0, bool(renormalize))
                for tile, offset, count in points:
                    ids = device.Memory(np.empty((tokens, spec.TOP_K), np.int32), filled=False)
                    weights = device.Memory(np.empty((tokens, spec.TOP_K), np.float32), filled=False)
                    words = spec.metadata_size(tile) if metadata else 1
                    buffer = device.Memory(np.empty(words, np.int32), filled=False)
                    values = {
                        "logits": rows.address,
                        "row_stride": spec.NUM_EXPERTS,
                        "tokens": tokens,
                        "bias": on_card.address,
                        "ids": ids.address,
                        "weights": weights.address,
                        "metadata": buffer.address,
                        "scale": int(np.float32(1).view(np.uint32)),
                        "offset": offset,
                        "count": count,
                        "tile": tile,
                    }
                    params = _params(kernel.layout, values)
                    _launch(kernel, params, tokens)
                    launches += 1
                    if not (ids.read() == right).all():
                        raise device.CardError(f"{backend}: wrong ids at b={tokens} tile={tile}")
                    for memory in (ids, weights, buffer):
                        memory.free()
        rows.free()
    return launches


def main() -> int:
    """Run what the argument names."""
    (name,) = sys.argv[1:]
    if name in BACKENDS:
        print(f"launches {run_backend(name)}")
    else:
        run_fault(name.removeprefix("fault-"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
