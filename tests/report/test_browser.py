"""The page in a browser: headless Chromium, at desktop and phone width."""

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nnunet_nacl.report import read_results, write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def page_file(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    write_report(read_results([*runs.values()]), file)
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield found
        found.close()


def opened(browser: Any, file: Path, width: int, height: int, **options: Any) -> tuple[Any, list[str]]:
    """The page, and what the console said and what was asked of the network."""
    page = browser.new_context(viewport={"width": width, "height": height}, **options).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.extend([request.url] * (not request.url.startswith(("file:", "data:")))))
    page.goto(file.as_uri())
    return page, said


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844), (320, 640)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_says_nothing(browser: Any, page_file: Path, width: int, height: int, scheme: str) -> None:
    page, said = opened(browser, page_file, width, height, color_scheme=scheme)
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = page.evaluate("[...document.querySelectorAll('svg')].map(s => [s.clientWidth, s.clientHeight])")
    assert len(sizes) == 33
    assert all(100 < one_width <= max(width, 1000) and one_height > 100 for one_width, one_height in sizes)
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.body).{one}").removeprefix("rgb(").removesuffix(")").split(", ")
        for one in ("color", "backgroundColor")
    )
    assert (int(ink[0]) > int(paper[0])) == (scheme == "dark")
    fills = page.evaluate("[...document.querySelectorAll('svg text')].map(t => getComputedStyle(t).fill)")
    assert fills.count(f"rgb({', '.join(ink)})") > 300  # the rest are the numbers in heat maps


def test_sorting(browser: Any, page_file: Path) -> None:
    page, said = opened(browser, page_file, 1280, 900)
    column = "[...document.querySelectorAll('table.sortable tbody tr')].map(r => r.cells[%d].textContent.trim())"
    head = page.locator("table.sortable thead th").nth(2)
    before = page.evaluate(column % 2)
    head.locator("button").click()
    rising = page.evaluate(column % 2)
    assert rising == sorted(before, key=float) != before
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").press("Enter")  # by keyboard
    assert page.evaluate(column % 2) == rising[::-1]
    assert head.get_attribute("aria-sort") == "descending"
    page.locator("table.sortable thead th button").first.click()
    assert page.evaluate(column % 0) == sorted(page.evaluate(column % 0))
    assert page.locator("[aria-sort]").count() == 1
    assert said == []


def test_keyboard_and_screen_reader(browser: Any, page_file: Path) -> None:
    page, _ = opened(browser, page_file, 390, 844)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].filter(s => !s.getAttribute('aria-label')).length"
    )
    assert unnamed == 0
    # What can be scrolled can be reached, and has a name.
    scrolled = page.evaluate(
        "[...document.querySelectorAll('*')].filter(e => e.scrollWidth > e.clientWidth + 1 &&"
        " ['auto', 'scroll'].includes(getComputedStyle(e).overflowX))"
        ".map(e => [e.tabIndex, e.getAttribute('role'), !!e.getAttribute('aria-label')])"
    )
    assert scrolled
    assert all(found == [0, "region", True] for found in scrolled)
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(h => +h.tagName[1])")
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_print(browser: Any, page_file: Path, tmp_path: Path) -> None:
    page, _ = opened(browser, page_file, 1280, 900, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
