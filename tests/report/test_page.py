"""The page as a file: complete, self-contained, escaped; and what its first screen says."""

import json
import re
from collections import Counter
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import Settings
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.report import Metric, compare_all, compare_methods, read_results, write_report
from nnunet_nacl.report._formats import FORMATS
from nnunet_nacl.report._reliability import Verdict
from nnunet_nacl.report._slices import chosen_cases
from nnunet_nacl.report.panels import INK
from tests.report.generated import NAMED, make_blurred, make_result, placed_in, table_of

QUICK = Settings()
VOID = {"meta", "link", "br", "img", "input", "hr", "image"}
NASTY = "<script>alert(1)</script> \"x\" & 'y' $a_b^c$ \\frac {}"


class Page(HTMLParser):
    """What a browser would find; asserts that tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.svg_labels: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attributes]
        found = dict(attributes)
        if "id" in found:
            self.ids[str(found["id"])] += 1
        if tag == "svg":
            assert found["role"] == "img"
            self.svg_labels.append(str(found["aria-label"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"style", "script"}:
            self.text += data


def page_of(file: Path) -> Page:
    """Parse a page, and assert what holds for every one."""
    text = file.read_text()
    page = Page(text)
    assert not [one for one in page.ids.items() if one[1] > 1]
    referred = set(re.findall(r'(?:url\(|href=")#([^)"]+)', text))
    assert referred <= set(page.ids)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in {"src", "href", "xlink:href"}:
            assert str(value).startswith(("#", "data:")), (tag, name, value)  # nothing from elsewhere
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert text.count(INK) == 1  # in the style sheet: plots have the color of the text
    assert page.tags["h1"] == page.tags["script"] == 1
    assert sum(tag == "table" and name == "aria-label" for tag, name, _ in page.attributes) == page.tags["table"]
    assert "None" not in page.text
    assert not re.search(r"\bnan\b", page.text)
    return page


def write(tmp_path: Path, results: dict[str, FolderResult], **options: object) -> Page:
    file = tmp_path / "page.html"
    write_report(compare_all({"Dataset004_Demo": results}), file, parts=page_parts(), overwrite=True, **options)
    return page_of(file)


def test_everything_is_there(runs: dict[str, Path], page_file: Path) -> None:
    page = page_of(page_file)
    comparison = compare_methods(read_results([*runs.values()])["Dataset004_Demo"])
    for text in table_of("methods", comparison).frame.map(str).to_numpy().ravel():
        assert text.partition(" (")[0] in page.text
    # On top, curves; these and 3 methods over 3 voxel sets (no diagrams of the image); 2 trade-offs, radar, 3 rankings;
    # cases with image, ground truth, 2 pictures of each method and their curves.
    chosen = chosen_cases(comparison)
    assert page.tags["svg"] == 1 + 3 * (1 + 3) + 2 + 1 + 3 + len(chosen) * (2 + 2 * 3 + 1)
    assert sum(one.startswith("Confidence of soft, slice 1 of case") for one in page.svg_labels) == len(chosen)
    assert "Not shown" not in page.text
    assert page_file.read_text().count("data:image/png;base64,") == len(chosen) * (1 + 2 * 3)
    copied = [value for tag, name, value in page.attributes if (tag, name) == ("button", "data-text")]
    assert len(copied) == 2 * page.tags["table"]
    table = table_of("methods", replace(comparison, dataset="Dataset004_Demo"))
    assert {FORMATS["csv"](table), FORMATS["latex"](table)} <= set(copied)
    assert page_file.stat().st_size < 2e6
    # Each case has its own reliability, as in the paper's figure 11, whose legend has the ECE of that case
    (worst,) = [case for case, title in chosen.items() if "Worst calibrated case" in title]
    (label,) = [one for one in page.svg_labels if one.startswith(f"{worst}. accuracy")]
    assert f"soft ({comparison.by_case[Metric('ECE', 'near')].loc[worst, 'soft']:.3f})" in label


@pytest.mark.usefixtures("undrawn")
def test_what_is_not_alike_stands_in_the_verdict_above_two_tables_of_one_order(tmp_path: Path) -> None:
    margins = {"soft": (2.0, 5.0), "true": (1.0, 3.0), "sharp": (0.5, 5.0)}
    results = {name: make_blurred(t, settings=Settings(margin_mm=margin)) for name, (t, margin) in margins.items()}
    write(tmp_path, results)
    text = (tmp_path / "page.html").read_text()
    for target, name in re.findall('<a href="#d1-(methods|tradeoff)">(.*?)</a>', text):  # leads to a head of its name
        assert re.search(f'<h3 id="d1-{target}">{name}', text)
    legend = '<p class="legends small">Bold: significantly better, on these cases, than all others'
    assert legend in text.partition('id="d1-methods"')[2].partition("<table")[0]
    verdict, table, paper = text.partition('<div class="verdict">')[2].split("<table", 3)[:3]
    assert "different margin_mm (soft: 5.0; true: 3.0; sharp: 5.0)" in verdict
    rows = [re.findall('<th scope="row">(.*?)</th>', one) for one in (table, paper)]
    assert (
        rows[0]
        == rows[1]
        == [*compare_methods(results).order_by(Metric("NLL_per_foreground", "image")).names]
        != [*results]
    )
    near = text.partition('id="d1-reliability"')[2].partition("<details open><summary>Near the structures")[2]
    assert near.partition("<h4>")[0].count("<svg") == 1 + 3  # all methods, and each; where the menu leads
    for one in Verdict:  # each is explained
        assert one.value in text.partition("What the numbers mean")[2].lower()


@pytest.mark.usefixtures("undrawn")
def test_the_page_judges_voxels_that_labels_do_not_choose(tmp_path: Path) -> None:
    """Over the union, confidences that are right look too sure."""
    comparison = compare_methods({"true": make_blurred(1.0), "soft": make_blurred(2.0)})
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page, shown in zip(pages, (comparison, comparison.over("union")), strict=True):
        write_report([shown], page)
    assert pages[0].read_text() == pages[1].read_text()
    assert "as sure as it should be" in pages[1].read_text()


@pytest.mark.usefixtures("undrawn")
def test_reviews_beside_the_predictions_are_linked(tmp_path: Path) -> None:
    (tmp_path / "my soft").mkdir()
    (tmp_path / "my soft" / "review.html").touch()
    few = {"cases": NAMED[:2], "settings": QUICK}
    results = {"soft": placed_in(make_result(2.0, **few), tmp_path / "my soft"), "sharp": make_result(0.5, **few)}
    write_report([compare_methods(results)], tmp_path / "page.html")
    assert 'Reviews: <a href="my%20soft/review.html">soft</a>.' in (tmp_path / "page.html").read_text()


def test_one_method_two_one_case_and_no_value(tmp_path: Path) -> None:
    page = write(tmp_path, {"alone": make_result(0.4, settings=QUICK)})
    assert "Ranks" not in page.text
    assert page.tags["svg"] == 1 + 3 + 3  # of all, over three voxel sets, of the best, median and worst case
    few = {"cases": NAMED[:1], "settings": QUICK}
    page = write(tmp_path, {name: make_result(t, **few) for name, t in (("one", 0.4), ("other", 1.0))})
    assert "other: these cases do not tell" in page.text
    assert f"The only case: {NAMED[0]}" in page.text
    empty = make_result(1.0, cases=NAMED[:2], empty=NAMED, settings=Settings())
    assert "–" in write(tmp_path, dict.fromkeys(("one", "other", "third"), empty)).text


@pytest.mark.usefixtures("undrawn")
def test_settings_read_as_json(runs: dict[str, Path], tmp_path: Path) -> None:
    """What stands under "How it was made"."""
    write(tmp_path, read_results([runs["soft"]])["Dataset004_Demo"])
    listed = (tmp_path / "page.html").read_text().partition('<dl class="settings">')[2].partition("</dl>")[0]
    shown = {key: unescape(value) for key, value in re.findall("<dt>(.*)</dt><dd>(.*)</dd>", listed)}
    expected = {"pred_folder": str(runs["soft"]), "num_bins": "15", "surface": "true", "calibration": "no record"}
    assert shown == {**shown, **expected, "regions": "none"}
    assert "null" not in shown.values()
    assert json.loads(shown["labels"]) == {"background": 0, "cortex": 1, "medulla": 2, "core": 3}
    assert [*json.loads(shown["versions"])] == ["python", "nnunet-nacl", "nnunetv2", "numpy", "scipy"]


def test_names_are_escaped(tmp_path: Path) -> None:
    labels = {"background": 0, NASTY: 1, "_hidden": 2, "$x": 3}
    results = {
        name: make_result(t, labels=labels, settings=QUICK) for name, t in ((NASTY, 0.4), ("_y", 1.0), ("$", 2.0))
    }
    file = tmp_path / "page.html"
    write_report([compare_methods(results, NASTY)], file, parts=page_parts())
    page = page_of(file)
    assert "<script>alert" not in file.read_text()
    assert page.text.count(NASTY) > 10
    assert any(NASTY.replace(" ", "") in label.replace(" ", "") for label in page.svg_labels)
    for name in ("_y", "$"):
        assert re.search(rf"{re.escape(name)} \(0\.\d\d\d\)", page.text), name  # in the legends


@pytest.mark.usefixtures("undrawn")
def test_the_names_of_colors(tmp_path: Path) -> None:
    """Of regions, a label has that of the smallest one that it belongs to."""
    regions = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "inner": [3], "ignore": 4}
    for labels, names in ((None, ["cortex", "medulla", "core"]), (regions, ["whole", "core", "inner"])):
        write(tmp_path, {"one": make_result(labels=labels, settings=QUICK)})
        page = (tmp_path / "page.html").read_text()
        assert re.findall(r'style="background: #\w+"></span> (\w+)</li>', page) == names
        curves = page.partition("</h2>")[2].partition("<h3")[0].count("<svg")
        assert curves == (1 if labels is None else 3)  # each region that a sentence may name


@pytest.mark.usefixtures("undrawn")
def test_several_data_sets(tmp_path: Path) -> None:
    results = {name: make_result(t, settings=QUICK) for name, t in (("sharp", 0.4), ("soft", 1.8))}
    others = dict(reversed(results.items()))
    write_report(compare_all({"A": results, "B": others}), tmp_path / "page.html", parts=page_parts())
    page = page_of(tmp_path / "page.html")
    assert "Ranks over A, B." in page.text
    assert "radar" not in page.text  # of two methods it would be a line
    three = {**results, "right": make_result(1.0, settings=QUICK)}
    write_report(compare_all({"A": three, "B": three}), tmp_path / "page.html", parts=page_parts(), overwrite=True)
    text = page_of(tmp_path / "page.html").text.partition("Ranks over A, B.")[2]
    assert text.count("Dice and ECE as radar plots") == 1
