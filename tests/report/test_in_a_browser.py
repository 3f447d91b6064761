"""The page in a real browser: it draws, answers to keys, saves, asks nobody, and nothing hostile runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import Visit, visit
from tests.report.hostile import PAYLOADS, hostile_run
from tests.report.results import results
from veilrec.report import render, table, to_csv

pytestmark = pytest.mark.slow
RUNS = results(("none", "laplace", "early_stop", "heavy_noise"), seeds=2)
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 400, "height": 800}
LIGHT, DARK = ("rgb(255, 255, 255)", "rgb(26, 29, 33)"), ("rgb(20, 23, 28)", "rgb(232, 234, 237)")
CHARTS = {"frontier", "attackers", "parts", "learning", "membership"}
STRANGE = """(all) => all.filter((one) =>
  /^(img|iframe|form|base|object|embed|video|input|math|mglyph)$/i.test(one.tagName)
  || (one.tagName === "SCRIPT" && one.parentElement !== document.body)
  || (one.tagName === "A" && !one.getAttribute("href").startsWith("#"))
  || [...one.attributes].some((given) => /^on/i.test(given.name))).map((one) => one.outerHTML)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(RUNS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def open_page(browser: Any, page: Path) -> Iterator[Visit]:
    with visit(browser, page, viewport=WIDE, color_scheme="light") as opened:
        yield opened


def choose_everything(opened: Visit) -> Iterator[str]:
    """Every choice of every list, one after the other."""
    for select in opened.page.query_selector_all("select"):
        for option in range(select.evaluate("(one) => one.options.length")):
            select.select_option(index=option)
            yield select.get_attribute("data-chart")


def test_every_chart_is_drawn_and_nobody_is_asked(open_page: Visit) -> None:
    marks = open_page.marks()
    assert {name.removeprefix("f0-") for name in marks} == CHARTS
    assert all(marks.values()), marks
    for chart in choose_everything(open_page):
        assert open_page.marks()[chart], chart
    assert open_page.logged == []
    assert open_page.outside == []
    assert open_page.page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"]


def test_drawing_and_numbers_follow_the_choice(open_page: Visit) -> None:
    frontier = "[data-of='f0-frontier'].numbers:not([hidden]) caption"
    open_page.page.eval_on_selector_all("details", "(all) => all.forEach((one) => { one.open = true; })")
    open_page.page.select_option("[data-chart='f0-frontier']", index=0)
    assert open_page.page.inner_text(frontier) == "worst attribute"
    before = open_page.page.inner_html("[data-draw='f0-frontier'] .marks")
    open_page.page.select_option("[data-chart='f0-frontier']", label="age")
    assert open_page.page.inner_text(frontier) == "age"
    assert open_page.page.inner_html("[data-draw='f0-frontier'] .marks") != before


def test_it_is_used_by_keys_alone(browser: Any, page: Path) -> None:
    with visit(browser, page, viewport=WIDE, color_scheme="light") as opened:
        keys, button = opened.page.keyboard, opened.page.locator("#theme")
        keys.press("Tab")
        assert opened.page.evaluate("document.activeElement.className") == "skip"
        assert opened.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert (opened.colours(), button.inner_text()) == (LIGHT, "Dark theme")
        keys.press("Tab")
        keys.press("Enter")
        assert (opened.colours(), button.inner_text()) == (DARK, "Light theme")
        keys.press("Space")
        assert opened.colours() == LIGHT
        reached = "(all) => all.every((one) => one.tabIndex === 0)"
        assert opened.page.eval_on_selector_all("button, select, summary, .wide, .tip", reached)


def test_paper_is_white_even_in_the_dark(browser: Any, page: Path) -> None:
    with visit(browser, page, viewport=WIDE, color_scheme="dark") as opened:
        assert opened.colours() == DARK
        opened.page.emulate_media(media="print", color_scheme="dark")
        opened.until("document.documentElement.dataset.theme === 'light'")
        assert opened.colours() == LIGHT
        assert not opened.page.locator("#theme").is_visible()
        assert all(opened.marks().values())


def test_without_scripts_every_number_is_there(browser: Any, page: Path) -> None:
    with visit(browser, page, java_script_enabled=False, color_scheme="dark") as opened:
        assert "scripts are off" in opened.page.locator("noscript").inner_text()
        assert opened.page.locator(".numbers[hidden]").count() == 0
        assert (
            opened.page.locator("body").evaluate("(one) => getComputedStyle(one).backgroundColor") == DARK[0]
        )
        opened.page.emulate_media(media="print")
        assert (
            opened.page.locator("body").evaluate("(one) => getComputedStyle(one).backgroundColor") == LIGHT[0]
        )


def test_a_phone_needs_no_sideways_scrolling(browser: Any, page: Path) -> None:
    with visit(browser, page, viewport=PHONE) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert all(opened.marks().values())
        beyond = "(all) => all.filter((one) => one.getBoundingClientRect().right > innerWidth).length"
        cut = opened.page.eval_on_selector_all(".plot svg", beyond)
        assert cut == 0


def test_the_numbers_are_saved(open_page: Visit) -> None:
    rows = table(RUNS)
    saved = list(csv.reader(io.StringIO(open_page.download("[data-export=csv]").decode())))
    wanted = list(csv.reader(io.StringIO(to_csv(rows))))
    assert [[_plain(cell) for cell in row] for row in saved] == [
        [_plain(cell) for cell in row] for row in wanted
    ]
    assert json.loads(open_page.download("[data-export=json]")) == rows


def _plain(cell: str) -> float | str:
    """A number as a number: 1.0 and 1 are written differently."""
    try:
        return float(cell)
    except ValueError:
        return cell


@pytest.mark.parametrize("chart", ["frontier", "parts"])
def test_charts_are_saved_as_images(open_page: Visit, chart: str) -> None:
    button = f"[data-of='f0-{chart}'][data-image="
    drawing = open_page.download(f"{button}svg]").decode()
    assert drawing.startswith("<svg")
    assert "Usefulness against leakage" in drawing or "Leakage by part" in drawing
    assert open_page.download(f"{button}png]").startswith(b"\x89PNG\r\n")
    assert open_page.logged == []
    assert open_page.outside == []


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("first", range(0, len(PAYLOADS), 8))
def test_hostile_names_do_not_run(browser: Any, tmp_path: Path, first: int, own: bool) -> None:
    """With `own`, every run has an attribute of its own: each payload then also names one, and a column."""
    texts = PAYLOADS[first : first + 8]
    runs = [hostile_run(text, texts[1], "" if own else texts[first // 8]) for text in texts]
    path = tmp_path / "hostile.html"
    path.write_text(render(runs, title=texts[0]), encoding="utf-8")
    with visit(browser, path, viewport=WIDE) as opened:
        for _ in choose_everything(opened):
            pass
        opened.page.eval_on_selector_all("details", "(all) => all.forEach((one) => { one.open = true; })")
        opened.page.hover(".mark >> nth=0", force=True)
        opened.download("[data-export=csv]")
        opened.download("[data-image=svg] >> nth=0")
        opened.page.click("#theme")
        strange = opened.page.eval_on_selector_all("body *", STRANGE)
        assert strange == []
        assert opened.page.evaluate("typeof window.canary") == "undefined"
        assert opened.page.locator("script").count() == 3
        assert opened.dialogs == []
        assert opened.logged == []
        assert opened.outside == []


def test_a_planted_script_would_be_noticed(browser: Any, tmp_path: Path) -> None:
    """The canary sings where a page lets a payload through, so its silence above means something."""
    path = tmp_path / "careless.html"
    path.write_text(f"<html data-ready><body><p>{PAYLOADS[0]}{PAYLOADS[12]}</p>", encoding="utf-8")
    with visit(browser, path) as opened:
        opened.until("window.canary === 1")
        assert opened.outside != []
