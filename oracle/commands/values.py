"""Reads the values of options; what is wrong with one is a ValueError of one line."""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oracle import backends
from oracle.defaults import BENCH_PARTS, KERNELS

if TYPE_CHECKING:
    from oracle.plan import RangeChoice


def number(low: int, high: int) -> Callable[[str], int]:
    """Return what reads a number in ``low..high``."""
    return partial(_number, low=low, high=high)


def _number(text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[0-9]+", text) or not low <= int(text) <= high:
        raise ValueError(f"must be a number in {low}..{high}, not {text!r}")
    return int(text)


def numbers(text: str, low: int, high: int) -> tuple[int, ...]:
    """Return the numbers of a list as ``1,3,5-8``, in order, each once."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        start = _number(first, low, high)
        end = _number(last, low, high) if dash else start
        if end < start:
            raise ValueError(f"{part!r} runs backwards")
        found.update(range(start, end + 1))
    return tuple(sorted(found))


def batches(text: str) -> tuple[int, ...]:
    """Return values of b."""
    from spec.constants import MAX_TOKENS

    return numbers(text, 1, MAX_TOKENS)


def batch(text: str) -> int:
    """Return one value of b."""
    from spec.constants import MAX_TOKENS

    return _number(text, 1, MAX_TOKENS)


def tiles(text: str) -> tuple[int, ...]:
    """Return tiles."""
    from spec.constants import MAX_TILE

    return numbers(text, 1, MAX_TILE)


def tile(text: str) -> int:
    """Return one tile."""
    from spec.constants import MAX_TILE

    return _number(text, 1, MAX_TILE)


def ranges(text: str) -> "RangeChoice":
    """Return expert ranges: of ``sample``, ``all`` and ``OFFSET:COUNT``, separated by commas."""
    from oracle.plan import ALL_RANGES, SAMPLE_RANGES, RangeChoice
    from spec.constants import NUM_EXPERTS

    fixed: dict[tuple[int, int], None] = {}
    drawn = False
    for part in text.split(","):
        if part in ("sample", "all"):
            choice = SAMPLE_RANGES if part == "sample" else ALL_RANGES
            fixed.update(dict.fromkeys(choice.fixed))
            drawn = drawn or choice.drawn
            continue
        match = re.fullmatch(r"([0-9]+):([0-9]+)", part)
        if match is None:
            raise ValueError(f"must be sample, all or OFFSET:COUNT, not {part!r}")
        offset, count = int(match[1]), int(match[2])
        if count < 1 or offset + count > NUM_EXPERTS:
            raise ValueError(f"{part!r} must hold at least one expert and end by {NUM_EXPERTS}")
        fixed[offset, count] = None
    return RangeChoice(tuple(fixed), drawn)


def one_range(text: str) -> tuple[int, int]:
    """Return one expert range."""
    if text in ("sample", "all"):
        raise ValueError(f"must be OFFSET:COUNT, not {text!r}")
    return ranges(text).fixed[0]


def families(text: str) -> tuple[str, ...]:
    """Return the case families that match, in the order of the table."""
    from oracle.plan import match_families

    return match_families(text.split(","))


def family(text: str) -> str:
    """Return the first case family that matches."""
    return families(text)[0]


def _listed(text: str, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(text.split(",")))
    for name in chosen:
        if name not in known:
            raise ValueError(f"no {what} {name!r}: there are {', '.join(known)}")
    return chosen


def backend_names(text: str) -> tuple[str, ...]:
    """Return names of backends."""
    return _listed(text, backends.names(), "backend")


def kernels(text: str) -> tuple[str, ...]:
    """Return names of backends whose kernels are compiled here."""
    return _listed(text, KERNELS, "kernel")


def bench_parts(text: str) -> tuple[str, ...]:
    """Return parts of a bench."""
    return _listed(text, BENCH_PARTS, "part")
