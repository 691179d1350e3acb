"""Sentences say what the figures say."""

from dataclasses import replace

import numpy as np
import pytest

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.report import Comparison, compare, differences, verdict
from nnunet_nacl.report._metrics import Metric, interval_of, mean_over_cases
from tests.report.generated import NAMED, make_result

ECE, DICE = Metric("ECE", "foreground"), Metric("Dice", higher_is_better=True)


def text_of(comparison: Comparison, name: str, metric: Metric) -> str:
    values = metric.values(comparison[name])
    low, high = interval_of(values)
    return f"{mean_over_cases(values):.3f} ({low:.3f} to {high:.3f})"


def test_the_best_against_the_baseline(comparison: Comparison) -> None:
    ece, dice = differences(comparison, ECE)["right"], differences(comparison, DICE)["right"]
    first = verdict(comparison)[0]
    assert first.startswith(
        f"Over the foreground, right is calibrated best: ECE {text_of(comparison, 'right', ECE)}, against "
        f"{text_of(comparison, 'sharp', ECE)} for sharp, the baseline: {ECE.format_difference(ece.mean)} ("
    )
    assert f"significant (p = {ece.p_holm:.3f})" in first
    assert "not significant" not in first.split("Its Dice")[0]
    assert (
        f"Its Dice is {text_of(comparison, 'right', DICE)[:5]} against {text_of(comparison, 'sharp', DICE)[:5]}"
        in first
    )
    assert ("not significant" in first.split("Its Dice")[1]) == (dice.p_holm >= 0.05)
    second = verdict(comparison)[1]
    assert second.startswith("Over the union, right is calibrated best: ECE ")
    assert "Dice" not in second


def test_no_better_than_the_baseline(results: dict[str, FolderResult]) -> None:
    comparison = compare(results, baseline="right")
    first = verdict(comparison)[0]
    assert first.startswith("Over the foreground, no method is calibrated better than right, the baseline: ECE ")
    runner_up = min(("sharp", "soft"), key=lambda name: mean_over_cases(ECE.values(comparison[name])))
    assert f"Next is {runner_up}: ECE {text_of(comparison, runner_up, ECE)}" in first
    assert f"Its Dice is {text_of(comparison, runner_up, DICE)[:5]} against" in first


@pytest.mark.parametrize(("temperature", "direction"), [(0.4, "over"), (2.5, "under")])
def test_one_method(temperature: float, direction: str) -> None:
    comparison = compare({"alone": make_result(temperature)})
    first = verdict(comparison)[0]
    error = mean_over_cases(ECE.values(comparison["alone"]))
    assert f"the confidences of alone are off by {100 * error:.1f} percentage points on average" in first
    assert f"On the whole, it is {direction}-confident by " in first
    assert f"Dice is {text_of(comparison, 'alone', DICE)}" in first


def test_a_difference_that_could_be_chance() -> None:
    one, other = make_result(1.0, cases=NAMED[:4]), make_result(0.6, cases=NAMED[:4])
    first = verdict(compare({"other": other, "one": one}))[0]
    assert "one is calibrated best" in first
    assert first.count("; too few cases to test") == 2  # p is at least 2 / 2^4, and "not significant" would mislead
    assert "significant (" not in first
    close = {"other": make_result(0.95), "one": make_result(1.0)}
    assert "not significant (p = " in verdict(compare(close))[0]


def test_one_case() -> None:
    one, other = make_result(1.0, cases=NAMED[:1]), make_result(0.4, cases=NAMED[:1])
    assert "; too few cases to test. Its Dice" in verdict(compare({"other": other, "one": one}))[0]


def test_no_foreground_at_all() -> None:
    results = {name: make_result(t, empty=NAMED) for name, t in (("one", 1.0), ("other", 0.5))}
    assert verdict(compare(results)) == [
        "Calibration over the foreground is not defined: no case has such voxels.",
        "Calibration over the union is not defined: no case has such voxels.",
    ]


def test_another_winner_by_class(results: dict[str, FolderResult]) -> None:
    """CECE is made to have another order by giving two methods each other's class tables."""
    swapped = {}
    for name, giver in (("sharp", "right"), ("right", "sharp")):
        cases = []
        for case, other in zip(results[name].cases, results[giver].cases, strict=True):
            found = {
                voxels: replace(tables, classwise=other.result.calibration[voxels].classwise)
                for voxels, tables in case.result.calibration.items()
            }
            cases.append(replace(case, result=replace(case.result, calibration=found)))
        swapped[name] = replace(results[name], cases=cases)
    last = verdict(compare(swapped))[-1]
    assert last.startswith("By the class-wise error (CECE) another method is best: over the foreground sharp (0.")
    assert np.isfinite(float(last.split("sharp (")[1][:5]))


def test_equal_to_the_baseline() -> None:
    result = make_result(0.4)
    first = verdict(compare({"copy": result, "original": result}, baseline="original"))[0]
    assert "no method is calibrated better than original, the baseline" in first
    assert ": 0.000 (0.000 to 0.000), not significant (p = 1.000)" in first
    assert len(verdict(compare({"copy": result, "original": result}, baseline="original"))) == 2  # none on CECE
