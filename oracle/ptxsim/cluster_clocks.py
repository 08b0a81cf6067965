"""What orders threads beyond barriers of one CTA: the cluster's barrier, and phases of mbarriers."""

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.clocks import U32, Clocks
from oracle.ptxsim.geometry import Geometry
from oracle.ptxsim.lanes import Lanes

Bool = npt.NDArray[np.bool_]


class ClusterClocks(Clocks):
    """Clocks of a program that uses clusters or mbarriers.

    Attributes
    ----------
    started
        uint32 per lane: bit r is set if CTA r of the lane's cluster is known to have started.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        one = np.uint32(1) << geometry.rank.astype(np.uint32)
        self.started: U32 = one.take(geometry.cta)
        self.all_started = np.uint32((1 << geometry.ctas_per_cluster) - 1)

    def cluster_arrive(self, lanes: Lanes, relaxed: bool) -> None:
        """Note ``barrier.cluster.arrive``."""

    def cluster_complete(self, done: Bool, come: Bool) -> None:
        """Note that barriers of clusters are complete: ``done`` by cluster, ``come`` by lane."""

    def observe(self, lanes: Lanes) -> None:
        """Note that lanes have seen a phase of an mbarrier complete."""
        self._advance(lanes)
        self.base = lanes.put(self.base, np.full(lanes.n, self.tick << self.bits, np.uint32))

    def cluster_pass(self, lanes: Lanes) -> None:
        """Note that ``barrier.cluster.wait`` has let lanes go."""
        self._advance(lanes)
        self.started = lanes.put(self.started, np.full(lanes.n, self.all_started, np.uint32))
