"""The page in a browser: headless Chromium, at desktop and phone width."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.report import compare_all, read_results, write_report
from tests.conftest import opened
from tests.generated import write_folder


@pytest.fixture(scope="module")
def deep_page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of images with several slices."""
    folder = tmp_path_factory.mktemp("deep")
    truth, predicted = write_folder(folder, "ab", structure=True)
    evaluate(Predictions.of_folder(truth, predicted))
    write_report(compare_all(read_results([predicted])), folder / "report.html")
    return folder / "report.html"


Open = Callable[..., Any]


@pytest.fixture
def show(browser: Any) -> Iterator[Open]:
    """Opens a page, which must say nothing."""
    heard: list[list[str]] = []

    def opened_page(file: Path, width: int = 1280, height: int = 900, **options: str) -> Any:
        page, said = opened(browser, file, width, height, **options)
        heard.append(said)
        return page

    yield opened_page
    assert not any(heard)


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 900, "light"), (390, 844, "dark")])
def test_it_fits_and_says_nothing(show: Open, page_file: Path, width: int, height: int, scheme: str) -> None:
    page = show(page_file, width, height, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("header").bounding_box()["height"] < 56  # one line: it covers what is below
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = page.evaluate(
        "[...document.querySelectorAll('svg')].filter(s => s.clientWidth).map(s => [s.clientWidth, s.clientHeight])"
    )
    assert len(sizes) == page.locator("svg").count()
    assert all(100 < one_width <= width and one_height > 100 for one_width, one_height in sizes)
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.body).{one}").removeprefix("rgb(").removesuffix(")").split(", ")
        for one in ("color", "backgroundColor")
    )
    assert (int(ink[0]) > int(paper[0])) == (scheme == "dark")
    fills = page.evaluate("[...document.querySelectorAll('svg text')].map(t => getComputedStyle(t).fill)")
    assert fills.count(f"rgb({', '.join(ink)})") > 200  # the rest are the numbers in heat maps


def test_sorting(show: Open, page_file: Path) -> None:
    page = show(page_file)
    column = (
        "[...document.querySelectorAll('table[aria-label^=Cases] tbody tr')].map(r => r.cells[%d].innerText.trim())"
    )
    head = page.locator("table[aria-label^=Cases] th:nth-child(3)")
    before = page.evaluate(column % 2)
    head.locator("button").click()
    rising = page.evaluate(column % 2)
    assert rising == sorted(before, key=float) != before
    head.locator("button").press("Enter")  # by keyboard
    assert page.evaluate(column % 2) == rising[::-1]
    assert head.get_attribute("aria-sort") == "descending"


def test_pictures(show: Open, deep_page_file: Path) -> None:
    """The slider shows one slice at a time, and the table of cases leads to the pictures."""
    page = show(deep_page_file, 390, 844)
    shown = "[...document.querySelectorAll('.case')[0].querySelectorAll('.slice')].map(s => !s.hidden)"
    first = page.evaluate(shown)
    assert first.count(True) == 1
    slider = page.locator(".case input[type=range]").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(shown) == [False, *first[:-1]]
    number = page.locator(".case .slice:not([hidden])").first.get_attribute("data-number")
    assert page.locator(".case output").first.inner_text() == number
    drawn = page.evaluate(
        "[...document.querySelectorAll('.slice:not([hidden]) image')].map(i => i.getBoundingClientRect().width)"
    )
    assert drawn
    assert min(drawn) >= 240
    outline = "getComputedStyle(document.querySelector('.slice:not([hidden]) .outline')).display"
    assert page.evaluate(outline) != "none"
    page.locator(".case .outlines").first.uncheck()
    assert page.evaluate(outline) == "none"
    page.locator("table[aria-label^=Cases] a").first.click()
    target = page.evaluate("document.querySelector(location.hash).getBoundingClientRect().top")
    assert 0 <= target < 844


def test_print(show: Open, page_file: Path) -> None:
    page = show(page_file, 718, 1000, color_scheme="dark")  # A4 less margins of 10 mm
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 5
