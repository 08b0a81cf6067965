"""The report of `check --html`: complete in itself, right in its numbers, readable in a browser."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import spec
from oracle import cli
from oracle.html_report import heat
from oracle.html_report.coverage import Coverage
from oracle.html_report.page import page
from oracle.outcome import Result

QUICK = (
    "check", "--backend", "spec", "--jobs", "1", "--cases", "16", "--family", "ties,permute-*",
    "--tile", "4-7,250", "--html", "report.html",
)  # fmt: skip
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Checks that every element is closed, and keeps texts and attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.text, self.links = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[name] for name in ("src", "href") if name in values]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def report(*more):
    code = cli.main([*QUICK, *more])
    text = Path("report.html").read_text(encoding="utf-8")
    return code, text, Page(text)


def spoil(batch, outputs):
    if batch.ranges is None:
        outputs.ids[:, 0, [3, 4]] = outputs.ids[:, 0, [4, 3]]
    else:
        outputs.metadata[batch.ranges.tile == 6, spec.META_CTA_LIMIT] = 1000
        outputs.metadata[batch.ranges.tile == 250, spec.META_PERMUTED_TO_TOKEN] = 3


def test_a_passing_run_has_a_page_with_its_numbers(capsys):
    code, text, shown = report("--json", "numbers.json")
    assert code == 0
    rows = json.loads(Path("numbers.json").read_text())["rows"]
    words = " ".join(shown.text)
    assert f"{sum(row['launches'] for row in rows):,}" in words
    assert f"{sum(row['bits_compared'] for row in rows):,}" in words
    for row in rows:
        assert f"<tr><th>{row['family']}</th><td>{row['launches']:,}</td>" in text
    assert "PASS" in words
    assert "Failures" not in words
    assert "python -m oracle check --backend spec --jobs 1 --cases 16" in words
    assert "numpy" in words
    assert "card" in words


def test_a_page_is_complete_in_itself_and_has_no_script(fault):
    fault(spoil)
    code, text, shown = report()
    assert code == 1
    assert "script" not in shown.tags
    assert shown.links == ["data:,"]
    assert "//" not in re.sub(r'xmlns="http://www.w3.org/2000/svg"', "", text)
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#failure-\d+-hatch\)", "", text)
    assert len(shown.ids) == len(set(shown.ids))


def test_a_failure_has_its_words_its_picture_and_its_replay_line(fault, capsys):
    fault(spoil)
    _, text, shown = report()
    printed = capsys.readouterr().out
    again = re.findall(r"again: (python -m oracle replay \S+)", printed)
    assert len(again) >= 3
    words = "".join(shown.text)
    assert all(line in words for line in again)
    assert all(line.replace("replay replays", "explain replays") in words for line in again)
    assert text.count('class="routing-picture"') == len(again) - 1  # the ties have no metadata
    assert "M3    cta_limit[0]: expected 0x" in words
    assert "actual 0x000003e8 (1000)" in words
    assert "R3    ids[0][3]: expected 0x" in words
    assert 'class="bad"' in text


def test_what_the_run_was_told_cannot_break_out_of_the_page():
    coverage = Coverage()
    made = page(Result({}, 0, 1.0), coverage, ["check", "--json", "</pre><script>alert(1)</script>"])
    assert "<script" not in made
    Page(made)


def test_coverage_counts_launches_and_wrong_ones(fault, monkeypatch):
    fault(spoil)
    seen = []
    add = Coverage.add
    monkeypatch.setattr(Coverage, "add", lambda self, result: seen.append(self) or add(self, result))
    report()
    coverage = seen[-1]
    assert coverage.launches[:, 4].tolist() == [0] + [13] * 8
    assert coverage.launches[:, 8].sum() == 0
    assert coverage.wrong[:, 6].tolist() == [0] + [13] * 8
    assert coverage.wrong[:, [4, 5, 7]].sum() == 0
    assert coverage.launches.sum() == sum(count.launches for count in coverage.ranges.values()) == 5 * 8 * 13
    assert coverage.wrong.sum() == sum(count.wrong for count in coverage.ranges.values())
    assert {key: count.launches for key, count in coverage.families.items()} == {
        ("ties", b): 2 for b in range(1, 9)
    }
    assert all(count.wrong == 2 for count in coverage.families.values())


@pytest.mark.parametrize(
    ("launches", "most", "step"),
    [(0, 8, 0), (1, 8, 1), (2, 8, 1), (3, 8, 2), (8, 8, 4), (1, 1, 4), (1, 10**9, 1)],
)
def test_steps_of_colour_go_from_one_launch_to_the_most(launches, most, step):
    assert heat.step(launches, most) == step


def test_equal_neighbours_of_the_map_are_one_rectangle():
    coverage = Coverage()
    coverage.launches[1:, 1:] = 13
    coverage.wrong[3, 100] = 1
    made = heat.tiles(coverage)
    assert made.count("<rect") == 8 + 2
    assert "b 3, tile 100: 13 launches, 1 wrong" in made
    assert "b 3, each tile of 1 to 99: 13 launches" in made
    assert np.count_nonzero(coverage.wrong) == made.count('class="bad"')


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--html", "none/x.html"), "--html: no folder none"), (("--html", "x", "--fast"), "no --html")],
)
def test_a_page_that_cannot_be_written_is_one_line_with_exit_2(options, message, capsys):
    assert cli.main(["check", *options]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("passes", [True, False], ids=["PASS", "FAIL"])
def test_a_browser_shows_the_page_without_complaint_and_nothing_is_cut_off(
    chromium, fault, passes, width, dark
):
    if not passes:
        fault(spoil)
    report()
    chromium.complaints.clear()
    chromium.show(Path("report.html"), width, dark)
    assert chromium.complaints == []
    assert chromium.value("document.querySelector('.word').textContent") == ("PASS" if passes else "FAIL")
    assert chromium.value("document.documentElement.scrollWidth") == width
    beyond = """[...document.querySelectorAll('main *')].filter(e => !e.closest('svg, .scroll, .wide')
        && e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 80)).join('; ')"""
    assert chromium.value(beyond) == ""
    small = """[...document.querySelectorAll('main *')].filter(e => !e.closest('svg') && e.textContent.trim()
        && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.outerHTML.slice(0, 80)).join('; ')"""
    assert chromium.value(small) == ""
    assert chromium.value("document.querySelector('h1').getBoundingClientRect().height > 0")
    assert chromium.value("document.querySelectorAll('.strip svg rect').length") >= 8
    colours = "getComputedStyle(document.body).backgroundColor"
    assert chromium.value(colours) == ("rgb(1, 4, 9)" if dark else "rgb(246, 248, 250)")
