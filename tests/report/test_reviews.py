"""What the confidences are good for: values are the reviews', and the page says which command makes what is missing."""

import io
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from nnunet_nacl.report import compare, read_results, write_report
from nnunet_nacl.report._reviews import read_reviews
from nnunet_nacl.report.plots._diagrams import dice_scatter
from nnunet_nacl.use import review_folder
from tests.report.test_page import page_of


@pytest.fixture
def reviewed(runs: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Method -> evaluated and reviewed folder of predictions."""
    folder = tmp_path / "Dataset004_Demo"
    shutil.copytree(runs["sharp"].parents[1], folder)
    predictions = {method: folder / "predictions" / method for method in runs}
    for predicted in predictions.values():
        review_folder(predicted, gt_folder=folder / "labelsTs")
    return predictions


def reviews_of(folders: dict[str, Path]) -> Any:
    (results,) = read_results([*folders.values()], names=[*folders]).values()
    comparison = compare(results)
    return read_reviews(comparison)


@pytest.mark.usefixtures("undrawn")
def test_values_are_the_reviews(reviewed: dict[str, Path], tmp_path: Path) -> None:
    found = reviews_of(reviewed)
    assert list(found.judgements) == found.names == ["sharp", "right", "soft"]
    assert (found.missing, found.problems) == ([], [])
    write_report(read_results([*reviewed.values()], names=[*reviewed]), tmp_path / "page.html")
    attributes = page_of(tmp_path / "page.html").attributes
    text = next(str(value) for _, name, value in attributes if name == "data-text" and "AURC" in str(value))
    values, dice = pd.read_csv(io.StringIO(text), index_col="method"), Figure().add_subplot()
    dice_scatter(found, "right", dice)
    assert dice.get_xlabel() == "Dice to expect"  # not the predicted Dice, which is 0 where nothing is segmented
    points = np.concatenate([line.get_xydata() for line in dice.lines[1:]])
    assert np.abs(points[:, 0] - points[:, 1]).mean() == pytest.approx(found.judgements["right"].dice_error)
    for name, judgement in found.judgements.items():
        expected = json.loads((reviewed[name] / "review.json").read_text())["judgements"][-1]
        assert asdict(judgement) == expected
        numbers = ("dice_error", "dice_bias", "spearman", "aurc", "excess_aurc", "volume_bias_share")
        assert list(values.loc[name]) == pytest.approx([expected[one] for one in numbers])


@pytest.mark.usefixtures("undrawn")
def test_the_command_where_there_is_no_review(reviewed: dict[str, Path], runs: dict[str, Path], tmp_path: Path) -> None:
    truth = runs["soft"].parents[1] / "labelsTs"
    (reviewed["soft"] / "review.json").unlink()
    review_folder(reviewed["sharp"])  # no longer judged by the ground truth
    found = reviews_of(reviewed)
    assert list(found.judgements) == ["right"]
    assert found.missing == ["sharp", "soft"]
    write_report(read_results([*reviewed.values()], names=[*reviewed]), tmp_path / "page.html")
    page = page_of(tmp_path / "page.html")
    for name in ("sharp", "soft"):
        assert f"nnunet_nacl review {reviewed[name]} -gt {truth}" in page.text


def test_a_review_of_other_predictions_is_not_shown(reviewed: dict[str, Path]) -> None:
    shutil.copy(reviewed["soft"] / "review.json", reviewed["sharp"] / "review.json")
    (reviewed["right"] / "review.json").write_text('{"format": "something else"}')
    found = reviews_of(reviewed)
    assert list(found.judgements) == ["soft"]
    assert found.missing == ["sharp", "right"]
    assert re.search(r"sharp: the Dice of .* in the review, .* in the evaluation", found.problems[0])
    assert "format" in found.problems[1]


def test_the_page_shows_the_cases_that_all_reviews_have(reviewed: dict[str, Path], tmp_path: Path) -> None:
    file = reviewed["sharp"] / "review.json"
    content = json.loads(file.read_text())
    content["judged"] = [row for row in content["judged"] if row["case"] != "case_03"]
    file.write_text(json.dumps(content))
    found = reviews_of(reviewed)
    assert len(found.cases) == 7
    write_report(read_results([reviewed["sharp"]]), tmp_path / "page.html")
    page = page_of(tmp_path / "page.html")
    assert any(one.startswith("sharp MAE 0.") for one in page.svg_labels)
    assert "in the 7 of 8 cases that all reviews have" in page.text
