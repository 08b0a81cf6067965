"""Says who waits for whom when nobody can run any more."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.cluster_barriers import ClusterBarriers
from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import WARP
from oracle.ptxsim.lanes import Lanes, lanes_of
from oracle.ptxsim.machine import Machine
from oracle.ptxsim.syntax import Operand

Waiting = list[tuple[int, Lanes]]


def deadlock(
    machine: Machine,
    waiting: Waiting,
    operand: Callable[[Operand, Lanes], npt.NDArray[np.uint32]],
    clusters: ClusterBarriers | None,
) -> SimulationError:
    """Return the error of the first thread that waits.

    Parameters
    ----------
    machine
        The tile.
    waiting
        Lanes that wait, by instruction.
    operand
        Reads an operand of an instruction for some lanes.
    clusters
        The barriers of the clusters, if there are any.
    """
    program, geometry = machine.program, machine.geometry
    places = {
        int(lane): f"waits at PTX line {program.code[index].line}"
        for index, part in waiting
        for lane in part.index
    }
    lane, index = min((int(part.index[0]), index) for index, part in waiting)
    kind = program.forms[index].kind
    if kind == "phase":
        return machine.unfinished(index, lane)
    if kind == "cluster":
        assert clusters
        missing = clusters.missing(index, lane)
    elif kind == "collective":
        here = {i for i, part in waiting if lane in part.index}
        mask = int(operand(program.member_mask(index), lanes_of(geometry, np.array([lane])))[0])
        mates = [lane // WARP * WARP + k for k in range(WARP) if mask >> k & 1]
        together = {int(other) for i, part in waiting if i in here for other in part.index}
        missing = [other for other in mates if other not in together] or mates
    else:
        start = lane // geometry.pitch * geometry.pitch
        together = {int(other) for i, part in waiting if i == index for other in part.index}
        missing = [other for other in range(start, start + geometry.threads) if other not in together]
        missing = missing or [lane]
    other = missing[0]
    detail = f"waits for thread {geometry.thread_in_grid(other)}, which {places.get(other, 'has exited')}"
    return machine.error("deadlock", detail, index, lane)
