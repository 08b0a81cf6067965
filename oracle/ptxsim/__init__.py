"""Runs the PTX of small kernels in NumPy: all threads of many launches at once, every access checked.

It verifies kernels for NVIDIA GPUs on machines that have none; it is no way to run them elsewhere. Float
arithmetic is that of `spec.arithmetic`, sm_90's, whatever the text's target is.

How it works: `parser` reads one entry; `program` finds which registers are the same for all threads or
launches and what is live; `codegen` turns straight runs of instructions into Python functions on NumPy
arrays, by the table in `forms`; `scheduler` runs them for sets of lanes (`lanes`) in a legal order
(`orders`), and holds lanes that wait; `machine` and `tile` are what the generated code calls: memory
(`memory`, `access`, `shared`, `local`), the race detector (`races`, `clocks`) and what warps do together
(`collective`).

Programs of clusters get more of each: `distributed` and `asynchronous` of the machine, `distant` of shared
memory, `mbarriers`, and `knowledge`, `cluster_clocks` and `distant_races` of the race detector. Others pay
nothing for it.
"""

from oracle.ptxsim.errors import ERROR_KINDS, PtxError, SimulationError
from oracle.ptxsim.forms import HINTS, forms
from oracle.ptxsim.launch import Statistics, launch
from oracle.ptxsim.memory import Buffer, Memory
from oracle.ptxsim.program import Program, parse
from oracle.ptxsim.sources import add_sources
from oracle.ptxsim.syntax import Param

__all__ = [
    "ERROR_KINDS",
    "HINTS",
    "Buffer",
    "Memory",
    "Param",
    "Program",
    "PtxError",
    "SimulationError",
    "Statistics",
    "add_sources",
    "forms",
    "launch",
    "parse",
]
