"""The metadata as a picture: the routes of each token (M6), and the CTAs by rows (M2, M3, M7).

It brings its own background and follows the reader's light or dark setting, so it is readable on any page. A
token is a colour and a digit; nothing is said by colour alone.
"""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

import spec
from oracle.explain.scene import Dispute, Lane, Pick, Place, Scene, heading, origin, sentence

SHADES: Final = ("#7cc4ff", "#ffb454", "#86d99b", "#f4a3c9", "#ffe169", "#bcadff", "#63d6cf", "#ff9f88")
"""One a token; `INK` on each has a contrast of 7 or more."""

INK: Final = "#15191e"

STYLE: Final = Path(__file__).with_name("picture.css")

WIDTH: Final = 520
_MARGIN: Final = 18
_INNER: Final = WIDTH - 2 * _MARGIN
_LABEL: Final = 40
_PICK: Final = (_INNER - _LABEL) / spec.TOP_K
_PICK_HEIGHT: Final = 38
_LANE_LABEL: Final = 112
_LANE_LIMIT: Final = 46
_LANE: Final = 26
_LANE_GAP: Final = 5
_CELLS: Final = 16
_NARROW: Final = 3
"""The largest tile of which two CTAs go side by side, where there are more than `_TALL`."""
_TALL: Final = 16
_BROKEN: Final = 10
_MORE: Final = 4
"""Of a tile larger than `_CELLS` the first rows are drawn, which hold all routes; a strip is the rest."""
_LISTED: Final = 6


_Disputes = dict[Place, Dispute]


@dataclass
class _Page:
    """Elements, and how far down they go."""

    name: str
    y: float = 0.0
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, kind: str, anchor: str = "start") -> None:
        place = f'x="{x:g}" y="{y:g}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
        self.parts.append(f'<text class="{kind}" {place}>{escape(text)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, fill: str = "", radius: float = 3
    ) -> None:
        paint = f' fill="{fill}"' if fill else ""
        size = f'width="{width:g}" height="{height:g}" rx="{radius:g}"'
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" {size}{paint}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    @property
    def hatch(self) -> str:
        """The paint of padding."""
        return f"url(#{self.name}-hatch)"


def picture(scene: Scene, name: str = "routing") -> str:
    """Return the picture of a call with metadata as one SVG element.

    Parameters
    ----------
    scene
        One call with metadata.
    name
        Begins the ids inside: pictures that share a page need different ones.

    Raises
    ------
    ValueError
        The call has no metadata.
    """
    if not scene.tile:
        raise ValueError("there is no picture of a call without metadata")
    page = _Page(name)
    disputes = {(each.word.field, each.word.index): each for each in scene.disputes()}
    _title(page, scene, disputes)
    _routes(page, scene, disputes)
    _ctas(page, scene, disputes)
    _legend(page, scene)
    _differences(page, scene)
    height = page.y + _MARGIN - 4
    style = STYLE.read_text(encoding="utf-8").strip()
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="routing-picture" {size} role="img" '
            f'aria-labelledby="{name}-title {name}-text">',
            f'<title id="{name}-title">{escape(heading(scene))}</title>',
            f'<desc id="{name}-text">{escape(sentence(scene))}</desc>',
            f"<style>\n{style}\n</style>",
            f'<defs><pattern id="{name}-hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><line class="hatch" x2="0" y2="6"/></pattern></defs>',
            f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8"/>',
            *page.parts,
            "</svg>\n",
        ]
    )


def _title(page: _Page, scene: Scene, disputes: _Disputes) -> None:
    page.text(_MARGIN, 32, heading(scene), "title")
    first, rest = sentence(scene).split(": ")
    page.text(_MARGIN, 52, origin(scene), "note")
    page.text(_MARGIN, 76, f"{first}:", "plain")
    page.text(_MARGIN, 93, rest, "plain")
    if ("num_ctas", (0,)) in disputes or ("padded_tokens", (0,)) in disputes:
        page.box(_MARGIN - 5, 62, 190, 20, "wrong")
    page.y = 102


def _section(page: _Page, text: str, clauses: str) -> None:
    page.text(_MARGIN, page.y + 22, text, "section")
    page.text(WIDTH - _MARGIN, page.y + 22, clauses, "clause", "end")
    page.y += 32


def _routes(page: _Page, scene: Scene, disputes: _Disputes) -> None:
    _section(page, "The eight picks of each token: expert, and row below", "R4, M6")
    page.text(_MARGIN, page.y + 9, "token", "small faint")
    for place in range(spec.TOP_K):
        centre = _MARGIN + _LABEL + place * _PICK + (_PICK - 5) / 2
        page.text(centre, page.y + 9, str(place) if place else "pick 0", "small faint", "middle")
    page.y += 16
    for token in range(scene.batch.tokens):
        page.box(_MARGIN, page.y, _LABEL - 8, _PICK_HEIGHT, "cell", SHADES[token])
        page.text(_MARGIN + (_LABEL - 8) / 2, page.y + 24, str(token), "number on", "middle")
        for pick in scene.picks[token * spec.TOP_K : (token + 1) * spec.TOP_K]:
            _pick(page, pick, disputes)
        page.y += _PICK_HEIGHT + 5


def _pick(page: _Page, pick: Pick, disputes: _Disputes) -> None:
    x, y, width = _MARGIN + _LABEL + pick.pick * _PICK, page.y, _PICK - 5
    centre = x + width / 2
    remote = pick.row is None or pick.row < 0
    if remote:
        page.box(x, y, width, _PICK_HEIGHT, "remote")
    else:
        page.box(x, y, width, _PICK_HEIGHT, "cell", SHADES[pick.token])
    ink = "faint" if remote else "on"
    page.text(centre, y + 17, str(pick.expert), f"number {ink}", "middle")
    row = "remote" if remote else f"row {pick.row}"
    page.text(centre, y + 31, row, f"{'small' if len(row) < 8 else 'tiny'} {ink}", "middle")
    route = spec.TOP_K * pick.token + pick.pick
    places: tuple[Place, ...] = (
        ("ids", (pick.token, pick.pick)),
        ("weights", (pick.token, pick.pick)),
        ("expanded_to_permuted", (route,)),
    )
    if any(place in disputes for place in places):
        page.box(x - 1, y - 1, width + 2, _PICK_HEIGHT + 2, "wrong")


def _ctas(page: _Page, scene: Scene, disputes: _Disputes) -> None:
    _section(page, "The CTAs of the grouped GEMM, row by row", "M2, M3, M7")
    if not scene.lanes:
        page.text(_MARGIN, page.y + 14, "No pick is local: no CTA, no row.", "note")
        page.y += 24
        return
    columns = 2 if scene.tile <= _NARROW and len(scene.lanes) > _TALL else 1
    length = -(-len(scene.lanes) // columns)
    top = bottom = page.y
    for column in range(columns):
        left = _MARGIN + column * (_INNER + _MARGIN) / columns
        page.y = top
        _lanes(page, left, scene.lanes[column * length : (column + 1) * length], scene.tile, disputes)
        bottom = max(bottom, page.y)
    page.y = bottom + 2


def _lanes(page: _Page, left: float, lanes: tuple[Lane, ...], tile: int, disputes: _Disputes) -> None:
    page.text(left, page.y + 9, "CTA", "small faint")
    page.text(left + 38, page.y + 9, "expert", "small faint")
    page.text(left + _LANE_LABEL - 8, page.y + 9, "row", "small faint", "end")
    page.text(left + _LANE_LABEL, page.y + 9, "token" if tile <= _NARROW else "its tokens", "small faint")
    page.text(_limit_column(left, tile), page.y + 9, "limit", "small faint")
    page.y += 16
    before = None
    for lane in lanes:
        if lane.local == before:
            page.line(left + 46, page.y - 9, left + 46, page.y + 5, "join")
        elif before is not None and tile > _NARROW:
            page.y += 4
        before = lane.local
        _lane(page, left, lane, disputes)
        page.y += _LANE + _LANE_GAP


def _row_width(tile: int) -> float:
    cells = tile if tile <= _CELLS else _BROKEN + _MORE
    return min((_INNER - _LANE_LABEL - _LANE_LIMIT) / cells, 28.0 if tile <= _NARROW else 48.0)


def _limit_column(left: float, tile: int) -> float:
    cells = tile if tile <= _CELLS else _BROKEN + _MORE
    return left + _LANE_LABEL + cells * _row_width(tile) + 10


def _lane(page: _Page, left: float, lane: Lane, disputes: _Disputes) -> None:
    y, start, tile = page.y, left + _LANE_LABEL, len(lane.tokens)
    behind = _limit_column(left, tile)
    page.text(left, y + 18, str(lane.number), "number")
    page.text(left + 38, y + 18, str(lane.expert), "number")
    page.text(start - 8, y + 18, str(lane.first), "small faint", "end")
    page.text(behind, y + 18, str(lane.limit), "number")
    if ("cta_batch", (lane.number,)) in disputes:
        page.box(left + 31, y, 40, _LANE, "wrong")
    if ("cta_limit", (lane.number,)) in disputes:
        page.box(behind - 6, y, 44, _LANE, "wrong")
    width = _row_width(tile)
    shown = lane.tokens if tile <= _CELLS else lane.tokens[:_BROKEN]
    for place, token in enumerate(shown):
        x = start + place * width
        fill = page.hatch if token < 0 else SHADES[token]
        page.box(x, y, width - 2, _LANE, "padding" if token < 0 else "cell", fill, 2)
        dispute = disputes.get(("permuted_to_token", (lane.first + place,)))
        if dispute is not None:
            page.box(x - 1, y - 1, width, _LANE + 2, "wrong plate", radius=2)
            page.text(x + (width - 2) / 2, y + 18, _short(dispute.actual()), "number bad", "middle")
        elif token >= 0:
            page.text(x + (width - 2) / 2, y + 18, str(token), "number on", "middle")
    if tile > _CELLS:
        _rest(page, start + _BROKEN * width, _MORE * width - 2, lane, disputes)
    limit = start + (lane.limit - lane.first) * width - 1
    page.line(limit, y - 3, limit, y + _LANE + 3, "limit")


def _rest(page: _Page, x: float, width: float, lane: Lane, disputes: _Disputes) -> None:
    """Draw the rows of a large tile that no route can reach."""
    rows = range(lane.first + _BROKEN, lane.first + len(lane.tokens))
    page.box(x, page.y, width, _LANE, "padding", page.hatch, 2)
    page.box(x + 8, page.y + 5, width - 16, _LANE - 10, "plate", radius=8)
    page.text(x + width / 2, page.y + 17, f"{len(rows)} more", "small faint", "middle")
    if any(("permuted_to_token", (row,)) in disputes for row in rows):
        page.box(x - 1, page.y - 1, width + 2, _LANE + 2, "wrong", radius=2)


def _short(text: str) -> str:
    return text if len(text) <= 3 else "?"


def _legend(page: _Page, scene: Scene) -> None:
    page.y += 10
    page.line(_MARGIN, page.y, WIDTH - _MARGIN, page.y, "rule")
    y, x = page.y + 12, float(_MARGIN)
    for kind, text, room in (
        ("cell", "a token's route", 116),
        ("remote", "remote expert", 112),
        ("padding", "padding row, -1", 118),
        ("limit", "row limit", 78),
    ):
        if kind == "limit":
            page.line(x + 7, y - 1, x + 7, y + 13, "limit")
        else:
            fill = {"cell": SHADES[0], "padding": page.hatch}.get(kind, "")
            page.box(x, y, 16, 12, kind, fill, 2)
        page.text(x + 22, y + 10, text, "small faint")
        x += room
    page.y = y + 14
    if not scene.agrees:
        page.box(x, y, 16, 12, "wrong", radius=2)
        page.text(x + 22, y + 10, "differs", "small faint")


def _differences(page: _Page, scene: Scene) -> None:
    if not scene.views:
        return
    page.y += 8
    for view in scene.views:
        if view.failure is not None:
            text = f"{view.name}: stopped by the simulator"
        else:
            words = f"{len(view.wrong)} word" + ("" if len(view.wrong) == 1 else "s")
            text = f"{view.name}: {words if view.wrong else 'no word is'} not as specified"
        page.text(_MARGIN, page.y + 16, text, "section" if view.wrong or view.failure else "note")
        page.y += 19
    disputes = scene.disputes()
    for dispute in disputes[:_LISTED]:
        page.text(_MARGIN, page.y + 19, f"{dispute.word.clause}  {dispute.place}", "plain")
        page.y += 20
        answers = [(name, said) for name, said in dispute.lines() if said != "right"]
        for name, said in [("specified", dispute.right), *answers]:
            page.text(_MARGIN + 14, page.y + 14, name, "small faint")
            page.text(_MARGIN + 160, page.y + 14, said, "code")
            page.y += 16
    if len(disputes) > _LISTED:
        page.text(_MARGIN, page.y + 19, f"and {len(disputes) - _LISTED} words more", "note")
        page.y += 20
