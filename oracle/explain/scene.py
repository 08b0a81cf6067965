"""What there is to show of one call: its picks, its CTAs, and where somebody's outputs differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

import spec
from oracle.compare import Mismatch, explain
from oracle.problem import F32, Batch, Outputs
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

    def differing(self) -> dict[Place, dict[str, int]]:
        """Return who says what, by the words where anybody differs, in the order of the outputs."""
        found: dict[Place, dict[str, int]] = {}
        for view in self.views:
            for word in view.wrong:
                found.setdefault((word.field, word.index), {})[view.name] = word.actual
        return found

    def mismatches(self) -> dict[Place, Mismatch]:
        """Return the clause and the right word where anybody differs."""
        return {(word.field, word.index): word for view in self.views for word in view.wrong}


def make(batch: Batch, right: Outputs, said: Mapping[str, Outputs | str]) -> Scene:
    """Return the scene of a batch of one problem.

    Parameters
    ----------
    batch, right
        The problem, and what the specification writes.
    said
        By name, outputs in buffers as large as those of ``right``, or why there are none.
    """
    views = tuple(
        View(name, failure=outputs)
        if isinstance(outputs, str)
        else View(name, explain(batch, right, outputs, _EVERY_WORD).first)
        for name, outputs in said.items()
    )
    ids = right.ids[0]
    lanes, rows = _metadata(batch, right)
    logits, biases, weights = _bits(batch.logits[0]), _bits(batch.bias[0]), _bits(right.weights[0])
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
    return Scene(batch, tuple(int(each) for each in _bits(factors)), picks, lanes, views)


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


def number(word: int, field: str) -> str:
    """Return a word as the number it stands for: float32 in ``weights`` and inputs, else int32."""
    bits = np.array([word], np.uint32)
    if field == "ids" or field in {each.name for each in spec.FIELDS}:
        return str(int(bits.view(np.int32)[0]))
    return f"{float(bits.view(np.float32)[0]):.5g}"


def heading(scene: Scene) -> str:
    """Say which call this is, in one line."""
    batch = scene.batch
    parts = [f"b {batch.tokens}"]
    if batch.ranges is not None:
        local = scene.local
        every = (
            "all 256 experts" if len(local) == spec.NUM_EXPERTS else f"experts {local[0]}..{local[-1]} of 256"
        )
        parts += [f"tile {scene.tile}", every]
    parts += [
        f"scale {float(batch.scale[0]):.6g}",
        "renormalized" if batch.renormalize else "not renormalized",
    ]
    return ", ".join(parts)


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
