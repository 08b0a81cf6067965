"""Launches run again with their threads in another legal order: no output bit may depend on it."""

from typing import Final

import numpy as np
import numpy.typing as npt

from oracle import backends
from oracle.backends.simulated import Simulated
from oracle.compare import Mismatch, compare, explain
from oracle.plan import Target
from oracle.problem import Batch, Outputs
from oracle.ptxsim import SimulationError

SCHEDULES: Final = (1, 2, 3, 4)
"""The other orders that are used (`oracle.ptxsim.orders`): of warps, of lanes, and a second draw of each."""


def schedule_of(chunk: int, every: int) -> int:
    """Return the schedule in which chunk number ``chunk`` runs again, if one of ``every`` does; else 0."""
    turn, rest = divmod(chunk, every)
    return 0 if rest else SCHEDULES[turn % len(SCHEDULES)]


def can_reorder(target: Target) -> bool:
    """Return whether the target's threads can run in another order."""
    return target.device == "sim" and isinstance(backends.get(target.backend), Simulated)


def differences(
    target: Target, batch: Batch, outputs: Outputs, where: npt.NDArray[np.intp], schedule: int
) -> dict[int, str]:
    """Run problems again and compare with what they gave in the canonical order.

    Parameters
    ----------
    target
        One that `can_reorder`.
    batch, outputs
        Problems, and what the target made of them.
    where
        Those to run again.
    schedule
        The order of threads, 1 or more.

    Returns
    -------
    dict
        What to say of each problem that differs, or that the simulator stopped this time.
    """
    backend = backends.get(target.backend)
    assert isinstance(backend, Simulated)
    part, first = batch.take(where), outputs.take(where)
    again = outputs.blank(len(where))
    try:
        backend.simulate(part, again, schedule)
    except SimulationError as error:
        return {int(where[error.launch]): f"{error.told()}; with threads in order {schedule}"}
    said = {}
    for place in np.flatnonzero(compare(first, again)):
        one = np.array([place])
        found = explain(part.take(one), first.take(one), again.take(one)).first[0]
        said[int(where[place])] = _told(found, schedule)
    return said


def _told(found: Mismatch, schedule: int) -> str:
    index = "".join(f"[{i}]" for i in found.index)
    return (
        f"order of threads: {found.field}{index} is 0x{found.expected:08x} in the canonical order "
        f"and 0x{found.actual:08x} in order {schedule}"
    )
