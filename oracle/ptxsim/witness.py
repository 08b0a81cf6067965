"""The other side of a race: the launch runs once more, and it is noted who touches the place."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault
from oracle.ptxsim.errors import Place, SimulationError
from oracle.ptxsim.geometry import Index
from oracle.ptxsim.lanes import Lanes
from oracle.ptxsim.machine import Machine
from oracle.ptxsim.memory import REGION_BITS

Array = npt.NDArray[Any]

_OTHER = re.compile(r"(read|written) by (?:an atomic of )?(?:thread (\d+))?")
"""What a race's detail says of the other side: what it did, and its thread where it is one."""


class Witness:
    """Notes, of one machine, which threads touched one byte, and where.

    Parameters
    ----------
    machine
        Its one launch is the one that went wrong.
    error
        The race: its address, and for shared memory its thread's CTA, say which byte.
    """

    def __init__(self, machine: Machine, error: SimulationError) -> None:
        assert error.address is not None
        self.machine = machine
        self.address = error.address
        self.thread = error.thread
        found = _OTHER.search(error.detail)
        assert found is not None
        self.reads = found[1] == "read"
        self.named = int(found[2]) if found[2] else None
        self.index = 0
        self.other: tuple[int, int] | None = None
        self._fault = machine._fault
        machine._fault = self._at  # type: ignore[method-assign]
        if self.address >> REGION_BITS:
            kind: Any = machine.memory
            kind.load = self._noting(kind.load, True)
            kind.store = self._noting(kind.store, False)
            kind.atomic = self._noting(kind.atomic, False)
            return
        self.cell = machine.shared.cell_of(self.address, error.thread // machine.geometry.threads)
        tracker: Any = machine.shared.tracker
        for name in ("read", "distant_read") if self.reads else ("write", "distant_write"):
            if hasattr(tracker, name):
                setattr(tracker, name, self._noting_cells(getattr(tracker, name)))

    def _at(self, index: int, lanes: Lanes) -> Fault:
        """Note the instruction; every access asks for its errors first."""
        self.index = index
        return self._fault(index, lanes)

    def _noting(self, access: Callable[..., Any], reads: bool) -> Callable[..., Any]:
        def noted(lanes: Lanes, address: Array, code: str, *rest: Any) -> Any:
            if reads == self.reads:
                what = rest[0]
                count = what if isinstance(what, int) else len(what) if isinstance(what, list) else 1
                start = address.astype(np.uint64)
                end = start + np.uint64(np.dtype(code).itemsize * count)
                byte = np.uint64(self.address)
                self._note(lanes.index[(start <= byte) & (byte < end)])
            return access(lanes, address, code, *rest)

        return noted

    def _noting_cells(self, access: Callable[..., Any]) -> Callable[..., Any]:
        def noted(lanes: Lanes, first: Index, count: int, *rest: Any, **keywords: Any) -> Any:
            each = first.repeat(keywords.get("alike", 1))
            self._note(lanes.index[(each <= self.cell) & (self.cell < each + count)])
            return access(lanes, first, count, *rest, **keywords)

        return noted

    def _note(self, hits: Index) -> None:
        """Keep the last other thread of an access."""
        for lane in hits:
            thread = self.machine.geometry.thread_in_grid(int(lane))
            if thread != self.thread if self.named is None else thread == self.named:
                self.other = thread, self.index

    def place(self) -> Place | None:
        """Return where the last other thread touched the byte."""
        if self.other is None:
            return None
        thread, index = self.other
        instruction = self.machine.program.code[index]
        return Place(thread, instruction.line, instruction.text, instruction.source)
