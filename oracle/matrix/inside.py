"""What runs in a cell: ``python -m oracle.matrix.inside BACKEND FILE`` writes what it finds into the file.

Every variant is compiled for every architecture, and its code read; the compile functions are put to what
the mutants are put to; then a sample of `check` runs in the simulator. The digest is that of all output
words, so equal digests of two cells mean equal bits.
"""

import hashlib
import json
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from oracle import artifacts, check, fast
from oracle.bench.budget import ARCHITECTURES, VARIANTS, instructions
from oracle.compare import expect
from oracle.defaults import SCHEDULE_EVERY
from oracle.errors import CannotRunError
from oracle.files import write_whole
from oracle.inspection import disassemble, ptx_listing
from oracle.mutants import code
from oracle.outcome import Tally
from oracle.plan import Chunk, Plan, Target
from oracle.problem import Outputs
from oracle.reordered import schedule_of
from oracle.report import failure
from spec.compilers import COMPILERS

SIMULATED: Final = "sm_90a"
"""The architecture whose code runs in the simulator."""

_TILES: Final = (*range(1, 10), 12, 16, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256)
_CASES: Final = 160
_COMPILED: Final = {
    f"{name}{'-early' if early else ''}": (*variant, early)
    for early in (False, True)
    for name, variant in VARIANTS.items()
}
"""Every variant by its name: metadata, renormalize, and whether it launches its dependents early."""


def main(arguments: list[str]) -> int:
    """Ask everything; the exit code is 0 where an answer was written, whatever it is."""
    backend, file = arguments
    # The version is the cell's choice, also outside the supported range: so the range was found.
    COMPILERS[backend] = replace(COMPILERS[backend], first="0", end="1000000")
    write_whole(Path(file), json.dumps(answer(backend)).encode())
    return 0


def answer(backend: str) -> dict[str, Any]:
    """Return what the installed compiler of ``backend`` gives.

    ``why`` says the first thing that is wrong, and ``step`` in which step, where something is. What can still
    be asked after that, is.
    """
    found: dict[str, Any] = {"python": platform.python_version(), "numpy": metadata.version("numpy")}
    wrong: list[tuple[str, str]] = []
    start = time.perf_counter()
    found["architectures"] = {arch: _compiled(backend, arch) for arch in ARCHITECTURES}
    wrong += [("compile", one["why"]) for one in found["architectures"].values() if "why" in one]
    wrong += [("code", complaint) for complaint in _complaints(backend, found["architectures"])]
    found["compile_seconds"] = round(time.perf_counter() - start, 1)
    if "why" not in found["architectures"][SIMULATED]:
        start = time.perf_counter()
        try:
            wrong += [("run", failed) for failed in _simulate(backend, found)]
        except CannotRunError as error:
            wrong.append(("run", str(error)))
        found["run_seconds"] = round(time.perf_counter() - start, 1)
    return found | dict(zip(("step", "why"), wrong[0], strict=True)) if wrong else found


def _compiled(backend: str, arch: str) -> dict[str, Any]:
    """Compile for one architecture: the instructions of every variant, or ``why`` there is none."""
    counts: dict[str, dict[str, int]] = {}
    for name in _COMPILED:
        try:
            compiled = _variant(backend, name, arch)
        except CannotRunError as error:
            return {"why": str(error)}
        counts[name] = {"ptx": len(ptx_listing(compiled.ptx, compiled.entry))}
        if arch == SIMULATED:
            counts[name]["sass"] = instructions(disassemble(compiled.cubin))
    return {"instructions": counts}


def _variant(backend: str, name: str, arch: str) -> artifacts.Compiled:
    metadata, renormalize, early = _COMPILED[name]
    return artifacts.artifact(backend, metadata, renormalize, arch, early_dependents=early)


def _complaints(backend: str, architectures: dict[str, Any]) -> Iterator[str]:
    """Yield what the code shows, and the compile functions do, that they must not."""
    for arch, found in architectures.items():
        for name in _COMPILED if "why" not in found else ():
            fault = code.fault(backend, _variant(backend, name, arch), arch, name.endswith("-early"))
            if fault is not None:
                yield f"{name} for {arch}: {fault}"
    if "why" not in architectures[SIMULATED]:
        for complaint in fast.do(fast.Job(backend, "compiler")).complaints:
            yield f"{complaint.part}: {complaint.text}"


def chunks(backend: str) -> Iterator[Chunk]:
    """Yield the sample: every family, b, variant and expert range of `check`, at tiles of all sizes."""
    return Plan((Target(backend, "sim"),), tile=_TILES, count=_CASES).chunks()


def _simulate(backend: str, found: dict[str, Any]) -> list[str]:
    """Run the sample, put its numbers into ``found``, and return what to say of the wrong problems."""
    target = Target(backend, "sim")
    tally, digest = Tally(), hashlib.sha256()
    failures: list[str] = []
    for turn, chunk in enumerate(chunks(backend)):
        batch = chunk.make()
        expected = expect(batch)
        schedule = schedule_of(turn, SCHEDULE_EVERY)
        given = check.answer(target, batch, expected, (schedule,) if schedule else ())
        judged = check.judge_answers(batch, expected, {target: given})
        tally.add(judged.tallies[target])
        add(digest, given.outputs)
        failures += map(failure, judged.findings)
    found |= {
        "launches": tally.launches,
        "reordered": tally.reordered,
        "bits_compared": tally.bits,
        "mismatches": tally.mismatches,
        "digest": digest.hexdigest(),
    }
    return failures


def expected_digest() -> str:
    """Return the digest of what the specification gives for the sample; it is the same for all backends."""
    digest = hashlib.sha256()
    for chunk in chunks(next(iter(COMPILERS))):
        add(digest, expect(chunk.make()))
    return digest.hexdigest()


def add(digest: Any, outputs: Outputs) -> None:
    """Add all words of a chunk's outputs to a digest."""
    for array in (outputs.ids, outputs.weights, outputs.metadata):
        if array is not None:
            digest.update(array.tobytes())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
