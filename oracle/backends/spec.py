"""The specification as a backend: one problem after another, where the expectation goes in bulk."""

import numpy as np

import spec
from oracle.problem import Batch, Outputs


class Spec:
    """`spec.route` and `spec.write_metadata`, one problem at a time."""

    name = "spec"
    devices = ("cpu",)

    def unavailable(self, device: str) -> str | None:
        """Return None: NumPy is all it takes."""
        return None

    def run(self, batch: Batch, outputs: Outputs, device: str) -> None:
        """Write ids, weights and metadata of every problem (R1-R6, M1-M8)."""
        weights = outputs.weights.view(np.int32)
        for place in range(len(batch)):
            ids, weight = spec.route(
                batch.logits[place], batch.bias[place], batch.scale[place], batch.renormalize
            )
            outputs.ids[place] = ids
            weights[place] = weight.view(np.int32)
            if batch.ranges is not None and outputs.metadata is not None:
                offset, count, tile = batch.ranges.offset, batch.ranges.count, batch.ranges.tile
                spec.write_metadata(
                    outputs.metadata[place], ids, int(offset[place]), int(count[place]), int(tile[place])
                )
