"""Who has arrived at the mbarriers of one place, so that a complete phase orders what they did before."""

from typing import Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.clocks import U32
from oracle.ptxsim.geometry import Index

I64 = npt.NDArray[np.int64]

KEPT: Final = 4
"""Of so many phases of an mbarrier it is known who arrived at them."""


class Arrivals:
    """Who has arrived at one mbarrier of each CTA: for every phase up to now, and for the last complete ones.

    Attributes
    ----------
    now, kept
        uint32 ``[ctas, threads of a cluster]``: accesses with a smaller tick happened before.
    started, kept_started
        uint32 ``[ctas]``: the CTAs that must have started.
    phase
        int64 ``[ctas]``: complete phases.
    """

    def __init__(self, ctas: int, threads: int) -> None:
        self.now: U32 = np.zeros((ctas, threads), np.uint32)
        self.kept: U32 = np.zeros((KEPT, ctas, threads), np.uint32)
        self.started: U32 = np.zeros(ctas, np.uint32)
        self.kept_started: U32 = np.zeros((KEPT, ctas), np.uint32)
        self.phase: I64 = np.zeros(ctas, np.int64)

    def complete(self, ctas: Index) -> None:
        """Note that the phase of these CTAs' mbarrier is complete."""
        slot = self.phase[ctas] % KEPT
        self.kept[slot, ctas] = self.now[ctas]
        self.kept_started[slot, ctas] = self.started[ctas]
        self.phase[ctas] += 1
