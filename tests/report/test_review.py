"""What the confidences are good for: values are the reviews', and the page says which command makes what is missing."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.report import compare, read_results, write_report
from nnunet_nacl.report._panels import judged_panels
from nnunet_nacl.report._review import JudgedMethods, judged_methods
from nnunet_nacl.report._tables import judged_table
from nnunet_nacl.report.plots import dice_scatter, risk_coverage_curves, volume_differences
from nnunet_nacl.report.plots._style import draw_panels
from nnunet_nacl.use import Judgement, fit_review, read_judged, review_folder
from tests.calibrate.generated import write_folder
from tests.report.generated import write_predictions
from tests.report.test_page import NASTY, QUICK, page_of

TITLE = "What the confidences are good for"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Method -> folder of predictions, evaluated over one voxel set: its page is drawn sooner."""
    folder = tmp_path_factory.mktemp("quick") / "Dataset004_Demo"
    predictions = write_predictions(folder, {"sharp": 0.4, "right": 1.0, "soft": 1.8})
    for predicted in predictions.values():
        evaluate(Predictions.of_folder(folder / "labelsTs", predicted), settings=QUICK)
    return predictions


@pytest.fixture
def reviewed(runs: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Method -> evaluated and reviewed folder of predictions."""
    folder = tmp_path / "Dataset004_Demo"
    shutil.copytree(runs["sharp"].parents[1], folder)
    predictions = {method: folder / "predictions" / method for method in runs}
    for predicted in predictions.values():
        review_folder(predicted, gt_folder=folder / "labelsTs")
    return predictions


def judged(folders: dict[str, Path]) -> JudgedMethods:
    (results,) = read_results([*folders.values()], names=[*folders]).values()
    return judged_methods(compare(results))


def judgement_in(folder: Path) -> Judgement:
    return Judgement(**json.loads((folder / "review.json").read_text())["judgements"][-1])


def test_values_are_the_reviews(reviewed: dict[str, Path]) -> None:
    found = judged(reviewed)
    assert [one.name for one in found.methods] == found.names == ["sharp", "right", "soft"]
    assert (found.missing, found.problems, found.commands) == ([], [], [])
    values = judged_table(found).values()
    for one in found.methods:
        expected = judgement_in(reviewed[one.name])
        assert one.judgement == expected
        assert sorted(one.rows, key=str) == sorted(read_judged(reviewed[one.name] / "review.json"), key=str)
        assert list(values.loc[one.name]) == pytest.approx(
            [
                expected.dice_error,
                expected.dice_bias,
                expected.spearman,
                expected.aurc,
                expected.excess_aurc,
                expected.volume_bias_share,
            ]
        )


def test_plots_show_these_values(reviewed: dict[str, Path]) -> None:
    found = judged(reviewed)
    one = found.methods[1]
    points = np.concatenate([line.get_xydata() for line in dice_scatter(one).lines[1:]])
    assert np.abs(points[:, 0] - points[:, 1]).mean() == pytest.approx(one.judgement.dice_error)
    for line, method in zip(risk_coverage_curves(found).lines, found.methods, strict=True):
        x, y = np.transpose(line.get_xydata())
        assert np.trapezoid(y, x) == pytest.approx(method.judgement.aurc)
    lines = volume_differences(one).lines
    bias, low, high = (float(line.get_ydata()[0]) for line in lines[1:4])
    differences = np.concatenate([line.get_ydata() for line in lines[4:]])
    assert differences.mean() == pytest.approx(bias) == pytest.approx(one.judgement.volume_bias_ml)
    assert (high - low) / 2 == pytest.approx(1.96 * differences.std(ddof=1))


def test_in_the_page(reviewed: dict[str, Path], tmp_path: Path) -> None:
    write_report(read_results([*reviewed.values()]), tmp_path / "page.html")
    page = page_of(tmp_path / "page.html")
    found = judged(reviewed)
    assert all(text in page.text for column in judged_table(found).columns for text in column.texts())
    panels = judged_panels(found)
    assert len(panels) == 3 + 1 + 3
    assert {panel.description for panel in panels} <= set(page.svg_labels)
    assert "nnunet_nacl review" not in page.text


def test_the_command_where_there_is_no_review(reviewed: dict[str, Path], runs: dict[str, Path]) -> None:
    truth = runs["soft"].parents[1] / "labelsTs"
    (reviewed["soft"] / "review.json").unlink()
    review_folder(reviewed["sharp"])  # no longer judged by the ground truth
    found = judged(reviewed)
    assert [one.name for one in found.methods] == ["right"]
    assert found.missing == ["sharp", "soft"]
    assert found.commands == [f"nnunet_nacl review {runs[name]} -gt {truth}" for name in ("sharp", "soft")]


def test_nothing_without_a_review(runs: dict[str, Path], tmp_path: Path) -> None:
    write_report(read_results([*runs.values()]), tmp_path / "page.html")
    page = page_of(tmp_path / "page.html")
    assert TITLE in page.text
    assert "AURC" not in page.text
    assert "No review with ground truth was found for sharp, right, soft" in page.text
    assert f"nnunet_nacl review {runs['soft']} -gt {runs['soft'].parents[1] / 'labelsTs'}" in page.text


def test_a_review_beside_the_summary(reviewed: dict[str, Path], tmp_path: Path) -> None:
    moved = {name: folder.rename(tmp_path / name) for name, folder in reviewed.items()}
    assert [one.name for one in judged(moved).methods] == ["sharp", "right", "soft"]


def test_a_review_of_other_predictions_is_not_shown(reviewed: dict[str, Path]) -> None:
    shutil.copy(reviewed["soft"] / "review.json", reviewed["sharp"] / "review.json")
    (reviewed["right"] / "review.json").write_text('{"format": "something else"}')
    found = judged(reviewed)
    assert [one.name for one in found.methods] == ["soft"]
    assert found.missing == ["sharp", "right"]
    assert re.search(r"sharp: .*review.json: the Dice of .* expected .*, as in the evaluation", found.problems[0])
    assert "format" in found.problems[1]


def without_a_case(file: Path) -> None:
    content = json.loads(file.read_text())
    content["judged"] = [row for row in content["judged"] if row["case"] != "case_03"]
    file.write_text(json.dumps(content))


def test_cases_that_all_reviews_have(reviewed: dict[str, Path]) -> None:
    without_a_case(reviewed["sharp"] / "review.json")
    found = judged(reviewed)
    assert len(found.cases) == 7
    assert {one.judgement.num_cases for one in found.methods} == {found.methods[0].judgement.num_cases}


def test_intervals_where_fitted(tmp_path: Path) -> None:
    known = write_folder(tmp_path / "known", [f"k{number:02d}" for number in range(24)], structure=True)
    truth, predicted = write_folder(tmp_path / "new", "abc", structure=True)
    fit = fit_review(Predictions.of_folder(*known), output=tmp_path / "fit.json")
    review_folder(predicted, gt_folder=truth, fit=fit.file)
    evaluate(Predictions.of_folder(truth, predicted))
    found = judged({"one": predicted})
    values, expected = judged_table(found).values(), judgement_in(predicted)
    assert values.loc["one", "interval held"] == expected.interval_coverage
    assert values.loc["one", "width (ml)"] == pytest.approx(expected.interval_width_ml)


def test_a_single_case(tmp_path: Path) -> None:
    predictions = write_predictions(tmp_path / "Dataset004_Demo", {"sharp": 0.4}, cases=["only"])
    truth = tmp_path / "Dataset004_Demo" / "labelsTs"
    review_folder(predictions["sharp"], gt_folder=truth)
    evaluate(Predictions.of_folder(truth, predictions["sharp"]))
    found = judged(predictions)
    assert len(found.methods[0].rows) == len(found.methods[0].structures)
    draw_panels(judged_panels(found)).canvas.draw()


def test_texts_are_escaped(reviewed: dict[str, Path], tmp_path: Path) -> None:
    (reviewed["soft"] / "review.json").unlink()
    (reviewed["right"] / "review.json").write_text(json.dumps({"format": NASTY}))
    without_a_case(reviewed["sharp"] / "review.json")
    names = [f"{NASTY}0", f"1{NASTY}1", f"2{NASTY}2"]  # no words that all of them end with
    write_report(read_results([*reviewed.values()], names=names), tmp_path / "page.html")
    page = page_of(tmp_path / "page.html")
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
    assert any(f"True against predicted Dice of {NASTY}0" in label for label in page.svg_labels)
    assert f"was found for 1{NASTY}1, 2{NASTY}2" in page.text
    assert "in the 7 of 8 cases that all reviews have" in page.text
    assert f"Not shown: 1{NASTY}1" in page.text
