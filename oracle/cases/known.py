"""Cases with known right values: each stands for a kind of fault that was reported for kernels of this sort.

``known/selection.json``: logits rows and bias as ``{"fill": x, "at": {expert: x}}``, scale, renormalize, and
the right ids and weight bits. ``known/metadata.json``: ids, range, tile, and each field as long as written.
To add a case, add an entry there; its ``why`` says what fault it stands for.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from oracle.cases.family import Draw, Family, Problem
from oracle.cases.permuting import Points, logits_for
from oracle.problem import F32
from spec.constants import NUM_EXPERTS


@cache
def entries(name: str) -> tuple[dict[str, Any], ...]:
    """Return the entries of ``known/<name>.json``, ``selection`` or ``metadata``."""
    return tuple(json.loads((files("oracle.cases") / "known" / f"{name}.json").read_text(encoding="utf-8")))


def _vector(text: dict[str, Any]) -> F32:
    vector = np.full(NUM_EXPERTS, float(text.get("fill", 0.0)))
    for expert, value in text.get("at", {}).items():
        vector[int(expert)] = float(value)
    with np.errstate(over="ignore"):
        return vector.astype(np.float32)


def _selection(draw: Draw) -> Problem:
    """Case ``index`` (cyclic), its rows repeated until there are b."""
    case = entries("selection")[draw.index % len(entries("selection"))]
    rows = [_vector(case["logits"][token % len(case["logits"])]) for token in range(draw.tokens)]
    return Problem(np.stack(rows), _vector(case["bias"]), np.float32(case["scale"]))


def _metadata(draw: Draw) -> Problem:
    """Case ``index``: logits that pick its ids in its order (`logits_for`), no bias."""
    ids = np.array(entries("metadata")[draw.index]["ids"], np.int64)
    return Problem(logits_for(ids), np.zeros(NUM_EXPERTS, np.float32), np.float32(1.0))


def metadata_points() -> Points:
    """Return the (b, tile, range) of every metadata case, in file order."""
    cases = entries("metadata")

    def column(name: str) -> np.typing.NDArray[np.int64]:
        return np.array([case[name] for case in cases], np.int64)

    tokens = np.array([len(case["ids"]) for case in cases], np.int64)
    return Points(tokens, column("tile_n"), column("local_expert_offset"), column("num_local_experts"))


_ALL = ("M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8")

SELECTION = Family(
    "known-selection", "reported faults of selection and weights", ("R2", "R3", "R5", "R6"), _selection
)
METADATA = Family("known-metadata", "reported faults of the metadata", _ALL, _metadata, "permutation")
