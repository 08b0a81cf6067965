"""Shrinks a failing problem: many simpler ones go into one batch, and the simplest that still fails stays.

Hypothesis can shrink what it drew, one try after another. The simulator answers a hundred tries in the time
of one, and a problem from elsewhere can be shrunk as well.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.problem import F32
from oracle.search.whole import Whole, turned
from spec.constants import NUM_EXPERTS

Judge = Callable[[Sequence[Whole]], int | None]
"""Given problems of one group, the place of the first that fails; None: none does."""

Words = npt.NDArray[np.uint32]

_SIMPLE: Final = (0.0, 1.0, 2.0, -1.0, 4.0, -8.0, 0.5, 40.0, -40.0, np.inf, -np.inf, np.nan)
"""Values that are easy to read, the simplest first."""

_SIMPLE_BITS: Final = tuple(int(np.float32(value).view(np.uint32)) for value in _SIMPLE)
_STRIDES: Final = (NUM_EXPERTS + 4, 2 * NUM_EXPERTS, (1 << 31) - 4, 1 << 31, (1 << 31) + 4)
_ONE: Final = 0x3F800000
_TRIES: Final = 192
"""Candidates of a batch."""


def shrink(whole: Whole, judge: Judge) -> Whole:
    """Return the smallest problem found on the way down from one that fails.

    Parameters
    ----------
    whole
        A problem that fails.
    judge
        Tells which problems fail.
    """
    while True:
        simpler = _step(whole, judge)
        if simpler is None:
            return whole
        whole = simpler


def _step(whole: Whole, judge: Judge) -> Whole | None:
    """Return the simplest failing problem of the first kind of change that has one."""
    size = cost(whole)
    for candidates in chain.from_iterable(changes(whole) for changes in _CHANGES):
        fewer = [(cost(one), place, one) for place, one in enumerate(candidates)]
        tries = [one for its, _, one in sorted(fewer, key=lambda item: item[:2]) if its < size]
        groups: dict[Any, list[Whole]] = {}
        for one in tries:
            groups.setdefault(one.group, []).append(one)
        failing = []
        for group in groups.values():
            for start in range(0, len(group), _TRIES):
                part = group[start : start + _TRIES]
                place = judge(part)
                if place is not None:
                    failing.append(part[place])
                    break
        if failing:
            return min(failing, key=cost)
    return None


def fill_of(row: F32) -> int:
    """Return the bits that most of a vector has; of equally many, the simplest."""
    counts: Counter[int] = Counter(row.view(np.uint32).tolist())
    return min(counts, key=lambda bits: (-counts[bits], _value_cost(bits)))


def cost(whole: Whole) -> tuple[int, ...]:
    """Return how large a problem is: what weighs more comes first."""
    vectors = _vectors(whole)
    fills = [fill_of(vector) for vector in vectors]
    exceptions = [
        np.nonzero(vector.view(np.uint32) != fill)[0] for vector, fill in zip(vectors, fills, strict=True)
    ]
    values = {int(bits) for vector in vectors for bits in vector.view(np.uint32)}
    offset, count, tile = whole.ranges or (0, 0, 0)
    wide = (offset, count) in ((0, 0), (0, NUM_EXPERTS))
    return (
        int(whole.ranges is not None),
        len(whole.logits),
        sum(map(len, exceptions)),
        len(values),
        sum(map(_value_cost, values)) + _scale_cost(int(whole.scale.view(np.uint32))),
        0 if whole.row_stride == NUM_EXPERTS else 1 + whole.row_stride,
        int(not whole.renormalize),
        tile,
        0 if wide else 1 + offset,
        0 if wide else count,
        sum(abs(elements - 1) for elements in whole.shift),
        sum(int(experts.sum()) for experts in exceptions),
    )


def _value_cost(bits: int) -> int:
    """Return how hard a float32 is to read: simple ones first, then by the bits of the significand in use."""
    if bits in _SIMPLE_BITS:
        return _SIMPLE_BITS.index(bits)
    significand = bits & 0x7FFFFF
    used = 23 - (significand & -significand).bit_length() + 1 if significand else 0
    return 16 + 4 * used + (bits >> 31) + abs(((bits >> 23) & 0xFF) - 127) // 8


def _scale_cost(bits: int) -> int:
    return 0 if bits == _ONE else 1 + _value_cost(bits)


def _vectors(whole: Whole) -> list[F32]:
    return [*whole.logits, whole.bias]


def _fewer_parts(whole: Whole) -> Iterator[Whole]:
    """Leave out the metadata, or tokens."""
    if whole.ranges is not None:
        yield replace(whole, ranges=None)
    tokens = len(whole.logits)
    for token in range(tokens if tokens > 1 else 0):
        yield replace(whole, logits=whole.logits[token : token + 1])
    for start, stop in ((0, tokens // 2), (tokens // 2, tokens)):
        if 1 < stop - start < tokens:
            yield replace(whole, logits=whole.logits[start:stop])
    for token in range(tokens if tokens > 2 else 0):
        yield replace(whole, logits=np.delete(whole.logits, token, axis=0))


def _simpler_arguments(whole: Whole) -> Iterator[Whole]:
    yield replace(whole, renormalize=True)
    yield replace(whole, row_stride=NUM_EXPERTS)
    for stride in (*_STRIDES, whole.row_stride // 8 * 4, whole.row_stride - 4, 0):
        if stride >= NUM_EXPERTS or (stride == 0 and _all_rows_equal(whole)):
            yield replace(whole, row_stride=stride)
    for scale in (*_SIMPLE_BITS, *_rounded(int(whole.scale.view(np.uint32)))):
        yield replace(whole, scale=np.uint32(scale).view(np.float32))
    yield replace(whole, shift=(1, 1))
    for elements in range(4):
        yield replace(whole, shift=(elements, 1))
        yield replace(whole, shift=(1, elements))


def _simpler_range(whole: Whole) -> Iterator[Whole]:
    if whole.ranges is None:
        return
    offset, count, tile = whole.ranges
    yield replace(whole, ranges=(0, NUM_EXPERTS, tile))
    for other in {1, 2, 3, 4, 8, tile // 2, tile - 1}:
        if 1 <= other < tile:
            yield replace(whole, ranges=(offset, count, other))
    for fewer in {1, 2, count // 2, count - 1}:
        if 1 <= fewer < count:
            yield replace(whole, ranges=(offset, fewer, tile))
            yield replace(whole, ranges=(offset + count - fewer, fewer, tile))
    for lower in {0, offset // 2, offset - 1}:
        if 0 <= lower < offset:
            yield replace(whole, ranges=(lower, count, tile))
            yield replace(whole, ranges=(lower, count + offset - lower, tile))


def _lower_experts(whole: Whole) -> Iterator[Whole]:
    for by in (248, 128, 192, 224, 240, 255):
        yield turned(whole, by)


def _fewer_exceptions(whole: Whole) -> Iterator[Sequence[Whole]]:
    """Set parts of the vectors to their fill: all, then halves, quarters, and down to one expert."""
    vectors = _vectors(whole)
    fills = [fill_of(vector) for vector in vectors]
    places = [
        (row, int(expert))
        for row, (vector, fill) in enumerate(zip(vectors, fills, strict=True))
        for expert in np.nonzero(vector.view(np.uint32) != fill)[0]
    ]
    size = len(places)
    while size:
        candidates = []
        for start in range(0, len(places), size):
            changed = np.stack(vectors).view(np.uint32)
            for row, expert in places[start : start + size]:
                changed[row, expert] = fills[row]
            candidates.append(_with_vectors(whole, changed))
        yield candidates
        size //= 2


def _simpler_values(whole: Whole) -> Iterator[Whole]:
    """Replace one value everywhere, in the logits or in the bias, by a simpler one."""
    words = np.stack(_vectors(whole)).view(np.uint32)
    for rows in (slice(0, -1), slice(-1, None)):
        for bits in np.unique(words[rows]).tolist():
            mine = np.zeros(words.shape, bool)
            mine[rows] = words[rows] == bits
            for other in (*_SIMPLE_BITS, *_rounded(bits)):
                if _value_cost(other) < _value_cost(bits):
                    yield _with_vectors(whole, np.where(mine, np.uint32(other), words))


def _rounded(bits: int) -> Iterator[int]:
    """Yield the value with ever more of its last bits cleared."""
    for cleared in (22, 20, 16, 12, 8, 4, 2, 1):
        other = bits >> cleared << cleared
        if other != bits and (other & 0x7F800000) != 0x7F800000:
            yield other


def _with_vectors(whole: Whole, words: Words) -> Whole:
    logits, bias = np.ascontiguousarray(words[:-1]), np.ascontiguousarray(words[-1])
    if whole.row_stride == 0:
        logits = np.repeat(logits[:1], len(logits), axis=0)
    return replace(whole, logits=logits.view(np.float32), bias=bias.view(np.float32))


def _all_rows_equal(whole: Whole) -> bool:
    words = whole.logits.view(np.uint32)
    return bool((words == words[:1]).all())


def _at_once(changes: Callable[[Whole], Iterator[Whole]]) -> Callable[[Whole], Iterator[Sequence[Whole]]]:
    """Make of changes one by one a kind of change whose candidates are all tried together."""

    def together(whole: Whole) -> Iterator[Sequence[Whole]]:
        yield list(changes(whole))

    return together


_CHANGES: Final = (
    _at_once(_fewer_parts),
    _fewer_exceptions,
    _at_once(_simpler_range),
    _at_once(_simpler_values),
    _at_once(_simpler_arguments),
    _at_once(_lower_experts),
)
"""Kinds of change, those that take most away first; each yields candidates that are tried together."""
