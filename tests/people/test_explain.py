"""Explaining a call: every number with its bits, the metadata as text and as a picture, and who differs."""

import io
import itertools
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import spec
from oracle import backends, cases, cli, replay
from oracle.cases.permuting import Points
from oracle.compare import expect
from oracle.explain import scene, svg, terminal
from oracle.outcome import Finding
from oracle.plan import Target
from oracle.problem import Outputs

ROOT = Path(spec.__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"
COMMITTED = ROOT / "docs" / "metadata.svg"


def explained(capsys, *arguments):
    code = cli.main(["explain", *map(str, arguments)])
    return code, capsys.readouterr()


def problem(b=5, tile=4, offset=64, count=8, seed=9, family="permute-mixed"):
    point = Points(*(np.array([number], np.int64) for number in (b, tile, offset, count)))
    batch = cases.batch(cases.FAMILIES[family], seed, point.index(), b, True, point.ranges())
    return batch, expect(batch)


def copied(outputs):
    return Outputs(outputs.ids.copy(), outputs.weights.copy(), outputs.metadata.copy())


def test_the_picture_in_the_readme_is_what_its_command_writes(tmp_path, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    line = next(
        line for line in text.splitlines() if line.startswith("python -m oracle explain") and "--svg" in line
    )
    words = line.split("  #")[0].split()[3:]
    assert words[-1] == COMMITTED.relative_to(ROOT).as_posix()
    assert explained(capsys, *words[1:-1], tmp_path / "made.svg")[0] == 0
    assert (tmp_path / "made.svg").read_text(encoding="utf-8") == COMMITTED.read_text(encoding="utf-8")
    assert f"({COMMITTED.relative_to(ROOT).as_posix()})" in text


def test_every_pick_is_shown_with_its_bits(capsys):
    batch, right = problem(4, 8, 0, 256, 3)
    code, printed = explained(capsys, "--seed", 3, "--batch", 4, "--tile", 8, "--range", "0:256")
    assert code == 0
    scores = spec.sigmoid(batch.logits[0])
    keys = spec.add_rn(scores, batch.bias[0])
    rows = [
        line.split() for line in printed.out.splitlines() if re.match(r" +[0-7] +\d+ +\S+ [0-9a-f]{8} ", line)
    ]
    assert len(rows) == 32
    for place, row in enumerate(rows):
        token, pick = divmod(place, 8)
        expert = int(right.ids[0, token, pick])
        assert (int(row[0]), int(row[1])) == (pick, expert)
        values = (
            batch.logits[0, token, expert], batch.bias[0, expert], scores[token, expert], keys[token, expert],
            right.weights[0, token, pick],
        )  # fmt: skip
        assert [row[3], row[5], row[7], row[9], row[11]] == [
            f"{value.view(np.uint32):08x}" for value in values
        ]
        assert float(row[2]) == pytest.approx(float(values[0]), rel=1e-4)
        assert int(row[12]) == int(right.metadata[0, spec.META_EXPANDED_TO_PERMUTED + place])


def test_the_problem_is_the_one_that_check_has_at_the_same_point(capsys):
    batch, right = problem(6, 7, 84, 51, 11, "permute-natural")
    code, printed = explained(
        capsys, "--seed", 11, "--batch", 6, "--tile", 7, "--range", "84:51", "--family", "permute-natural"
    )  # fmt: skip
    assert code == 0
    assert "b 6, tile 7, experts 84 to 134 of 256 local\n" in printed.out
    shown = [
        int(line.split()[1])
        for line in printed.out.splitlines()
        if re.match(r" +[0-7] +\d+ +\S+ [0-9a-f]{8} ", line)
    ]
    assert shown == right.ids.reshape(-1).tolist()
    assert len(batch) == 1


def test_the_ctas_are_shown_by_rows(capsys):
    _, right = problem()
    made = spec.metadata(right.ids[0], 64, 8, 4)
    _, printed = explained(capsys, "--seed", 9, "--batch", 5, "--tile", 4, "--range", "64:8")
    lines = printed.out.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(" CTA  expert"))
    for cta, line in enumerate(lines[start + 1 : start + 1 + made.num_ctas]):
        words = line.split()
        tokens = made.permuted_to_token[4 * cta : 4 * cta + 4]
        assert words[0] == str(cta)
        assert words[1] == str(64 + made.cta_batch[cta])
        assert words[2] == f"({made.cta_batch[cta]})"
        assert words[3] == str(made.cta_limit[cta])
        assert words[4:] == ["." if token < 0 else str(token) for token in tokens]
    assert f"{made.num_ctas} CTAs of 4 rows, {made.padded_tokens} rows: " in printed.out


def test_a_tile_that_is_wide_is_cut_short_and_says_so(capsys):
    _, printed = explained(capsys, "--tile", 256)
    assert "and 244 rows more, all padding" in printed.out


def test_no_local_pick_is_said(capsys, tmp_path):
    _, printed = explained(
        capsys, "--family", "permute-none-local", "--range", "5:3", "--svg", tmp_path / "none.svg"
    )
    assert "no pick is local: no CTA, no row" in printed.out
    assert "No pick is local" in (tmp_path / "none.svg").read_text(encoding="utf-8")


def test_a_family_without_metadata_is_shown_without_it(capsys):
    code, printed = explained(capsys, "--family", "ties", "--call", 3, "--no-renormalize")
    assert code == 0
    assert "ties, seed 0, number 3, scale" in printed.out
    assert "not renormalized" in printed.out
    assert "CTA" not in printed.out


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "no_color", "coloured"),
    [(Terminal, None, True), (Terminal, "1", False), (Terminal, "", True), (io.StringIO, None, False)],
    ids=["a terminal", "a terminal with NO_COLOR", "a terminal with an empty NO_COLOR", "a file"],
)
def test_colours_are_for_terminals_without_no_color(stream, no_color, coloured, monkeypatch):
    monkeypatch.setattr(sys, "stdout", stream())
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert cli.main(["explain"]) == 0
    assert ("\x1b[" in sys.stdout.getvalue()) == coloured


def test_colours_change_nothing_but_the_colour():
    batch, right = problem()
    shown = scene.make(batch, right)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text(shown, True))
    assert [line.rstrip() for line in plain.splitlines()] == terminal.text(shown, False).splitlines()


WORDS = {
    "R3": ("ids", (0, 1, 2)),
    "R5/R6": ("weights", (0, 2, 1)),
    "M2": ("metadata", (0, spec.META_CTA_BATCH + 1)),
    "M3": ("metadata", (0, spec.META_CTA_LIMIT + 3)),
    "M4": ("metadata", (0, spec.META_NUM_CTAS)),
    "M5": ("metadata", (0, spec.META_PADDED_TOKENS)),
    "M6": ("metadata", (0, spec.META_EXPANDED_TO_PERMUTED + 6)),
    "M7": ("metadata", (0, spec.META_PERMUTED_TO_TOKEN + 5)),
}


@pytest.mark.parametrize("clause", WORDS)
def test_a_word_that_differs_is_marked_in_text_and_picture(clause):
    name, index = WORDS[clause]
    batch, right = problem()
    wrong = copied(right)
    getattr(wrong, name).view(np.int32)[index] ^= 1
    views = [scene.view("one", batch, right, wrong), scene.view("two", batch, right, right)]
    shown = scene.make(batch, right, views)
    (dispute,) = shown.disputes()
    assert dispute.word.clause == clause
    assert not shown.agrees
    text = terminal.text(shown, False)
    assert f"\n{clause:5} {dispute.place}: specified {dispute.right}; one 0x" in text
    assert text.endswith(", two right")
    assert "two: every word is as specified" in text
    assert (text.count("!") == 1) == (clause not in ("M4", "M5"))
    picture = ET.fromstring(svg.picture(shown))
    marked = [each for each in picture.iter(f"{SVG}rect") if "wrong" in each.get("class").split()]
    assert len(marked) == 2  # the word, and the legend
    assert dispute.place in "".join(picture.itertext())


def test_two_backends_are_compared_in_one_view(fault, capsys, tmp_path):
    fault(lambda batch, outputs: outputs.metadata.__setitem__((0, spec.META_CTA_LIMIT), 9))
    code, printed = explained(capsys, "--backend", "spec,triton", "--tile", 4, "--svg", tmp_path / "two.svg")
    assert code == 1
    assert "spec on cpu: 1 words are not as specified" in printed.out
    assert "triton on sim: every word is as specified" in printed.out
    assert "M3    cta_limit[0]: specified 0x" in printed.out
    assert "triton on sim right" in printed.out
    text = (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert "spec on cpu: 1 word not as specified" in text
    assert "triton on sim: no word is not as specified" in text or "triton on sim: every word" in text


def test_a_saved_problem_is_explained_with_what_its_backend_says(fault, tmp_path, capsys):
    batch, right = problem()
    path = replay.save(Finding(Target("spec", "cpu"), batch, right, None, "race: x"), tmp_path)
    code, printed = explained(capsys, path)
    assert code == 0
    assert "spec on cpu: every word is as specified" in printed.out
    fault(lambda batch, outputs: outputs.ids.__setitem__((0, 0, 0), 300))
    code, printed = explained(capsys, path)
    assert code == 1
    assert "R3    ids[0][0]: specified 0x" in printed.out


BAD = {
    "an option with a file": (["none.npz", "--tile", "8"], "--tile is for a call that is made here"),
    "a file that is not there": (["none.pt"], "cannot read none.pt: No such file or directory"),
    "a call of a family with metadata": (
        ["--call", "3"],
        "--call is for a file, or for a family of calls without",
    ),
    "a tile of a family without": (["--family", "ties", "--tile", "3"], "so no tile and no range"),
    "known metadata": (["--family", "known-metadata"], "lie at points of their own"),
    "a picture without metadata": (
        ["--family", "ties", "--svg", "x.svg"],
        "no picture of a call without metadata",
    ),
    "a picture in no folder": (["--svg", "none/x.svg"], "--svg: no folder none"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_argument_is_one_line_with_exit_2(bad, capsys):
    arguments, message = BAD[bad]
    code, printed = explained(capsys, *arguments)
    assert (code, printed.out) == (2, "")
    assert printed.err.startswith("python -m oracle explain: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_backend_that_cannot_run_here_is_exit_3_with_the_reason(capsys, monkeypatch):
    monkeypatch.setattr(backends, "unavailable", lambda name, device: "it rains")
    code, printed = explained(capsys, "--backend", "cute")
    assert (code, printed.err) == (3, "could not run: cute on sim: it rains\n")


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_digits_are_readable_on_every_tokens_colour():
    dark = luminance(svg.INK)
    assert all((luminance(shade) + 0.05) / (dark + 0.05) >= 7 for shade in svg.SHADES)
    assert len(set(svg.SHADES)) == spec.MAX_TOKENS


def test_the_colour_of_digits_is_the_one_that_the_style_has():
    assert f".on {{ fill: {svg.INK}; }}" in svg.STYLE.read_text(encoding="utf-8")


@pytest.mark.parametrize("offset", [0, 255])
@pytest.mark.parametrize("tile", [1, 3, 4, 16, 17, 256])
@pytest.mark.parametrize("b", [1, 8])
def test_a_picture_is_well_formed_and_nothing_leaves_its_frame(b, tile, offset):
    count = 256 - offset
    batch, right = problem(b, tile, offset, count, 1, "permute-natural")
    text = svg.picture(scene.make(batch, right))
    picture = ET.fromstring(text)
    width, height = (float(number) for number in picture.get("viewBox").split()[2:])
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    for each in picture.iter(f"{SVG}rect"):
        x, y, wide, high = (float(each.get(name)) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + wide <= width
        assert y + high <= height
    bottoms = [float(each.get("y")) for each in picture.iter(f"{SVG}text")]
    assert max(bottoms) < height
    cells = [each for each in picture.iter(f"{SVG}rect") if each.get("class") == "cell"]
    made = spec.metadata(right.ids[0], offset, count, tile)
    local = int((made.expanded_to_permuted >= 0).sum())
    assert len(cells) == b + 2 * local + 1  # each token, each route and its row, the legend


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), list(itertools.product((390, 1280), (False, True))))
def test_texts_of_the_picture_stay_inside_in_a_browser(chromium, width, dark, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<meta name=viewport content="width=device-width"><body style="margin:0">'
        f'<img id=it src="{COMMITTED.as_uri()}" style="max-width:100%">'
    )
    chromium.show(page, width, dark)
    assert chromium.value("document.getElementById('it').naturalWidth") == svg.WIDTH
    assert chromium.value("document.documentElement.scrollWidth") == width
    chromium.show(COMMITTED, width, dark)
    overlong = chromium.value(
        "[...document.querySelectorAll('text')].filter(t => { const b = t.getBBox();"
        f" return b.x < 0 || b.x + b.width > {svg.WIDTH}; }}).map(t => t.textContent).join('; ')"
    )
    assert overlong == ""
    assert chromium.complaints == []
