"""Runs a program: many independent launches, some at a time."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.geometry import geometry_of
from oracle.ptxsim.machine import Machine
from oracle.ptxsim.memory import Memory
from oracle.ptxsim.orders import order_of
from oracle.ptxsim.program import Program
from oracle.ptxsim.scheduler import Code, Scheduler
from oracle.ptxsim.witness import Witness

LANES_AT_ONCE: Final = 32768
"""Lanes of a tile: enough to make a NumPy call's own cost small, few enough for the cache."""

BUDGET: Final = 1_000_000
"""Instructions a tile may issue before its kernel counts as endless."""

CLUSTER: Final = 8
"""CTAs of a cluster that every card allows."""

_CODES: "WeakKeyDictionary[Program, Code]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Statistics:
    """What a run did: launches, instructions issued (for any number of lanes), and the same times lanes."""

    launches: int
    instructions: int
    lane_instructions: int


def launch(
    program: Program,
    memory: Memory,
    params: Sequence[npt.NDArray[Any]],
    block: int | tuple[int, ...],
    *,
    grid: int | tuple[int, ...] = 1,
    cluster: int | tuple[int, ...] | None = None,
    dynamic_shared: int = 0,
    schedule: int = 0,
    instruction_budget: int = BUDGET,
    lanes_at_once: int = LANES_AT_ONCE,
) -> Statistics:
    """Run every launch of ``memory`` to its end; outputs are written in place.

    Parameters
    ----------
    program
        From `parse`.
    memory
        The L launches' buffers.
    params
        One array for each of ``program.params``: ``[L]`` of the parameter's size in bytes, or uint8 ``[L,
        size]``.
    block, grid
        Threads of a CTA (1..1024) and CTAs of a launch, up to three axes.
    cluster
        CTAs of a cluster (1..8), by axis a divisor of ``grid``; ``None``: what the program says, or one.
    dynamic_shared
        Bytes of dynamic shared memory.
    schedule
        0 is the canonical order of threads; any greater number another legal one: odd ones part warps,
        even ones the lanes of warps too.
    instruction_budget
        Instructions that one tile may issue.
    lanes_at_once
        About how many lanes to run at a time.

    Raises
    ------
    SimulationError
        The kernel did what it must not. Outputs may be partly written.
    ValueError
        The arguments do not fit the program.
    """
    shape_block, shape_grid = _shape("block", block), _shape("grid", grid)
    threads = math.prod(shape_block)
    if threads > 1024:
        raise ValueError(f"block has {threads} threads, more than 1024")
    if program.bounds.block is not None and _shape("block", program.bounds.block) != shape_block:
        raise ValueError(f"{program.name} is for blocks of {program.bounds.block} threads, not {block!r}")
    shape_cluster = _cluster(program, cluster, shape_grid)
    explicit = cluster is not None or program.bounds.cluster is not None
    packed = _pack(program, memory.launches, params)
    code = _CODES.get(program)
    if code is None:
        code = _CODES[program] = Code(program)
    pitch = -(-threads // 32) * 32
    step = max(1, lanes_at_once // (pitch * math.prod(shape_grid)))

    def make(first: int, last: int) -> Machine:
        geometry = geometry_of(program, last - first, shape_grid, shape_block, shape_cluster, explicit)
        order, buffers = order_of(geometry, schedule), list(memory.part(first, last))
        return Machine(program, geometry, order, buffers, packed[first:last], dynamic_shared, first)

    instructions = lane_instructions = 0
    with np.errstate(all="ignore"):
        for first in range(0, memory.launches, step):
            last = min(first + step, memory.launches)
            machine = make(first, last)
            scheduler = Scheduler(code, machine, instruction_budget)
            try:
                scheduler.run()
            except SimulationError as error:
                if error.kind == "race":
                    witness = Witness(make(error.launch, error.launch + 1), error)
                    with suppress(SimulationError):
                        Scheduler(code, witness.machine, instruction_budget).run()
                    error.other = witness.place()
                raise
            instructions += scheduler.instructions
            lane_instructions += scheduler.lane_instructions
    return Statistics(memory.launches, instructions, lane_instructions)


def _shape(name: str, value: int | tuple[int, ...]) -> tuple[int, int, int]:
    axes = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(axes) <= 3 or any(axis < 1 for axis in axes):
        raise ValueError(f"{name} must be one to three positive numbers, not {value!r}")
    x, y, z = (*axes, 1, 1)[:3]
    return x, y, z


def _cluster(
    program: Program, cluster: int | tuple[int, ...] | None, grid: tuple[int, int, int]
) -> tuple[int, int, int]:
    """Return the shape of a cluster, which must fit the program and the grid."""
    bounds = program.bounds
    if cluster is None and bounds.explicit and bounds.cluster is None:
        raise ValueError(f"{program.name} is launched with a size of its clusters (.explicitcluster)")
    shape = _shape("cluster", bounds.cluster or 1 if cluster is None else cluster)
    if bounds.cluster is not None and _shape("cluster", bounds.cluster) != shape:
        raise ValueError(f"{program.name} is for clusters of {bounds.cluster} CTAs, not {cluster!r}")
    count = math.prod(shape)
    most = min(CLUSTER, bounds.max_rank or CLUSTER)
    if count > most:
        raise ValueError(f"a cluster has {count} CTAs, more than {most}")
    if any(whole % part for whole, part in zip(grid, shape, strict=True)):
        raise ValueError(f"clusters of {shape} do not fill a grid of {grid}")
    return shape


def _pack(program: Program, launches: int, params: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    """Lay the parameters out as the kernel sees them."""
    if len(params) != len(program.params):
        raise ValueError(f"{program.name} takes {len(program.params)} parameters, not {len(params)}")
    packed = np.zeros((launches, program.param_bytes), np.uint8)
    for param, offset, values in zip(program.params, program.param_offsets, params, strict=True):
        array = np.ascontiguousarray(values)
        if array.shape == (launches,) and array.itemsize == param.size:
            octets = array.view(np.uint8).reshape(launches, param.size)
        elif array.shape == (launches, param.size) and array.dtype == np.uint8:
            octets = array
        else:
            raise ValueError(
                f"parameter {param.name} must be [{launches}] of {param.size} bytes, or uint8 "
                f"[{launches}, {param.size}], not {array.dtype} {array.shape}"
            )
        packed[:, offset : offset + param.size] = octets
    return packed
