"""The page as a file: complete, self-contained, escaped."""

import base64
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.evaluation import FolderResult, Place, Settings, evaluate_case
from nnunet_nacl.nnunet import LabelMeaning
from nnunet_nacl.report import compare, read_results, verdict, write_report
from nnunet_nacl.report._formats import to_csv, to_latex
from nnunet_nacl.report._results import evaluate_command
from nnunet_nacl.report._slices import chosen_cases
from nnunet_nacl.report._tables import cases_table, methods_table, paper_table, score_ranks_table
from nnunet_nacl.report.plots._style import INK
from tests.report.generated import NAMED, as_before, make_blurred, make_result, with_origin

QUICK = Settings(voxels=("foreground",))
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
    assert page.tags["h1"] == page.tags["main"] == page.tags["script"] == 1
    assert ("table", "aria-label") in {(tag, name) for tag, name, _ in page.attributes} or page.tags["table"] == 0
    assert sum(tag == "table" and name == "aria-label" for tag, name, _ in page.attributes) == page.tags["table"]
    assert "None" not in page.text
    assert not re.search(r"\bnan\b", page.text)
    return page


def write(tmp_path: Path, results: dict[str, FolderResult], **options: object) -> Page:
    file = tmp_path / "page.html"
    write_report({"Dataset004_Demo": results}, file, **options)
    return page_of(file)


def test_the_whole_page(runs: dict[str, Path], tmp_path: Path) -> None:
    results = read_results([*runs.values()])
    file = tmp_path / "report.html"
    write_report(results, file, command="nnunet_nacl report a b 'c d'")
    page = page_of(file)
    comparison = compare(results["Dataset004_Demo"])
    for paragraph in verdict(comparison):
        assert paragraph in page.text.replace("\u00a0%", " %")
    for _, cells in methods_table(comparison).rows:
        assert all(cell.text in page.text for cell in cells)
    assert "confidence − accuracy" in page.text
    assert "over-confidence" not in page.text
    assert "nnunet_nacl report a b 'c d'" in page.text
    assert f"nnunet_nacl evaluate {runs['soft'].parents[1] / 'labelsTs'} {runs['soft']} --surface" in page.text
    # Curves, 3 methods and 4 classes over 3 voxel sets (no diagrams of the image; no background over the foreground);
    # 2 trade-offs, radar, 3 rankings; 4 cases with image, ground truth and 2 pictures of each method.
    assert page.tags["svg"] == 3 * (1 + 3 + 4) - 1 + 2 + 1 + 3 + 4 * (2 + 2 * 3)
    diagrams = [one for one in page.svg_labels if one.startswith("Reliability diagram of soft over the union: pooled")]
    assert len(diagrams) == 1
    assert sum(one.startswith("Confidence of soft, slice 1 of case") for one in page.svg_labels) == 4
    assert "Not shown" not in page.text
    assert file.read_text().count("data:image/png;base64,") == 4 * (1 + 2 * 3)
    assert file.read_text().count("data:image/jpeg;base64,") == 4
    for case in chosen_cases(comparison, "near").values():
        (anchor,) = re.findall(rf'<a href="#([^"]+)">{case}</a>', file.read_text())
        assert f'<h4 id="{anchor}">' in file.read_text()
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    assert file.stat().st_size < 2e6


def test_plots_keep_their_digits(tmp_path: Path, results: dict[str, FolderResult]) -> None:
    """Coordinates are shortened; what is written in a plot is not."""
    page = write(tmp_path, results)
    for name, result in results.items():
        error = result.pooled_tables("foreground").metrics()["ECE"]
        assert re.search(rf"{name}\s*pooled ECE {error:.3f}\b", page.text)


def test_tables_are_there_to_copy(tmp_path: Path, results: dict[str, FolderResult]) -> None:
    """As ``nnunet_nacl table`` writes them."""
    page = write(tmp_path, results)
    copied = [value for tag, name, value in page.attributes if (tag, name) == ("button", "data-text")]
    assert len(copied) == 2 * page.tags["table"]
    comparison = compare(results, dataset="Dataset004_Demo")
    for table in (methods_table(comparison), cases_table(comparison, "near")):
        assert to_csv(table) in copied
        assert to_latex(table) in copied


def test_short_names_on_the_page(tmp_path: Path) -> None:
    results = {f"{name}_paper_12epochs": make_result(t, settings=QUICK) for name, t in (("CE", 0.4), ("NACL", 1.0))}
    page = write(tmp_path, results, baseline="NACL_paper_12epochs")
    assert "the names of all methods end with _paper_12epochs." in page.text
    assert page.text.count("_paper_12epochs") == 3  # there, and among the settings of each
    assert "compared with NACL." in page.text
    with pytest.raises(ValueError, match="baseline: expected one of CE, NACL; got SVLS"):
        write(tmp_path, results, baseline="SVLS")


def test_grouped_heads(tmp_path: Path, results: dict[str, FolderResult]) -> None:
    write(tmp_path, results)
    text = (tmp_path / "page.html").read_text()
    heads = re.findall(r'<th scope="colgroup" colspan="(\d)">([^<]*)</th>', text)
    structures = [("3", "Dice\xa0↑"), ("3", "HD95 (mm)\xa0↓"), ("3", "class ECE near\xa0↓")]
    assert heads == [*structures, *(("2", name) for name in results)]


def test_the_same_page_again(tmp_path: Path) -> None:
    results, texts = {"alone": make_result(0.4, settings=QUICK)}, []
    for name in "ab":
        write_report({"": results}, tmp_path / name)
        texts.append(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", (tmp_path / name).read_text()))
    assert texts[0] == texts[1]


def test_one_method(tmp_path: Path) -> None:
    page = write(tmp_path, {"alone": make_result(0.4, settings=QUICK)})
    assert "the confidences of alone are off by" in page.text
    assert "Ranks" not in page.text
    assert page.tags["svg"] == 1 + 1 + 3


def test_two_methods_have_no_ranks(tmp_path: Path) -> None:
    page = write(tmp_path, {"one": make_result(0.4, settings=QUICK), "other": make_result(1.0, settings=QUICK)})
    assert "Ranks" not in page.text


def test_progress(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"alone": make_result(0.4, settings=QUICK)})
    shown = capfd.readouterr().err
    assert "drawing: 100%" in shown
    assert "6/6" in shown


def test_one_switch_for_the_voxel_set(tmp_path: Path) -> None:
    results = {"soft": make_blurred(2.0), "true": make_blurred(), "sharp": make_blurred(0.5)}
    page = write(tmp_path, results)
    text = (tmp_path / "page.html").read_text()
    radios = re.findall(r'<input type="radio" name="voxels" id="set-(\w+)"( checked)?>', text)
    assert radios == [("near", " checked"), ("foreground", ""), ("union", ""), ("image", "")]
    assert re.findall(r'<div class="of-set (\w+)">', text) == [name for name, _ in radios]
    assert text.count("The dashed line is where it would lie with the same probabilities") == 2
    assert text.count("No diagrams: they would show little but the background") == 1
    for table in (paper_table(compare(results)), score_ranks_table([compare(results)])):
        assert table.title in page.text
        assert table.note in page.text
    assert page.text.index("By Dice, NLL per foreground voxel and ECE near") < page.text.index("The paper's: by Dice")
    expected = results["soft"].pooled("union")["ECE_expected"]
    assert re.search(rf"pooled ECE 0\.\d\d\d\s*\(if perfectly calibrated {expected:.3f}\)", page.text)
    for told in (
        "Near: those within 5 mm of where the model sees a structure with a probability above 5 %.",
        "Foreground and union choose voxels by their label: a perfectly calibrated model need not score 0 there,",
        "NLL per foreground voxelThe negative logarithm",
        "If perfectly calibratedWhat the model would score",
    ):
        assert told in page.text


def test_before_there_was_near(tmp_path: Path) -> None:
    page = write(tmp_path, {"soft": as_before(make_blurred(2.0)), "true": as_before(make_blurred())})
    assert "soft and true were not evaluated over the voxel sets near and image." in page.text
    assert "Where it would lie is not known." in page.text
    for absent in ("NLL per foreground voxel", "Near:", "if perfectly calibrated", "Ranks by"):
        assert absent not in page.text


def test_one_case(tmp_path: Path) -> None:
    page = write(
        tmp_path,
        {
            "one": make_result(0.4, cases=NAMED[:1], settings=QUICK),
            "other": make_result(1.0, cases=NAMED[:1], settings=QUICK),
        },
    )
    assert "too few cases to test" in page.text
    assert f"The only case: {NAMED[0]}" in page.text
    assert "are not told apart by one case" in page.text


def test_two_cases(tmp_path: Path) -> None:
    page = write(
        tmp_path,
        {
            "one": make_result(0.4, cases=NAMED[:2], settings=QUICK),
            "other": make_result(1.0, cases=NAMED[:2], settings=QUICK),
        },
    )
    assert "Median case" not in page.text
    assert "Worst calibrated case" in page.text


def test_not_a_number_everywhere(tmp_path: Path) -> None:
    page = write(tmp_path, {name: make_result(1.0, empty=NAMED, settings=QUICK) for name in ("one", "other", "third")})
    assert "Calibration over the foreground is not defined" in page.text
    assert "–" in page.text


def test_names_are_escaped(tmp_path: Path) -> None:
    labels = {"background": 0, NASTY: 1, "_hidden": 2, "$x": 3}
    results = {
        name: make_result(t, labels=labels, settings=QUICK) for name, t in ((NASTY, 0.4), ("_y", 1.0), ("$", 2.0))
    }
    file = tmp_path / "page.html"
    write_report({NASTY: results}, file, command=NASTY)
    page = page_of(file)
    assert "<script>alert" not in file.read_text()
    assert page.text.count(NASTY) > 20
    assert any(NASTY in label for label in page.svg_labels)
    for name in ("_y", "$"):
        assert re.search(rf"{re.escape(name)} \(0\.\d\d\d\)", page.text), name  # in the legends


def test_regions(tmp_path: Path) -> None:
    labels = {"background": 0, "organ": [1, 2, 3], "inner": [2, 3]}
    results = {name: make_result(labels=labels, settings=QUICK) for name in ("one", "other")}
    page = write(tmp_path, results)
    assert page.tags["svg"] == (2 + 2 * 2 + 2) + 2
    assert "With regions, each region has its own voxels" in page.text


def test_118_classes(tmp_path: Path) -> None:
    labels = {"background": 0, **{f"class {number}": number for number in range(1, 118)}}
    generator = np.random.default_rng(0)
    y = generator.integers(0, 118, (1, 32, 32))
    results = {}
    for name, strength in (("one", 3.0), ("other", 30.0)):
        result, cases = make_result(cases=NAMED[:3], settings=QUICK), []
        for case in result.cases:
            p = generator.random((118, *y.shape)) + strength * (y == np.arange(118)[:, None, None, None])
            cases.append(replace(case, result=evaluate_case((p / p.sum(0)).astype(np.float32), y, settings=QUICK)))
        results[name] = with_origin(replace(result, cases=cases), labels=LabelMeaning.of_names(labels, None))
    page = write(tmp_path, results)
    assert "12 of 118 are drawn: those with the largest error" in page.text
    assert "class 117" in page.text
    assert (tmp_path / "page.html").stat().st_size < 3e6


def test_several_data_sets(tmp_path: Path) -> None:
    results = {name: make_result(t, settings=QUICK) for name, t in (("sharp", 0.4), ("right", 1.0), ("soft", 1.8))}
    others = {
        name: make_result(t, seed=4, settings=QUICK) for name, t in (("soft", 1.8), ("sharp", 0.4), ("right", 1.0))
    }
    write_report({"A": results, "B": others}, tmp_path / "page.html")
    page = page_of(tmp_path / "page.html")
    assert "All data sets" in page.text
    assert "Ranks over A, B." in page.text
    write_report({"A": results, "B": {"soft": others["soft"]}}, tmp_path / "page.html")
    assert "All data sets" not in page_of(tmp_path / "page.html").text


def test_notes_are_in_the_page(tmp_path: Path) -> None:
    one, other = make_result(0.4, cases=NAMED[:5], settings=QUICK), make_result(1.0, settings=QUICK)
    page = write(tmp_path, {"one": one, "other": other})
    assert "5 of 8 cases are compared" in page.text


def test_nothing_half_written(
    tmp_path: Path, results: dict[str, FolderResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.html"
    before = '<meta name="generator" content="nnunet_nacl 0.1">'
    file.write_text(before)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_report({"": results}, file)
    monkeypatch.undo()
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    assert file.read_text() == before


def test_where_it_cannot_be_written(tmp_path: Path, results: dict[str, FolderResult]) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder; expected the path of a file"):
        write_report({"": results}, tmp_path)
    with pytest.raises(FileNotFoundError, match="missing does not exist"):
        write_report({"": results}, tmp_path / "missing" / "page.html")


def test_an_unknown_reader_costs_only_the_pictures(tmp_path: Path) -> None:
    result = make_result(0.4, settings=QUICK)
    page = write(tmp_path, {"one": with_origin(result, reader="MyReader")})
    assert "Not shown: " in page.text
    assert "Best calibrated case" in page.text


def test_the_commands_that_evaluated() -> None:
    result = make_result(0.4, settings=Settings(surface=True, num_bins=10, voxels=("image",)))

    def command(*places: Place, part: tuple[int, int] | None = None) -> str:
        return evaluate_command(with_origin(result, places=places, part=part))

    options = "--voxels image --bins 10 --surface"
    assert command(Place("labelsTs", "p", "p/dataset.json", None)) == f"nnunet_nacl evaluate labelsTs p {options}"
    elsewhere = command(Place("labelsTs", "a b", "raw/dataset.json", "x/plans.json"), part=(1, 4))
    assert elsewhere == (
        "nnunet_nacl evaluate labelsTs 'a b' -djfile raw/dataset.json -pfile x/plans.json "
        f"{options} --num_parts 4 --part_id 1"
    )
    model = "/r/Dataset004_H/nnUNetTrainerNACL__nnUNetPlans__2d"
    expected = f"nnunet_nacl evaluate -d Dataset004_H -c 2d -tr nnUNetTrainerNACL -p nnUNetPlans -f 0 {options}"
    folds = [Place("gt", f"{model}/fold_{fold}/validation", "dataset.json", None) for fold in (0, 1)]
    assert command(folds[0]) == expected
    assert command(*folds) == expected.replace("-f 0", "-f 0 1")
    merged = command(*(Place("labelsTs", folder, f"{folder}/dataset.json", None) for folder in ("p", "q")))
    assert merged == f"nnunet_nacl evaluate labelsTs p {options}\nnnunet_nacl evaluate labelsTs q {options}"


def test_the_logits_if_asked(tmp_path: Path) -> None:
    results = {"<CE>": make_result(settings=Settings(voxels=("near",)))}
    folder = tmp_path / "logits"
    folder.mkdir()
    methods = {"<CE>": {"mean_logits": {}, "max_logits": None}, "NACL": {"mean_logits": {}, "max_logits": {}}}
    (folder / "logits.json").write_text(json.dumps({"fold": 3, "methods": methods}))
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
    (folder / "logits_by_class.svg").write_bytes(drawing)
    page = write(tmp_path, results, logits=folder)
    (image,) = [value for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
    assert base64.b64decode(str(image).removeprefix("data:image/svg+xml;base64,")) == drawing
    assert ("img", "alt", "Mean absolute logits by true class: <CE>, NACL, fold 3") in page.attributes
    assert "The largest logit" not in page.text

    (folder / "max_logits.svg").write_bytes(drawing)
    page = write(tmp_path, results, logits=folder)
    assert page.tags["img"] == 2
    alt = "The largest logit of a voxel over the epochs of the training: NACL, fold 3"
    assert ("img", "alt", alt) in page.attributes
    assert write(tmp_path, results).tags["img"] == 0

    (folder / "logits.json").write_text("[]")
    with pytest.raises(ValueError, match=r"logits\.json is no file that nnunet_nacl logits has written: expected"):
        write(tmp_path, results, logits=folder)
    (folder / "logits_by_class.svg").unlink()
    with pytest.raises(FileNotFoundError, match=r"logits_by_class\.svg does not exist: expected a folder that"):
        write(tmp_path, results, logits=folder)
