"""Real traffic: calls of `route` recorded in a folder, and run again against the specification.

`record` writes; `files` reads what anyone sent, `reader` makes calls of it, `run` puts them to the backends.
The door loads `record` alone, and only where it is asked to.
"""

from typing import Final

INPUTS: Final = (
    "logits",
    "bias",
    "scale",
    "renormalize",
    "row_stride",
    "local_expert_offset",
    "num_local_experts",
    "tile_n",
    "metadata_before",
)
"""What a file may say of the inputs: the names of `route`'s arguments, and two facts of the memory."""

OUTPUTS: Final = ("ids", "weights", "metadata")
"""What a file may say of the outputs."""

FORMAT: Final = "musespark-routing calls 1"
"""What the header of a recorded file has as ``format``."""
