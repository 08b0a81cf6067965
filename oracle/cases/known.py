"""Cases with known right values: each stands for a kind of fault that was reported for kernels of this sort.

``known/selection.json``: logits rows and bias as ``{"fill": x, "at": {expert: x}}``, scale, renormalize,
perhaps row_stride, and the right ids and weight bits. ``known/metadata.json``: ids, range, tile, each field
as long as written, and perhaps the logits, bias and scale that the ids come from. A number may be text:
"inf", or the bits of a float32 as "0x7f800001". To add a case, add an entry there, or let
``python -m oracle search --keep NAME`` do it; its ``why`` says what fault it stands for.
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


def bits_of(number: float | str) -> int:
    """Return the float32 bits of a number as the files have it."""
    if isinstance(number, str) and number.startswith("0x"):
        return int(number, 16)
    with np.errstate(over="ignore"):
        return int(np.float32(float(number)).view(np.uint32))


def _vector(text: dict[str, Any]) -> F32:
    words = np.full(NUM_EXPERTS, bits_of(text.get("fill", 0.0)), np.uint32)
    for expert, value in text.get("at", {}).items():
        words[int(expert)] = bits_of(value)
    return words.view(np.float32)


def _made(case: dict[str, Any], tokens: int) -> Problem:
    """Make a case's problem, its rows repeated until there are ``tokens``."""
    rows = [_vector(case["logits"][token % len(case["logits"])]) for token in range(tokens)]
    scale = np.uint32(bits_of(case["scale"])).view(np.float32)
    return Problem(np.stack(rows), _vector(case["bias"]), scale, case.get("row_stride", NUM_EXPERTS))


def _selection(draw: Draw) -> Problem:
    """Case ``index`` (cyclic)."""
    return _made(entries("selection")[draw.index % len(entries("selection"))], draw.tokens)


def _metadata(draw: Draw) -> Problem:
    """Case ``index``: its logits, or some that pick its ids in its order (`logits_for`) without a bias."""
    case = entries("metadata")[draw.index]
    if "logits" in case:
        return _made(case, draw.tokens)
    logits = logits_for(np.array(case["ids"], np.int64))
    return Problem(logits, np.zeros(NUM_EXPERTS, np.float32), np.float32(1.0))


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
