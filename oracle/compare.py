"""Bit comparison on integer views by declared type, and the table of what may vary.

The expectation is the poisoned buffers plus what the specification writes, so an element that must stay
untouched is compared like any other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

import spec
from oracle.peers import variations
from oracle.problem import F32, I32, I64, POISON_WORD, Batch, Outputs

WORD_BITS: Final = 32
"""Bits of an output element: all are int32 or float32."""


def exact(batch: Batch, expected: Outputs, actual: Outputs) -> Outputs:
    """Nothing may vary: the specification's outputs are the right ones."""
    return expected


@dataclass(frozen=True)
class Permitted:
    """What one backend is asked, and what of its answers may vary; within that, every bit counts.

    why
        The reason for what is left out, or why nothing is.
    families, kinds, renormalize
        The families, kinds of families and variants that it is asked; ``families`` None: all.
    right
        Makes of a batch, the specification's outputs and the backend's the outputs that are right for it.
    """

    why: str
    families: tuple[str, ...] | None = None
    kinds: tuple[str, ...] = ("selection", "permutation")
    renormalize: tuple[bool, ...] = (True, False)
    right: Callable[[Batch, Outputs, Outputs], Outputs] = exact

    def asks(self, family: str, kind: str, renormalize: bool) -> bool:
        """Whether the backend is asked these problems."""
        listed = self.families is None or family in self.families
        return listed and kind in self.kinds and renormalize in self.renormalize


_LISTED: Final = {
    "spec": Permitted("the specification itself, by way of its one-problem functions"),
    "cute": Permitted("ours: exact, or untouched"),
    "triton": Permitted("ours: exact, or untouched"),
    "unknown": Permitted("outputs in a file that does not say whose they are: exact, or untouched"),
    "torch": Permitted(
        "sigmoid and division are correctly rounded, sum and ties come in any order, there is no metadata: "
        "equal only where scores are 0, 1/2 and 1, sums are powers of two and keys are distinct",
        families=("exact",),
        kinds=("selection",),
    ),
    "vllm": Permitted(
        "picks an expert again where fewer than eight keys are above -inf, has no order for NaN keys, always "
        "renormalizes, and writes no metadata",
        kinds=("selection",),
        renormalize=(True,),
        right=variations.rows_undefined,
    ),
    "flashinfer": Permitted(
        "is given the specification's ids, and writes the metadata alone",
        kinds=("permutation",),
        right=variations.ids_given,
    ),
    "flashinfer-logits": Permitted(
        "its sigmoid and division differ in the last places and its sum is a tree: weights may be any, keys "
        f"within {variations.ULPS} units of the last place come in any order, and rows without an order for "
        "vllm may be any; the metadata is that of its own picks",
        right=variations.ids_reported,
    ),
}


class _Table(dict[str, Permitted]):
    def __missing__(self, backend: str) -> Permitted:
        return Permitted("in no list: exact, or untouched")


PERMITTED: Final[dict[str, Permitted]] = _Table(_LISTED)
"""What may vary, for every backend: nothing outside this table may, and of what is not in it nothing."""


@dataclass(frozen=True)
class Mismatch:
    """One output word that is not what the specification says.

    clause
        The clause that states the word's content; M8 where nothing may be written.
    field, index
        Where it lies: ``ids``, ``weights`` or a field of the metadata, and the element within.
    expected, actual
        The words, 0..2^32 - 1.
    """

    clause: str
    field: str
    index: tuple[int, ...]
    expected: int
    actual: int


@dataclass(frozen=True)
class Difference:
    """What differs in one problem: words compared, words that differ by clause and field, the first ones."""

    compared: int
    counts: dict[tuple[str, str], int]
    first: tuple[Mismatch, ...]

    @property
    def clauses(self) -> tuple[str, ...]:
        """The clauses broken, in output order."""
        return tuple(dict.fromkeys(clause for clause, _ in self.counts))


def expect(batch: Batch, like: Outputs | None = None) -> Outputs:
    """Return what the specification writes, over poisoned buffers as large as those of ``like``."""
    outputs = Outputs.poisoned(batch) if like is None else like.blank(len(batch))
    ids, weights = spec.route(batch.logits, batch.bias, batch.scale, batch.renormalize)
    outputs.ids[...] = ids
    outputs.weights.view(np.int32)[...] = weights.view(np.int32)
    if batch.ranges is not None and outputs.metadata is not None:
        ranges = batch.ranges
        spec.write_metadata_bulk(outputs.metadata, ids, ranges.offset, ranges.count, ranges.tile)
    return outputs


def _words(outputs: Outputs) -> Iterator[I32]:
    problems = len(outputs.ids)
    yield outputs.ids.reshape(problems, -1)
    yield outputs.weights.view(np.int32).reshape(problems, -1)
    if outputs.metadata is not None:
        yield outputs.metadata


def words(batch: Batch) -> I64:
    """Return the output words of each problem, those that must stay untouched included, int64 ``[L]``.

    The contract sizes: a buffer that is longer for a larger tile of its batch does not count.
    """
    number = np.full(len(batch), 2 * batch.tokens * spec.TOP_K, np.int64)
    if batch.ranges is not None:
        number += np.array([spec.metadata_size(int(tile)) for tile in batch.ranges.tile])
    return number


def compare(expected: Outputs, actual: Outputs) -> I64:
    """Return the number of differing words of each problem, int64 ``[L]``."""
    differing = np.zeros(len(expected.ids), np.int64)
    for right, got in zip(_words(expected), _words(actual), strict=True):
        if not np.array_equal(right, got):
            differing += np.count_nonzero(right != got, axis=1)
    return differing


def explain(batch: Batch, expected: Outputs, actual: Outputs, limit: int = 3) -> Difference:
    """Say where the outputs of a batch of one problem differ, ``limit`` words a clause and field."""
    found = [
        *_ids(batch, expected.ids[0], actual.ids[0]),
        *_weights(batch, expected.weights[0], actual.weights[0]),
    ]
    if expected.metadata is not None and actual.metadata is not None:
        found += _metadata(expected.metadata[0], actual.metadata[0])
    counts: dict[tuple[str, str], int] = {}
    first = []
    for mismatch in found:
        place = (mismatch.clause, mismatch.field)
        counts[place] = counts.get(place, 0) + 1
        if counts[place] <= limit:
            first.append(mismatch)
    return Difference(int(words(batch)[0]), counts, tuple(first))


def _where(right: I32, got: I32) -> Iterator[tuple[tuple[int, ...], int, int]]:
    for place in np.argwhere(right != got):
        index = tuple(int(i) for i in place)
        yield index, int(right[index].view(np.uint32)), int(got[index].view(np.uint32))


def _ids(batch: Batch, right: I32, got: I32) -> Iterator[Mismatch]:
    keys = _keys(batch)
    for (token, pick), expected, actual in _where(right, got):
        yield Mismatch(
            _pick_clause(keys[token], right[token], got[token], pick), "ids", (token, pick), expected, actual
        )


def _keys(batch: Batch) -> I32:
    return spec.ordered_key(spec.add_rn(spec.sigmoid(batch.logits[0]), batch.bias[0]))


def _pick_clause(key: I32, right: I32, got: I32, pick: int) -> str:
    """R4 where the right experts stand in a wrong order that no tie explains; otherwise the choice, R3."""
    same_experts = np.array_equal(np.sort(right), np.sort(got))
    return "R4" if same_experts and key[right[pick]] != key[got[pick]] else "R3"


def _weights(batch: Batch, right: F32, got: F32) -> Iterator[Mismatch]:
    # A wrong weight does not tell the score (R1) from the factor (R5) from the product (R6).
    clause = "R5/R6" if batch.renormalize else "R6"
    for index, expected, actual in _where(right.view(np.int32), got.view(np.int32)):
        yield Mismatch(clause, "weights", index, expected, actual)


def _metadata(right: I32, got: I32) -> Iterator[Mismatch]:
    starts = [field.offset for field in spec.FIELDS]
    for (element,), expected, actual in _where(right, got):
        field = spec.FIELDS[int(np.searchsorted(starts, element, side="right")) - 1]
        clause = "M8" if expected == POISON_WORD else field.clause
        yield Mismatch(clause, field.name, (element - field.offset,), expected, actual)


def agreement(one: Outputs, other: Outputs, problem: int) -> bool:
    """Whether two backends wrote the same bits for ``problem``."""
    where: npt.NDArray[np.intp] = np.array([problem])
    return not compare(one.take(where), other.take(where)).any()
