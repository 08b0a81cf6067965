"""Seconds that `prepare` and the compilers take, imports apart, in a new process, with empty and full caches.

Run as a program, this is that process: ``python -m oracle.bench.prepare prepare cute`` prints its seconds.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from oracle.bench import figures
from oracle.bench.figures import Figure
from oracle.bench.points import OURS
from oracle.children import Children, awaited
from oracle.errors import CannotRunError
from oracle.report import Reporter

COLD, WARM = "cold", "warm"
LIMIT: Final = 240
"""Seconds after which a process is given up."""

TRIES: Final = 2
"""Pairs of measurements at most, of which one takes up to a minute."""

_MANY_CORES: Final = 8
"""On fewer, one process at a time: compilers side by side would slow each other."""

VARIANTS: Final = tuple(
    (metadata, renormalize) for metadata in (False, True) for renormalize in (False, True)
)

# Every compiler's and our own caches; the rest, and what is not known yet, follows HOME and TMPDIR.
_FOLDERS: Final = (
    "HOME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "MUSESPARK_ROUTING_CACHE",
    "TRITON_CACHE_DIR",
    "CUTE_DSL_CACHE_DIR",
    "CUDA_CACHE_PATH",
)

Key = tuple[str, str]
"""Backend, and `COLD` or `WARM`."""


def environment(folder: Path) -> dict[str, str]:
    """Return this process's environment with every cache in ``folder``, whose subfolders are made."""
    found = dict(os.environ)
    for name in _FOLDERS:
        place = folder / name.lower()
        place.mkdir(parents=True, exist_ok=True)
        found[name] = str(place)
    found["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    return found


def in_new_process(task: str, backend: str, folder: Path, children: Children) -> list[float]:
    """Return what ``python -m oracle.bench.prepare`` prints with its caches in ``folder``.

    Raises
    ------
    CannotRunError
        It failed, in its last words.
    """
    line = [sys.executable, "-m", "oracle.bench.prepare", task, backend]
    try:
        done = children.run(line, environment=environment(folder), limit=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise CannotRunError(f"{task} of {backend} took more than {LIMIT} s") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CannotRunError(f"{task} of {backend} exited {done.returncode}: {said[-1][:300]}")
    seconds: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds


def measure(
    task: str,
    reporter: Reporter,
    kernels: Sequence[str] = OURS,
    run: Callable[[str, str, Path], list[float]] | None = None,
    cores: int | None = None,
) -> dict[Key, Figure]:
    """Return seconds of ``task`` for each backend, cold and warm.

    A measurement is the median of some processes; those of both measurements, and where there are cores
    enough of all backends, run side by side.

    Parameters
    ----------
    task
        ``prepare``: every variant that `route` takes for one value of renormalize, on the current device;
        ``compile``: the four variants, for sm_90a, without a device.
    reporter
        Is told of the progress, and of each figure.
    kernels
        The backends.
    run
        Runs a task with its caches in a folder; in a new process unless given.
    cores
        Of this machine, unless given.
    """
    many = (cores or len(os.sched_getaffinity(0))) >= _MANY_CORES
    each = 3 if many else 1
    found: dict[Key, Figure] = {}
    waiting = list(kernels)
    for tries in range(1, TRIES + 1):
        with tempfile.TemporaryDirectory(prefix="muse-bench-") as scratch:
            folders = {
                backend: [Path(scratch) / f"{backend}-{number}" for number in range(2 * each)]
                for backend in waiting
            }
            for places in folders.values():
                for folder in places:
                    folder.mkdir()
            with (
                ThreadPoolExecutor(2 * each * len(waiting) if many else 1) as pool,
                Children() as children,
                reporter.over(2 * 2 * each * len(waiting), "processes"),
            ):
                start = run or partial(in_new_process, children=children)
                for state in (COLD, WARM):
                    done = {
                        backend: [pool.submit(start, task, backend, folder) for folder in places]
                        for backend, places in folders.items()
                    }
                    for backend, runs in done.items():
                        seconds = []
                        for one in runs:
                            taken: list[float] = awaited(one, reporter.tick)
                            seconds.append(sum(taken))
                            reporter.advance(1)
                        made = figures.figure("s", seconds[:each], seconds[each:], tries)
                        if (
                            made.refused is None
                            or (backend, state) not in found
                            or found[backend, state].refused
                        ):
                            found[backend, state] = made
        waiting = [
            backend for backend in waiting if any(found[backend, state].refused for state in (COLD, WARM))
        ]
        if not waiting:
            break
    for (backend, state), made in found.items():
        reporter.say(f"{task}, {backend}, {state} caches: {made.refused or f'{made.median:.3g} s'}")
    return found


def _prepare(backend: str) -> list[float]:
    host = importlib.import_module(f"impl_{backend}.host")
    import torch

    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    start = time.perf_counter()
    host.prepare()
    torch.cuda.synchronize()
    return [time.perf_counter() - start]


def _compile(backend: str) -> list[float]:
    compiler = importlib.import_module(f"impl_{backend}.compiler")
    seconds = []
    for metadata, renormalize in VARIANTS:
        start = time.perf_counter()
        compiler.compile_kernel(metadata, renormalize)
        seconds.append(time.perf_counter() - start)
    return seconds


if __name__ == "__main__":
    print(json.dumps({"prepare": _prepare, "compile": _compile}[sys.argv[1]](sys.argv[2])))
