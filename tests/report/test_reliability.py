"""What is said of the confidences: too sure or not, ECE by chance, scores split in two."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from nnunet_nacl.evaluation import FolderResult, evaluate
from nnunet_nacl.metrics import Counts, LabelMeaning, evaluate_case, measure
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.report import compare_methods
from tests.generated import write_folder
from tests.report.generated import NAMED, counted_by, make_blurred, make_result, table_of


def verdict_on(result: FolderResult) -> Any:
    comparison = compare_methods({"one": result})
    return comparison.reliability[comparison.choice.main]["one"]


def verdict_by(sure: np.ndarray, y: np.ndarray) -> Any:
    """The verdict on cases (N, H, W) of two classes, the second of which has this probability."""
    base = make_blurred(num_cases=len(sure))
    cases = zip(sure, y.astype(np.uint8), strict=True)
    found = [evaluate_case(np.stack([1 - p, p])[:, None], label[None]) for p, label in cases]
    return verdict_on(replace(base, counts=Counts.joined(found)))


def test_what_cases_tell() -> None:
    assert verdict_on(make_blurred(num_cases=2)).verdict.name == "UNDECIDED"
    assert verdict_on(make_result(2.5, empty=NAMED[2:])).verdict.name == "UNDECIDED"  # only two have voxels
    # Of ten voxels each that are 90 % sure, all or eight are right: on the whole 90 %, but chance alone gives more
    y = np.arange(10) < np.array([[10], [8], [10], [8]])
    assert verdict_by(np.full((4, 1, 10), 0.9), y[:, None]).verdict.name == "UNDECIDED"
    # An ECE near of .027 (.025 to .029) is told.
    mild = verdict_on(make_blurred(0.8, num_cases=40))
    assert 0.01 < mild.pooled["ECE"] < 0.04
    assert mild.verdict.name == "TOO_SURE"


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [(0.87, "TOO_SURE"), (0.885, "NEARLY"), (0.895, "RIGHT"), (0.905, "RIGHT"), (0.915, "NEARLY"),
     (0.93, "NOT_SURE_ENOUGH")],
)  # fmt: skip
def test_the_limits_of_the_verdicts(accuracy: float, verdict: str) -> None:
    """Those of docs/report.md: all voxels have a confidence of about 90 %, and this accuracy."""
    generator = np.random.default_rng(0)
    right = np.broadcast_to(np.arange(1600) < 1600 * accuracy, (20, 1600))
    y = generator.permuted(right, axis=1).reshape(20, 40, 40)
    assert verdict_by(generator.uniform(0.89, 0.91, y.shape), y).verdict.name == verdict


def test_the_region_that_is_furthest_off_decides(tmp_path: Path) -> None:
    truth, predictions = write_folder(tmp_path, "abcd", structure=True, regions=True)
    for file in predictions.glob("*.npz"):
        p = np.load(file)["probabilities"].astype(float)
        p[1] = expit(4 * logit(p[1].clip(1e-6, 1 - 1e-6)))  # of the second region, too sure
        np.savez_compressed(file, probabilities=p.astype(np.float32))
    assessment = verdict_on(evaluate(Predictions.of_folder(truth, predictions)))
    assert (assessment.furthest_off.what, assessment.verdict.name) == ("core", "TOO_SURE")


def test_errors_in_both_directions_have_no_side() -> None:
    """Confidence .95 is right in 90 %, .6 in 65 %: the ECE is .05, confidence and accuracy the same on the whole."""
    sure, y = np.repeat([0.95, 0.6], 500), np.repeat([1, 0, 1, 0], [450, 50, 325, 175])
    assessment = verdict_by(*(np.tile(one.reshape(25, 40), (4, 1, 1)) for one in (sure, y)))
    assert assessment.pooled["ECE"] == pytest.approx(0.05)
    assert assessment.verdict.name == "MIXED"


def test_too_sure_where_it_says_90_and_not_sure_enough_elsewhere() -> None:
    generator = np.random.default_rng(0)
    kind = generator.choice(3, (4, 40, 40), p=[0.8, 0.15, 0.05])
    sure = np.array([0.955, 0.9, 0.6])[kind] + generator.uniform(-0.01, 0.01, kind.shape)
    assessment = verdict_by(sure, generator.random(kind.shape) < np.array([1, 0.75, 0.6])[kind])
    assert assessment.verdict.name == "MIXED"
    assert assessment.furthest_off.accuracy_where_stated[0] < 0.85


def test_the_accuracy_where_it_says_90_by_hand() -> None:
    """A line between the points of the bins on both sides of 90 %."""
    sharp = make_blurred(0.5)
    tables = sharp.counts["near"].top
    count, hits, confidence = tables.count[0], tables.hits[0], tables.confidence[0]
    kept = count >= 0.001 * count.sum()
    sure, right = confidence[kept] / count[kept], hits[kept] / count[kept]
    above = int(np.searchsorted(sure, 0.9))
    weight = (0.9 - sure[above - 1]) / (sure[above] - sure[above - 1])
    expected = (1 - weight) * right[above - 1] + weight * right[above]
    assert verdict_on(sharp).furthest_off.accuracy_where_stated[0] == pytest.approx(expected)
    assert math.isnan(verdict_on(make_blurred(12.0)).furthest_off.accuracy_where_stated[0])  # hardly ever


def test_the_error_by_chance_holds_that_of_the_truth() -> None:
    """Labels of other draws from the same posterior: their ECE lies within the interval, about as often as promised."""
    truth = make_blurred(num_cases=160)
    inside = []
    for start in range(0, 160, 8):
        assessment = verdict_on(truth.take(range(start, start + 8)))
        low, high = assessment.by_chance
        inside.append(low <= assessment.pooled["ECE"] <= high)
    assert np.mean(inside) >= 0.75


def test_scores_split_in_two() -> None:
    """By hand for two bins; and calibration − discrimination + uncertainty is the score of the bins' means."""
    first = np.repeat([0.7, 0.3], 10)  # the probability of class 0
    truth = np.repeat([0, 1, 0, 1], [8, 2, 1, 9]).astype(np.uint8)
    found = scores(evaluate_case(np.stack([first, 1 - first])[:, None, None], truth[None, None]))
    # Shares 0.8 and 0.1 of class 0 against 0.7 and 0.3; 0.45 on the whole. Both classes are alike.
    assert found["Brier calibration"] == pytest.approx(2 * (0.1**2 + 0.2**2) / 2)
    assert found["Brier discrimination"] == pytest.approx(2 * (0.35**2 + 0.35**2) / 2)
    share, mean, base = np.array([[0.8, 0.1], [0.2, 0.9]]), np.array([[0.7, 0.3], [0.3, 0.7]]), np.array([0.45, 0.55])
    nll = -(share * np.log(mean)).sum() / 2
    uncertainty = -(base * np.log(base)).sum()
    assert found["NLL calibration"] - found["NLL discrimination"] + uncertainty == pytest.approx(nll)
    table = table_of("scores", compare_methods({"sharp": make_blurred(0.5), "true": make_blurred()}), "image").values()
    assert table.loc["sharp", "NLL calibration"] > 10 * table.loc["true", "NLL calibration"] >= 0
    assert table.loc["sharp", "NLL discrimination"] == pytest.approx(table.loc["true", "NLL discrimination"], rel=0.1)


def scores(counts: Counts, meaning: LabelMeaning | None = None) -> Any:
    """The row of a single case."""
    base = make_blurred(num_cases=1)
    result = counted_by(replace(base, counts=counts), meaning=meaning or base.meaning)
    return table_of("scores", compare_methods({"one": result}), "image").values().loc["one"]


def test_inside_and_outside_of_a_region_are_two_classes() -> None:
    p = np.random.default_rng(0).random((1, 1, 4, 20))
    y = (np.random.default_rng(1).random((1, 4, 20)) < p[0]).astype(np.uint8)
    region = evaluate_case(p, y, (p[0] > 0.5).astype(np.uint8), regions=[(1,)])
    classes = evaluate_case(np.concatenate([1 - p, p]), y)
    found, expected = scores(region, LabelMeaning.of_names({"background": 0, "disc": [1]}, [[1]])), scores(classes)
    for part in ("calibration", "discrimination"):
        assert found[f"NLL {part}"] == pytest.approx(expected[f"NLL {part}"])
        assert found[f"Brier {part}"] == pytest.approx(expected[f"Brier {part}"] / 2)  # (p − y)², of one side
    assert measure(region["image"])["Brier"] == pytest.approx(measure(classes["image"])["Brier"] / 2)
