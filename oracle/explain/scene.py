"""What there is to show of one call: its picks, its CTAs, and where somebody's outputs differ."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

import spec
from oracle.compare import Mismatch, explain
from oracle.problem import F32, Batch, Outputs
from oracle.traffic.calls import FAMILY
from spec.selection import inverse, key, score

_EVERY_WORD: Final = 1 << 30

Place = tuple[str, tuple[int, ...]]
"""An output word: its field, and the index in it."""


@dataclass(frozen=True)
class Pick:
    """R1-R6, M6: one pick of one token.

    expert
        Its global id.
    logit, bias, score, key, weight
        The float32 bits.
    row
        The permuted row; -1 where the expert is another rank's; None without metadata.
    """

    token: int
    pick: int
    expert: int
    logit: int
    bias: int
    score: int
    key: int
    weight: int
    row: int | None


@dataclass(frozen=True)
class Lane:
    """M2, M3, M7: one CTA of the grouped GEMM.

    first
        Its first permuted row.
    local, expert
        Its expert's local and global id.
    limit
        The row after the last one that holds a token.
    tokens
        Of each row; -1 is padding.
    """

    number: int
    first: int
    local: int
    expert: int
    limit: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """What one backend, or one file, says: the words that are not as specified, or why it said nothing."""

    name: str
    wrong: tuple[Mismatch, ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class Dispute:
    """A word that somebody has other than specified.

    word
        What one of them says.
    answers
        What each says who said anything; None where that is right.
    """

    word: Mismatch
    answers: dict[str, Mismatch | None]

    @property
    def place(self) -> str:
        """The field and the index in it."""
        return self.word.field + "".join(f"[{i}]" for i in self.word.index)

    @property
    def right(self) -> str:
        """The right word, in hex and as a number."""
        return "untouched" if self.word.clause == "M8" else _value(self.word.expected, self.word.field)

    def lines(self) -> list[tuple[str, str]]:
        """Return who says what."""
        return [
            (name, "right" if said is None else _value(said.actual, said.field))
            for name, said in self.answers.items()
        ]

    def actual(self) -> str:
        """Return the numbers that are not right, each once."""
        wrong = (said.actual for said in self.answers.values() if said is not None)
        return "/".join(dict.fromkeys(number(word, self.word.field) for word in wrong))


@dataclass(frozen=True)
class Scene:
    """One call as specified, and who says otherwise.

    batch
        Of one problem.
    inverse
        R5: the float32 bits of each token's factor.
    picks
        Token by token.
    lanes
        The CTAs, none without metadata or without a local pick.
    """

    batch: Batch
    inverse: tuple[int, ...]
    picks: tuple[Pick, ...]
    lanes: tuple[Lane, ...]
    views: tuple[View, ...]

    @property
    def agrees(self) -> bool:
        """Whether every view is as specified."""
        return not any(view.wrong or view.failure for view in self.views)

    @property
    def tile(self) -> int:
        """Rows of a CTA; 0 without metadata."""
        return 0 if self.batch.ranges is None else int(self.batch.ranges.tile[0])

    @property
    def local(self) -> range:
        """The experts of this rank; all without metadata."""
        if self.batch.ranges is None:
            return range(spec.NUM_EXPERTS)
        offset = int(self.batch.ranges.offset[0])
        return range(offset, offset + int(self.batch.ranges.count[0]))

    def disputes(self) -> tuple["Dispute", ...]:
        """Return the words where anybody differs, in the order of the outputs."""
        said = {view.name: {(word.field, word.index): word for word in view.wrong} for view in self.views}
        words = {place: word for answers in said.values() for place, word in answers.items()}
        order = ["ids", "weights", *(field.name for field in spec.FIELDS)]
        return tuple(
            Dispute(
                words[place],
                {view.name: said[view.name].get(place) for view in self.views if view.failure is None},
            )
            for place in sorted(words, key=lambda place: (order.index(place[0]), place[1]))
        )


def view(name: str, batch: Batch, right: Outputs, said: Outputs | str) -> View:
    """Return what somebody says of a batch of one problem.

    Parameters
    ----------
    name
        Who.
    batch, right
        The problem, and the outputs that are right for them.
    said
        Outputs in buffers as large as those of ``right``, or why there are none.
    """
    if isinstance(said, str):
        return View(name, failure=said)
    return View(name, explain(batch, right, said, _EVERY_WORD).first)


def make(batch: Batch, specified: Outputs, views: Iterable[View] = ()) -> Scene:
    """Return the scene of a batch of one problem: as the specification has it, and who says otherwise."""
    ids = specified.ids[0]
    lanes, rows = _metadata(batch, specified)
    logits, biases, weights = _bits(batch.logits[0]), _bits(batch.bias[0]), _bits(specified.weights[0])
    scores = score(batch.logits[0])
    keys = key(scores, batch.bias[0])
    score_bits, key_bits = _bits(scores), _bits(keys)
    picked = np.take_along_axis(scores, ids, axis=-1)
    factors = np.broadcast_to(inverse(picked, batch.scale[0], batch.renormalize), len(ids))
    picks = tuple(
        Pick(
            token,
            pick,
            expert,
            logit=int(logits[token, expert]),
            bias=int(biases[expert]),
            score=int(score_bits[token, expert]),
            key=int(key_bits[token, expert]),
            weight=int(weights[token, pick]),
            row=None if rows is None else rows[spec.TOP_K * token + pick],
        )
        for token in range(len(ids))
        for pick, expert in enumerate(int(each) for each in ids[token])
    )
    return Scene(batch, tuple(int(each) for each in _bits(factors)), picks, lanes, tuple(views))


def _bits(array: F32) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(array).view(np.uint32)


def _metadata(batch: Batch, right: Outputs) -> tuple[tuple[Lane, ...], list[int] | None]:
    if batch.ranges is None:
        return (), None
    offset, count, tile = (
        int(part[0]) for part in (batch.ranges.offset, batch.ranges.count, batch.ranges.tile)
    )
    made = spec.metadata(right.ids[0], offset, count, tile)
    lanes = tuple(
        Lane(
            number=number,
            first=number * tile,
            local=int(local),
            expert=offset + int(local),
            limit=int(limit),
            tokens=tuple(int(token) for token in made.permuted_to_token[number * tile : (number + 1) * tile]),
        )
        for number, (local, limit) in enumerate(zip(made.cta_batch, made.cta_limit, strict=True))
    )
    return lanes, [int(row) for row in made.expanded_to_permuted]


def _value(word: int, field: str) -> str:
    return f"0x{word:08x} ({number(word, field, 9)})"


def number(word: int, field: str, digits: int = 5) -> str:
    """Return a word as the number it stands for: int32 in ids and metadata, else float32."""
    bits = np.array([word], np.uint32)
    if field == "ids" or field in {each.name for each in spec.FIELDS}:
        return str(int(bits.view(np.int32)[0]))
    return f"{float(bits.view(np.float32)[0]):.{digits}g}"


def heading(scene: Scene) -> str:
    """Say the size of the call in one line."""
    local = scene.local
    whole = len(local) == spec.NUM_EXPERTS
    experts = "all 256 experts local" if whole else f"experts {local[0]} to {local[-1]} of 256 local"
    parts = [f"b {scene.batch.tokens}", *([f"tile {scene.tile}", experts] if scene.tile else [])]
    return ", ".join(parts)


def origin(scene: Scene) -> str:
    """Say where the call is from, and what its weights are made with, in one line."""
    batch = scene.batch
    parts = [batch.family]
    if batch.family == FAMILY:
        parts[0] += "" if batch.index is None else f" call {int(batch.index[0])}"
    elif scene.tile:
        parts.append(f"seed {batch.seed}")
    else:
        parts.append(f"seed {batch.seed}, number {0 if batch.index is None else int(batch.index[0])}")
    parts.append(f"scale {float(batch.scale[0]):.5g}")
    return ", ".join([*parts, "renormalized" if batch.renormalize else "not renormalized"])


def sentence(scene: Scene) -> str:
    """Say the sizes of the metadata in one line (M4, M5)."""
    routes = len(scene.picks)
    held = sum(token >= 0 for lane in scene.lanes for token in lane.tokens)
    rows = len(scene.lanes) * scene.tile
    ctas = f"{len(scene.lanes)} CTA{'s' if len(scene.lanes) != 1 else ''}"
    return (
        f"{ctas} of {scene.tile} row{'s' if scene.tile != 1 else ''}, {rows} rows: "
        f"{held} hold a route, {rows - held} are padding; {routes - held} of {routes} routes are remote"
    )
