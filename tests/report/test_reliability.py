"""What is said of the confidences: too sure or not, ECE by chance, scores split in two."""

import math
from dataclasses import replace

import numpy as np
import pytest

from nnunet_nacl.metrics import Activation, BinCounts
from nnunet_nacl.report import Metric, Verdict, compare, error_by_chance, judge, split_scores
from tests.report.generated import make_blurred


def test_what_cases_tell() -> None:
    assert judge(compare({"true": make_blurred(num_cases=1)}), "true", "near").verdict is Verdict.UNTOLD
    # An ECE near of .027 (.025 to .029) is told.
    mild = compare({"mild": make_blurred(0.8, num_cases=40)})
    metric = Metric("ECE", "near").of(mild["mild"])
    assert 0.01 < metric.value < 0.04
    assert judge(mild, "mild", "near").verdict is Verdict.TOO_SURE


def test_the_accuracy_where_it_says_90_by_hand() -> None:
    """A line between the points of the bins on both sides of 90 %."""
    comparison = compare({"sharp": make_blurred(0.5)})
    tables = comparison["sharp"].result.all_voxels["near"].top
    count, hits, confidence = tables.count[0], tables.hits[0], tables.confidence[0]
    kept = count >= 0.001 * count.sum()
    sure, right = confidence[kept] / count[kept], hits[kept] / count[kept]
    above = int(np.searchsorted(sure, 0.9))
    weight = (0.9 - sure[above - 1]) / (sure[above] - sure[above - 1])
    expected = (1 - weight) * right[above - 1] + weight * right[above]
    assert judge(comparison, "sharp", "near").accuracy == pytest.approx(expected)
    assert math.isnan(judge(compare({"soft": make_blurred(12.0)}), "soft", "near").accuracy)  # hardly ever


def test_the_error_by_chance_holds_that_of_the_truth() -> None:
    """Labels of other draws from the same posterior: their ECE lies within the interval, about as often as promised."""
    truth = make_blurred(num_cases=160)
    inside = []
    for start in range(0, 160, 8):
        comparison = compare({"true": replace(truth, cases=truth.cases[start : start + 8])})
        low, high = error_by_chance(comparison, "true", "near")
        inside.append(low <= Metric("ECE", "near").of(comparison["true"]).value <= high)
    assert np.mean(inside) >= 0.75


def test_scores_split_in_two() -> None:
    """By hand for two bins; and calibration − discrimination + uncertainty is the score of the bins' means."""
    count, hits = np.array([[10, 10], [10, 10]]), np.array([[8, 1], [2, 9]])
    sure = np.array([[7.0, 3.0], [3.0, 7.0]])
    tables = BinCounts(count, hits, sure, np.zeros(2, int))
    found = split_scores(tables, 2, Activation.SOFTMAX)
    # Shares 0.8 and 0.1 of class 0 against 0.7 and 0.3; 0.45 on the whole. Both classes are alike.
    assert found["Brier calibration"] == pytest.approx(2 * (0.1**2 + 0.2**2) / 2)
    assert found["Brier discrimination"] == pytest.approx(2 * (0.35**2 + 0.35**2) / 2)
    share, mean, base = hits / count, sure / count, hits.sum(1, keepdims=True) / 20
    nll = -(share * np.log(mean)).sum() / 2
    uncertainty = -(base * np.log(base)).sum()
    assert found["NLL calibration"] - found["NLL discrimination"] + uncertainty == pytest.approx(nll)
    inside = split_scores(tables[[0]], 1, Activation.SIGMOID)  # inside and outside of one region: the same two classes
    assert inside == pytest.approx(found)
    comparison = compare({"sharp": make_blurred(0.5), "true": make_blurred()})
    sharp, true = (
        split_scores(comparison[name].bins("image", "classwise").sum(), 2, Activation.SOFTMAX)
        for name in ("sharp", "true")
    )
    assert sharp["NLL calibration"] > 10 * true["NLL calibration"] >= 0
    assert sharp["NLL discrimination"] == pytest.approx(true["NLL discrimination"], rel=0.1)
