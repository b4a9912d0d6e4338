"""The page opened from disk in Chromium: sorts, filters, switches theme, and logs no error."""

from __future__ import annotations

import os
import shutil

import pytest

import small_study
from dreamcheck.reports import write_report

pytestmark = pytest.mark.browser


def browser_path():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return None


def skip(reason):
    if os.environ.get("DREAMCHECK_REQUIRE_BROWSER") == "1":
        pytest.fail(f"a browser is required here: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = browser_path()
    if path is None:
        skip("no Chromium on this machine; install Debian's chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("Playwright's Python package is not installed")
    folder = tmp_path_factory.mktemp("study") / "s"
    small_study.run_at(folder)
    report = write_report(folder)
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=path,
            args=[
                "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
            ],
        )  # fmt: skip
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(180_000)  # a busy machine is slow, not wrong
        page.errors = []
        page.requests = []
        page.on("console", lambda m: page.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: page.errors.append(str(e)))
        page.on("request", lambda r: page.requests.append(r.url))
        page.goto(report.as_uri())
        yield page
        browser.close()


def column(page, table, index):
    cells = page.locator(f"#{table} tbody tr:not([hidden]) td:nth-child({index})")
    return cells.all_inner_texts()


def test_it_loads_without_a_network_and_without_an_error(page):
    assert page.errors == []
    outside = [u for u in page.requests if not u.startswith(("file:", "data:"))]
    assert outside == []


def test_a_click_on_a_heading_sorts_and_a_second_one_reverses(page):
    table = "t-found-start-goal-prefix"
    head = page.locator(f"#{table} thead th:nth-child(3)")
    head.click()
    down = [float(v) for v in column(page, table, 3)]
    assert down == sorted(down, reverse=True) and len(down) == 3
    assert head.get_attribute("aria-sort") == "descending"
    head.click()
    assert [float(v) for v in column(page, table, 3)] == sorted(down)


def test_filtering_hides_rows_that_do_not_match(page):
    table = "t-all-start-goal-prefix"
    page.locator("details.all summary").first.click()
    everything = len(column(page, table, 1))
    page.locator(f'input[data-filter="{table}"]').fill("basinlens")
    kept = column(page, table, 11)
    assert 0 < len(kept) < everything and all("basinlens" in v for v in kept)
    page.locator(f'input[data-filter="{table}"]').fill("")
    assert len(column(page, table, 1)) == everything


def test_the_theme_button_switches_the_background(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.locator("#theme").click()
    assert page.evaluate(colour) != before


def test_a_narrow_window_does_not_scroll_sideways(page):
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 900})


def test_film_strips_show_real_frames_above_imagined_ones(page):
    strip = page.locator("article.strip").first
    rows = strip.locator(".film tr")
    assert rows.nth(0).locator("img").count() == 7 and rows.nth(1).locator("img").count() == 4
    broken = page.evaluate(
        "[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length"
    )
    assert broken == 0
