"""Worker processes that answer chunks: started clean, ended at once, silent when interrupted."""

import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final, TypeVar

from oracle.errors import CannotRunError
from oracle.exits import undisturbed

Result = TypeVar("Result")
Task = TypeVar("Task")

_WAIT_SECONDS: Final = 0.5


def _serve(pipe: Any) -> None:
    """Answer tasks until the pipe closes."""
    while True:
        try:
            work, task = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, work(task)))
        except CannotRunError as error:
            pipe.send((False, str(error)))


class Workers:
    """``jobs`` processes that each work on one task at a time; a context manager.

    With one job the work is done in this process.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._workers: dict[Any, BaseProcess] = {}

    def __enter__(self) -> "Workers":
        if self._jobs == 1:
            return self
        context = get_context("spawn")
        # Ctrl-C reaches the whole foreground group, but only the parent may react. The mask is inherited;
        # Python's resource tracker is started first, since its start would lift the mask.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(self._jobs):
                ours, theirs = context.Pipe()
                with undisturbed():  # a worker that is half started would complain of it
                    process = context.Process(target=_serve, args=(theirs,), daemon=True)
                    process.start()
                    theirs.close()
                    self._workers[ours] = process
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for process in self._workers.values():
            process.kill()
        for pipe, process in self._workers.items():
            process.join()
            pipe.close()
        self._workers.clear()

    def map(
        self,
        work: Callable[[Task], Result],
        tasks: Iterable[Task],
        waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[Result]:
        """Yield the results of ``work``, a module's function, as they come; call ``waiting`` now and then.

        Raises
        ------
        CannotRunError
            A task raised it, or a worker died.
        """
        if self._jobs == 1:
            yield from map(work, tasks)
            return
        source = iter(tasks)
        busy: set[Any] = set()
        for pipe in self._workers:
            if self._give(pipe, work, source):
                busy.add(pipe)
        while busy:
            ready = connection.wait(busy, _WAIT_SECONDS)
            if not ready:
                waiting()
            for pipe in ready:
                result: Result = self._take(pipe)
                if not self._give(pipe, work, source):
                    busy.discard(pipe)
                yield result

    def _give(self, pipe: Any, work: Callable[[Task], Result], source: Iterator[Task]) -> bool:
        for task in source:
            try:
                pipe.send((work, task))
            except BrokenPipeError:
                self._died(pipe)
            return True
        return False

    def _take(self, pipe: Any) -> Any:
        try:
            done, value = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._died(pipe)
        if not done:
            raise CannotRunError(value)
        return value

    def _died(self, pipe: Any) -> None:
        process = self._workers[pipe]
        process.join(2)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        raise CannotRunError(f"a worker process {how}") from None
