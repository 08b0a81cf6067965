"""The scene as text; colours only where they are asked for."""

from dataclasses import dataclass
from typing import Final

from oracle.explain.scene import Lane, Pick, Place, Scene, heading, number, origin, sentence

_SHADES: Final = (117, 215, 114, 218, 222, 147, 80, 209)
"""Of the 256 terminal colours, one a token: bright enough for black digits."""

_CELLS: Final = 24
_LISTED: Final = 24
_VALUES: Final = ("logit", "bias", "score", "key", "weight")
_CLAUSES: Final = {"logit": "", "bias": "", "score": "R1", "key": "R2", "weight": "R6"}


@dataclass(frozen=True)
class _Ink:
    """Writes escapes, or nothing."""

    colours: bool

    def token(self, text: str, token: int) -> str:
        return f"\x1b[30;48;5;{_SHADES[token]}m{text}\x1b[0m" if self.colours else text

    def faint(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self.colours else text

    def wrong(self, text: str) -> str:
        return f"\x1b[1;97;41m{text}\x1b[0m" if self.colours else text

    def strong(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colours else text


def text(scene: Scene, colours: bool) -> str:
    """Return all that there is to show.

    Parameters
    ----------
    scene
        One call.
    colours
        Whether to colour by token; without colours a token is its digit, and ``!`` marks what differs.
    """
    ink = _Ink(colours)
    disputed = {(each.word.field, each.word.index) for each in scene.disputes()}
    lines = [ink.strong(heading(scene)), ink.faint(origin(scene))]
    lines += _picks(scene, ink, disputed)
    if scene.tile:
        lines += ["", ink.strong(sentence(scene))]
        lines += _lanes(scene, ink, disputed)
    lines += _views(scene, ink)
    return "\n".join(line.rstrip() for line in lines)


def _picks(scene: Scene, ink: _Ink, disputed: set[Place]) -> list[str]:
    rows = [_row(pick, scene) for pick in scene.picks]
    head = ["pick", "expert", *(f"{name} {_CLAUSES[name]}".strip() for name in _VALUES)]
    head += ["row M6"] if scene.tile else []
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for token in range(scene.batch.tokens):
        bits = scene.inverse[token]
        factor = f"factor {number(bits, 'weights')} {bits:08x} (R5)"
        lines += ["", f"{ink.token(f' token {token} ', token)}  {ink.faint(factor)}"]
        lines.append(
            ink.faint("  ".join(name.rjust(width) for name, width in zip(head, widths, strict=True)))
        )
        for pick, cells in zip(scene.picks, rows, strict=True):
            if pick.token == token:
                lines.append(_line(pick, cells, widths, ink, disputed))
    return lines


def _row(pick: Pick, scene: Scene) -> list[str]:
    values = (pick.logit, pick.bias, pick.score, pick.key, pick.weight)
    cells = [str(pick.pick), str(pick.expert), *(f"{number(bits, 'weights')} {bits:08x}" for bits in values)]
    if pick.row is None:
        return cells
    return [*cells, "remote" if pick.row < 0 else f"{pick.row} (CTA {pick.row // scene.tile})"]


def _line(pick: Pick, cells: list[str], widths: list[int], ink: _Ink, disputed: set[Place]) -> str:
    route = 8 * pick.token + pick.pick
    places: dict[int, Place] = {
        1: ("ids", (pick.token, pick.pick)),
        6: ("weights", (pick.token, pick.pick)),
        7: ("expanded_to_permuted", (route,)),
    }
    made = []
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text = cell.rjust(width)
        if column in places and places[column] in disputed:
            made.append(f"{ink.wrong(text)}!")
        else:
            faint = column == 7 and pick.row is not None and pick.row < 0
            made.append((ink.faint(text) if faint else text) + " ")
    return " ".join(made)


def _lanes(scene: Scene, ink: _Ink, disputed: set[Place]) -> list[str]:
    if not scene.lanes:
        return ["no pick is local: no CTA, no row"]
    lines = [ink.faint(" CTA  expert (local)  limit  tokens by row (. is padding)")]
    for lane in scene.lanes:
        expert = f"{lane.expert} ({lane.local})".rjust(14)
        limit = str(lane.limit).rjust(5)
        if ("cta_batch", (lane.number,)) in disputed:
            expert = ink.wrong(expert) + "!"
        if ("cta_limit", (lane.number,)) in disputed:
            limit = ink.wrong(limit) + "!"
        lines.append(f"{lane.number:4}  {expert}  {limit}  {_cells(lane, ink, disputed)}")
    return lines


def _cells(lane: Lane, ink: _Ink, disputed: set[Place]) -> str:
    made = []
    shown = lane.tokens if len(lane.tokens) <= _CELLS else lane.tokens[: _CELLS // 2]
    for place, token in enumerate(shown):
        digit = "." if token < 0 else str(token)
        if ("permuted_to_token", (lane.first + place,)) in disputed:
            made.append(ink.wrong(digit + "!"))
        elif token < 0:
            made.append(ink.faint(". "))
        elif ink.colours:
            made.append(ink.token(f"{digit} ", token))
        else:
            made.append(f"{digit} ")
    rest = range(lane.first + len(shown), lane.first + len(lane.tokens))
    if rest:
        wrong = sum(("permuted_to_token", (row,)) in disputed for row in rest)
        made.append(ink.faint(f"and {len(rest)} rows more, all padding"))
        made.append(f" {ink.wrong(f'{wrong} of them differ')}!" if wrong else "")
    return "".join(made)


def _views(scene: Scene, ink: _Ink) -> list[str]:
    lines: list[str] = []
    for view in scene.views:
        if view.failure is not None:
            lines.append(f"{view.name}: stopped by the simulator: {view.failure}")
        elif view.wrong:
            lines.append(f"{view.name}: {len(view.wrong)} words are not as specified")
        else:
            lines.append(f"{view.name}: every word is as specified")
    disputes = scene.disputes()
    for dispute in disputes[:_LISTED]:
        answers = ", ".join(f"{name} {said}" for name, said in dispute.lines())
        lines.append(f"{dispute.word.clause:5} {dispute.place}: specified {dispute.right}; {answers}")
    if len(disputes) > _LISTED:
        lines.append(f"and {len(disputes) - _LISTED} words more")
    return ["", *lines] if lines else []
