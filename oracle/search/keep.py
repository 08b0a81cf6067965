"""Writes a failing problem into the known cases, with the right values that the specification gives it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

import spec
from oracle.cases import known
from oracle.cases.permuting import logits_for
from oracle.errors import CannotRunError
from oracle.files import write_whole
from oracle.outcome import Finding
from oracle.problem import F32
from oracle.search.smaller import Judge, fill_of
from oracle.search.whole import Whole
from spec.constants import NUM_EXPERTS

_INDENT: Final = {"selection": 1, "metadata": None}
"""How each file is laid out."""

_FIELDS: Final = ("cta_batch", "cta_limit", "expanded_to_permuted", "permuted_to_token")


@dataclass(frozen=True)
class Kept:
    """The file that a problem was written into, and its number there."""

    path: Path
    number: int


def check_name(name: str) -> str:
    """Return the name of a new case.

    Raises
    ------
    ValueError
        It is no name for one, or there is such a case.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"a case is named in words of a-z and 0-9 with - between, not {name!r}")
    for file in _INDENT:
        if any(entry["name"] == name for entry in _entries(file)):
            raise ValueError(f"{_path(file)} has a case {name!r} already")
    return name


def add(name: str, finding: Finding, whole: Whole, judge: Judge) -> Kept | None:
    """Write the problem as the case ``name``; return where, or None where no entry makes the target fail.

    Parameters
    ----------
    name
        As `check_name` allows it.
    finding
        What is wrong with the problem, for the entry's ``why``.
    whole
        The problem.
    judge
        Tells whether an entry's problem fails.

    Raises
    ------
    CannotRunError
        The file cannot be written.
    """
    head = {"name": name, "why": _why(finding)}
    for file, form, entry in _forms(whole):
        if judge([form]) is None:
            continue
        entries = [*_entries(file), {**head, **entry}]
        try:
            write_whole(_path(file), json.dumps(entries, indent=_INDENT[file]).encode())
        except OSError as error:
            raise CannotRunError(f"cannot add to {_path(file)}: {error}") from error
        known.entries.cache_clear()
        return Kept(_path(file), len(entries) - 1)
    return None


def _path(file: str) -> Path:
    return Path(str(files("oracle.cases") / "known" / f"{file}.json"))


def _entries(file: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(_path(file).read_text(encoding="utf-8"))
    return entries


def _why(finding: Finding) -> str:
    difference = finding.difference
    if difference is None:
        return f"found by search: {finding.target} was stopped, {str(finding.failure).split(';')[0]}"
    one = difference.first[0]
    place = "".join(f"[{i}]" for i in one.index)
    words = f"{one.field}{place} 0x{one.actual:08x} for 0x{one.expected:08x}"
    return f"found by search: {finding.target} broke {', '.join(difference.clauses)}, {words}"


def _forms(whole: Whole) -> Iterator[tuple[str, Whole, dict[str, Any]]]:
    """Yield the entries that might hold the problem, the plainest first, and the problem that each makes."""
    plain = replace(whole, ranges=None, shift=(1, 1))
    ids, weights = spec.route(whole.logits, whole.bias, whole.scale, whole.renormalize)
    words = [[f"{word:08x}" for word in row] for row in weights.view(np.uint32).tolist()]
    inputs = {
        "logits": [_text(row) for row in whole.logits],
        "bias": _text(whole.bias),
        "scale": _number(int(whole.scale.view(np.uint32))),
    }
    if whole.row_stride != NUM_EXPERTS:
        inputs["row_stride"] = whole.row_stride
    right = {"renormalize": whole.renormalize, "ids": ids.tolist(), "weights_hex": words}
    yield "selection", plain, {**inputs, **right}
    if whole.ranges is None:
        return
    offset, count, tile = whole.ranges
    fields = spec.metadata(ids, offset, count, tile)
    permuted: dict[str, Any] = {
        "ids": ids.tolist(), "local_expert_offset": offset, "num_local_experts": count, "tile_n": tile,
        "padded_tokens": int(fields.padded_tokens), "num_ctas": int(fields.num_ctas),
        **{name: np.asarray(getattr(fields, name)).tolist() for name in _FIELDS},
    }  # fmt: skip
    made = Whole(
        logits_for(ids.astype(np.int64)),
        np.zeros(NUM_EXPERTS, np.float32),
        np.float32(1.0),
        whole.renormalize,
        ranges=whole.ranges,
    )
    yield "metadata", made, permuted
    yield "metadata", replace(whole, shift=(1, 1)), {**inputs, **permuted}


def _text(vector: F32) -> dict[str, Any]:
    fill = fill_of(vector)
    words = vector.view(np.uint32)
    at = {str(expert): _number(int(words[expert])) for expert in np.nonzero(words != fill)[0]}
    return {"fill": _number(fill), **({"at": at} if at else {})}


def _number(bits: int) -> int | float | str:
    """Return a float32 as the files have it: a whole number, the shortest decimal, a word, or its bits."""
    value = np.uint32(bits).view(np.float32)
    forms: tuple[int | float | str, ...] = (str(value), f"0x{bits:08x}")
    if np.isfinite(value):
        decimal = float(str(value))
        whole = int(decimal) if abs(decimal) < 1e9 else 0
        forms = (whole, decimal, *forms)
    return next(form for form in forms if known.bits_of(form) == bits)


def described(whole: Whole) -> list[str]:
    """Return lines that say all inputs of a problem."""
    rows = [(f"logits[{token}]", row) for token, row in enumerate(whole.logits)]
    lines = []
    for name, vector in (*rows, ("bias", whole.bias)):
        text = _text(vector)
        at = ", ".join(f"[{expert}] {value}" for expert, value in text.get("at", {}).items())
        lines.append(f"{name}: {text['fill']}" + (f" but {at}" if at else ""))
    return lines
