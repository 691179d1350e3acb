"""What the confidences are good for: values are the reviews', and the page says which command makes what is missing."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.report import compare, read_results, write_report
from nnunet_nacl.report._review import Reviews, read_reviews
from nnunet_nacl.report._tables import review_table
from nnunet_nacl.report.plots._review import dice_scatter, risk_coverage_curves, volume_differences
from nnunet_nacl.use import Judgement, review_folder
from tests.report.generated import write_predictions
from tests.report.test_page import NASTY, QUICK, page_of


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


def reviews_of(folders: dict[str, Path]) -> Reviews:
    (results,) = read_results([*folders.values()], names=[*folders]).values()
    return read_reviews(compare(results))


def judgement_in(folder: Path) -> Judgement:
    return Judgement(**json.loads((folder / "review.json").read_text())["judgements"][-1])


def test_values_are_the_reviews(reviewed: dict[str, Path]) -> None:
    found = reviews_of(reviewed)
    assert list(found.judgements) == found.names == ["sharp", "right", "soft"]
    assert (found.missing, found.problems, found.commands) == ([], [], [])
    values = review_table(found).values()
    for name, judgement in found.judgements.items():
        expected = judgement_in(reviewed[name])
        assert judgement == expected
        numbers = ("dice_error", "dice_bias", "spearman", "aurc", "excess_aurc", "volume_bias_share")
        assert list(values.loc[name]) == pytest.approx([getattr(expected, one) for one in numbers])


def test_plots_show_these_values(reviewed: dict[str, Path]) -> None:
    found, figure = reviews_of(reviewed), Figure()
    dice, risk, volumes = figure.subplots(1, 3)
    dice_scatter(found, "right", dice)
    risk_coverage_curves(found, risk)
    volume_differences(found, "right", volumes)
    expected = found.judgements["right"]
    points = np.concatenate([line.get_xydata() for line in dice.lines[1:]])
    assert np.abs(points[:, 0] - points[:, 1]).mean() == pytest.approx(expected.dice_error)
    for line, judgement in zip(risk.lines, found.judgements.values(), strict=True):
        x, y = np.transpose(line.get_xydata())
        assert np.trapezoid(y, x) == pytest.approx(judgement.aurc)
    bias, low, high = (float(line.get_ydata()[0]) for line in volumes.lines[1:4])
    differences = np.concatenate([line.get_ydata() for line in volumes.lines[4:]])
    assert differences.mean() == pytest.approx(bias) == pytest.approx(expected.volume_bias_ml)
    assert (high - low) / 2 == pytest.approx(1.96 * differences.std(ddof=1))


def test_the_command_where_there_is_no_review(reviewed: dict[str, Path], runs: dict[str, Path]) -> None:
    truth = runs["soft"].parents[1] / "labelsTs"
    (reviewed["soft"] / "review.json").unlink()
    review_folder(reviewed["sharp"])  # no longer judged by the ground truth
    found = reviews_of(reviewed)
    assert list(found.judgements) == ["right"]
    assert found.missing == ["sharp", "soft"]
    assert found.commands == [f"nnunet_nacl review {runs[name]} -gt {truth}" for name in ("sharp", "soft")]


def test_a_review_beside_the_summary(reviewed: dict[str, Path], tmp_path: Path) -> None:
    moved = {name: folder.rename(tmp_path / name) for name, folder in reviewed.items()}
    assert list(reviews_of(moved).judgements) == ["sharp", "right", "soft"]


def test_a_review_of_other_predictions_is_not_shown(reviewed: dict[str, Path]) -> None:
    shutil.copy(reviewed["soft"] / "review.json", reviewed["sharp"] / "review.json")
    (reviewed["right"] / "review.json").write_text('{"format": "something else"}')
    found = reviews_of(reviewed)
    assert list(found.judgements) == ["soft"]
    assert found.missing == ["sharp", "right"]
    assert re.search(r"sharp: .*review.json: the Dice of .* expected .*, as in the evaluation", found.problems[0])
    assert "format" in found.problems[1]


def without_a_case(file: Path) -> None:
    content = json.loads(file.read_text())
    content["judged"] = [row for row in content["judged"] if row["case"] != "case_03"]
    file.write_text(json.dumps(content))


def test_cases_that_all_reviews_have(reviewed: dict[str, Path]) -> None:
    without_a_case(reviewed["sharp"] / "review.json")
    found = reviews_of(reviewed)
    assert len(found.cases) == 7
    assert len({one.num_cases for one in found.judgements.values()}) == 1


def test_texts_are_escaped(reviewed: dict[str, Path], tmp_path: Path) -> None:
    (reviewed["soft"] / "review.json").unlink()
    (reviewed["right"] / "review.json").write_text(json.dumps({"format": NASTY}))
    without_a_case(reviewed["sharp"] / "review.json")
    names = [f"{NASTY}0", f"1{NASTY}1", f"2{NASTY}2"]  # no words that all of them end with
    write_report(read_results([*reviewed.values()], names=names), tmp_path / "page.html")
    page = page_of(tmp_path / "page.html")
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
    assert any(f"{NASTY}0 MAE 0.".replace(" ", "") in label.replace(" ", "") for label in page.svg_labels)
    assert f"was found for 1{NASTY}1, 2{NASTY}2" in page.text
    assert "in the 7 of 8 cases that all reviews have" in page.text
    assert f"Not shown: 1{NASTY}1" in page.text
