"""Judges one mutant in a forked process: its package comes first on the path, and nothing outlives it."""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import connection, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from oracle.mutants import device, hosts
from oracle.mutants.device import Code
from oracle.mutants.sources import CONTRACT, FILES, Mutant, path_of
from oracle.mutants.verdict import CAUGHT, REJECTED, SURVIVED, Verdict

_CPU_SECONDS: Final = 25
_FULL_CPU_SECONDS: Final = 1800
_WALL_FACTOR: Final = 10
"""A machine that is busy with other things gets that much longer than the processor time."""


@dataclass(frozen=True)
class Task:
    """One change to judge.

    group, module
        As in `sources.FILES`.
    mutant
        None: the package as it is.
    packages
        The unchanged files of both backends, by their path in the copy.
    backends
        Whose hosts judge a change of the contract.
    unchanged
        The instructions of the unchanged kernels, where they are known.
    full
        Whether to make the whole run of `check`.
    """

    group: str
    module: str
    mutant: Mutant | None
    packages: dict[str, str]
    backends: tuple[str, ...]
    unchanged: Code | None = None
    full: bool = False


class Process:
    """A process that judges one task; its pipe says when the verdict is there, or that it died."""

    def __init__(self, task: Task) -> None:
        self.task = task
        context = get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        self._folder = TemporaryDirectory(prefix="muse-mutant-", ignore_cleanup_errors=True)
        self._start = time.monotonic()
        self._limit = (_FULL_CPU_SECONDS if task.full else _CPU_SECONDS) * _WALL_FACTOR
        self._process = context.Process(
            target=_judge, args=(task, Path(self._folder.name), theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def overdue(self) -> bool:
        """Whether it has taken longer than anything sound."""
        return time.monotonic() - self._start > self._limit

    def verdict(self) -> tuple[Verdict, Code | None]:
        """Return the verdict, and the instructions where no change was made."""
        made: Code | None = None
        try:
            verdict, made = self.pipe.recv() if not self.overdue or self.pipe.poll() else (_TIME, None)
        except (EOFError, ConnectionResetError):
            self._process.join(5)
            code = self._process.exitcode
            verdict = _TIME if code in (-signal.SIGXCPU, -signal.SIGKILL) else _died(self.task, code)
        self.end()
        return replace(verdict, seconds=round(time.monotonic() - self._start, 3)), made

    def end(self) -> None:
        """End the process and all that it started, and remove its folder."""
        if self._process.pid is not None and self._process.is_alive():
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has no group of its own yet
                self._process.kill()
        self._process.join()
        self.pipe.close()
        self._folder.cleanup()


_TIME: Final = Verdict(CAUGHT, "time", "it does not end")


def _died(task: Task, code: int | None) -> Verdict:
    """Say what a death means: a compiler may abort, nothing else that runs here does."""
    compiles = task.module.endswith(("kernel", "primitives"))
    return Verdict(
        REJECTED if compiles else CAUGHT, "compiler" if compiles else "calls", f"ended with code {code}"
    )


def wait(processes: list[Process], waiting: Callable[[], None]) -> list[Process]:
    """Return the processes that are done, dead or overdue; wait until there is one, and say so meanwhile."""
    while True:
        ready = set(connection.wait([process.pipe for process in processes], timeout=0.5))
        done = [process for process in processes if process.pipe in ready or process.overdue]
        if done:
            return done
        waiting()


def _judge(task: Task, folder: Path, pipe: Any) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):  # the parent's raise in it
        signal.signal(number, signal.SIG_DFL)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    limit = _FULL_CPU_SECONDS if task.full else _CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    _place(task, folder)
    made: Code | None = None
    if task.full:
        verdict = device.judge_in_full(task.group)
    elif task.group == CONTRACT:
        verdict = _judge_contract(task.backends)
    elif task.module.endswith("host"):
        verdict = _by_calls(hosts.noticed(task.group))
    else:
        verdict = device.judge(task.group, task.module, task.unchanged)
        if task.mutant is None and verdict.outcome == SURVIVED:
            made = device.instructions(task.group)
    pipe.send((verdict, made))
    pipe.close()
    os._exit(0)  # the compilers' own clean-up takes longer than they did


def _place(task: Task, folder: Path) -> None:
    """Write the packages and the change, and let imports find them first."""
    changed = folder / "changed"
    here = folder / "here"
    here.mkdir()
    for name, text in task.packages.items():
        path = changed / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if task.mutant is not None:
        path = changed / f"{task.module.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(task.mutant.text, encoding="utf-8")
    os.environ["MUSESPARK_ROUTING_CACHE"] = str(folder / "cache")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ["TMPDIR"] = str(folder)
    os.chdir(here)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(changed))
    for name in list(sys.modules):
        if name.split(".")[0] in ("impl_cute", "impl_triton"):
            del sys.modules[name]
    device.forget()
    if not task.full:
        device.limit()
    if task.group == CONTRACT and task.mutant is not None:
        for name in FILES[CONTRACT]:  # in the order of their imports
            path = changed / f"{name.replace('.', '/')}.py"
            _replace(name, path if path.exists() else path_of(name))


def _replace(name: str, path: Path) -> None:
    """Put the file in the place of a module of a package that stays: spec's tables need not be read again."""
    import spec

    found = spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ImportError(f"cannot import {path}")
    module = module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    setattr(spec, name.rpartition(".")[2], module)


def _by_calls(noticed: str | None) -> Verdict:
    return Verdict(SURVIVED) if noticed is None else Verdict(CAUGHT, "calls", noticed)


def _judge_contract(backends: tuple[str, ...]) -> Verdict:
    """Ask every host: all must notice."""
    seen = {backend: hosts.noticed(backend) for backend in backends}
    blind = [backend for backend, noticed in seen.items() if noticed is None]
    if not blind:
        return _by_calls(next(iter(seen.values())))
    only = [backend for backend in seen if backend not in blind]
    return Verdict(SURVIVED, detail=f"seen through {', '.join(only)} alone" if only else "")
