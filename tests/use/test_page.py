"""The page: what it holds, and how it behaves in headless Chromium."""

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from PIL import Image

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.use import review_folder
from nnunet_nacl.use._views import FULL_DOUBT, _doubt, most_doubtful
from tests import conftest
from tests.generated import ENDING, near_by_scipy, probabilities, write_folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    _, predictions = write_folder(folder, "abc", structure=True)
    images = folder / "images"
    images.mkdir()
    for name in "ab":  # c has none
        labels = sitk.ReadImage(str(predictions / f"{name}{ENDING}"))
        sitk.WriteImage(sitk.Cast(labels, sitk.sitkFloat32) * 100, str(images / f"{name}_0000{ENDING}"))
    file = folder / "page of <b>&.html"
    command = ["review", str(predictions), "--html", str(file), "-i", str(images)]
    assert main(command) == 0
    return file


def test_it_holds_every_case_and_asks_for_nothing(page: Path) -> None:
    text = page.read_text()
    assert sorted(re.findall(r'<article data-case="(\w+)"', text)) == ["a", "b", "c"]
    assert f"Red shows doubt, 1 − confidence, and is strongest from {FULL_DOUBT} on." in text
    assert text.count("<tr") == 4 + 3 * 9  # the list of cases, and of each one its values
    assert not re.search(r"url\(|@import|(?:https?:)?//(?!www\.w3\.org)\w+\.\w+/", re.sub(r'"data:[^"]+"', "", text))
    assert re.search(r"Not shown: image: \S+c_0000\.nii\.gz does not exist", text)
    layers = re.findall(r'"data:image/(jpeg|png);base64,([^"]+)"', text)
    assert sorted(form for form, _ in layers) == ["jpeg"] * 2 * 3 + ["png"] * 3 * 3
    for _, data in layers:
        with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
            assert picture.size[0] > 8
    assert set(re.findall(r'<path class="([^"]+)"', text)) == {"outline label-1", "outline label-2"}


def test_slices_with_the_most_doubt_are_chosen() -> None:
    doubt = np.full((40, 2, 2), 0.1)
    doubt[20], doubt[21], doubt[30] = 0.5, 0.49, 0.3
    assert most_doubtful(doubt, 2) == [20, 30]  # 21 is beside 20
    assert most_doubtful(doubt[:1], 3) == [0]
    assert len(most_doubtful(0 * doubt, 3)) == 1


@pytest.mark.parametrize("regions", [False, True])
def test_doubt_is_that_of_voxels_near_a_structure(tmp_path: Path, regions: bool) -> None:
    predictions = Predictions.of_folder(None, write_folder(tmp_path, "a", structure=True, regions=regions)[1])
    (case,) = predictions.cases
    p = probabilities(predictions.home, "a").astype(float)
    expected = (1 - p.max(0)) * near_by_scipy(1 - p[0])
    if regions:
        expected = np.max([np.minimum(q, 1 - q) * near_by_scipy(q) for q in p], axis=0)
    found = _doubt(SavedCase(case, predictions.data_set), predictions.data_set.meaning.activation)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_names_are_escaped(tmp_path: Path) -> None:
    _, predictions = write_folder(tmp_path, "a", structure=True)
    for file in list(predictions.glob("a.*")):
        file.rename(predictions / f"<script>alert(1)<{file.name}".replace("/", "_"))
    review_folder(predictions, html=tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;a" in text


@pytest.fixture(scope="module")
def opened(browser: Any, page: Path) -> Iterator[Any]:
    shown, said = conftest.opened(browser, page, 1280, 800)
    yield shown
    assert said == []


def test_it_works_by_keyboard(opened: Any) -> None:
    def case() -> list[str]:
        result: list[str] = opened.evaluate(
            "[...document.querySelectorAll('article')].filter((one) => !one.hidden).map((one) => one.dataset.case)"
        )
        return result

    rows = opened.evaluate("[...document.querySelectorAll('#cases tbody tr')].map((row) => row.dataset.case)")
    assert case() == [rows[0]]
    opened.keyboard.press("j")
    opened.keyboard.press("ArrowDown")
    assert case() == [rows[2]]
    opened.keyboard.press("k")
    assert case() == [rows[1]]
    opened.keyboard.press("x")
    assert opened.evaluate("document.querySelectorAll('tr.done').length") == 1
    opened.check("#open")
    assert case() == [rows[2]]  # the next
    assert opened.inner_text("#count") == "2 of 3 cases"
    opened.keyboard.press("x")
    assert case() == [rows[0]]  # the first, if there is no next one
    opened.uncheck("#open")


def test_keys_hide_outlines_and_doubt(opened: Any) -> None:
    case = opened.locator("article:not([hidden])")
    outlines, doubt = case.locator(".outline"), case.locator(".doubt")
    assert outlines.count() >= 2
    assert doubt.count() == 3
    for key, hidden, kept in (("o", outlines, doubt), ("d", doubt, outlines)):
        for pressed in (False, True):
            assert all(one.is_visible() != pressed for one in hidden.all())
            assert all(one.is_visible() for one in kept.all())
            opened.keyboard.press(key)


def test_it_filters_ranks_and_fits(opened: Any) -> None:
    opened.fill("#search", "b")
    assert opened.inner_text("#count") == "1 of 3 cases"
    opened.fill("#search", "")
    opened.select_option("#structure", "two")
    read_column = (
        "(column) => [...document.querySelectorAll('#cases tbody tr')].map((row) => row.cells[column].innerText)"
    )
    assert opened.evaluate(read_column, 2) == ["1", "2", "3"]
    assert all(text.startswith("two") for text in opened.evaluate(read_column, 3))
    reason = "document.querySelector('.why div').innerHTML = '<span data-structure=\"one\">one: low; two: low</span>'"
    opened.evaluate(reason)
    opened.check("#reasons")
    for structure, number in (("two", 0), ("one", 1), ("", 1)):
        opened.select_option("#structure", structure)
        assert opened.inner_text("#count") == f"{number} of 3 cases"
    opened.uncheck("#reasons")
    for descending in (False, True):
        opened.click("#cases th:first-child button")
        assert opened.evaluate(read_column, 0) == sorted("abc", reverse=descending)
    for width in (1280, 390):
        opened.set_viewport_size({"width": width, "height": 800})
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.locator("article:not([hidden]) svg").first.bounding_box()["width"] >= 240
