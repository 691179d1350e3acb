"""Sentences say what the numbers say."""

from dataclasses import replace

import numpy as np
import pytest

from nnunet_nacl.evaluation import FolderResult, Settings
from nnunet_nacl.report import Comparison, compare, verdict
from nnunet_nacl.report._metrics import Metric
from nnunet_nacl.report._statistics import differences
from nnunet_nacl.report._verdict import missing_notes
from tests.report.generated import NAMED, as_before, make_blurred, make_result

ECE, DICE = Metric("ECE", "foreground"), Metric("Dice", higher_is_better=True)
NLL, NEAR = Metric("NLL_per_foreground", "image"), Metric("ECE", "near")


@pytest.fixture(scope="module")
def before(results: dict[str, FolderResult]) -> dict[str, FolderResult]:
    """Evaluated before there was near."""
    return {name: as_before(result) for name, result in results.items()}


@pytest.fixture(scope="module")
def blurred() -> dict[str, FolderResult]:
    """Labels drawn from the posterior of "true": too soft, right, too sharp."""
    return {"soft": make_blurred(2.0), "true": make_blurred(1.0), "sharp": make_blurred(0.5)}


def text_of(comparison: Comparison, name: str, metric: Metric) -> str:
    estimate = metric.of(comparison[name])
    low, high = estimate.interval
    return f"{estimate.value:.3f} ({low:.3f} to {high:.3f})"


def test_the_best_against_the_baseline(comparison: Comparison) -> None:
    nll, near, dice = (differences(comparison, metric)["right"] for metric in (NLL, NEAR, DICE))
    first, second, third = verdict(comparison)
    assert first.startswith(
        "right gives the best probabilities: NLL per foreground voxel "
        f"{text_of(comparison, 'right', NLL)}, against {text_of(comparison, 'sharp', NLL)} for sharp, the baseline: "
        f"{NLL.format_difference(nll.mean)} ("
    )
    assert f"), significant (p = {nll.p_holm:.3f}). Its Dice is {text_of(comparison, 'right', DICE)[:5]}" in first
    assert f" against {text_of(comparison, 'sharp', DICE)[:5]}: " in first
    assert ("not significant" in first.split("Its Dice")[1]) == (dice.p_holm >= 0.05)
    assert second.startswith(
        f"Near the structures, right is calibrated best: ECE {text_of(comparison, 'right', NEAR)}, against "
        f"{text_of(comparison, 'sharp', NEAR)} for sharp, the baseline: {NEAR.format_difference(near.mean)} ("
    )
    gaps = [100 * comparison[name].result.pooled("near")["over_confidence"] for name in ("right", "sharp")]
    assert second.endswith(
        f"On the whole, it is over-confident by {gaps[0]:.1f} percentage points and sharp is over-confident by "
        f"{gaps[1]:.1f} percentage points."
    )
    means = [comparison["right"].result.mean("union", name) for name in ("ECE", "ECE_expected")]
    assert third.startswith("By the paper's ECE over the foreground (")
    assert f"ECE over the union ({means[0]:.3f}; {means[1]:.3f} if perfectly calibrated)" in third
    assert third.endswith(") right is first, too.")


def test_no_better_than_the_baseline(results: dict[str, FolderResult]) -> None:
    comparison = compare(results, baseline="right")
    first, second = verdict(comparison)[:2]
    assert first.startswith(
        "No method gives better probabilities than right, the baseline: NLL per foreground voxel "
        f"{text_of(comparison, 'right', NLL)}. Next is soft: NLL per foreground voxel "
        f"{text_of(comparison, 'soft', NLL)}, against "
    )
    assert f"Its Dice is {text_of(comparison, 'soft', DICE)[:5]} against" in first
    assert second.startswith("Near the structures, no method is calibrated better than right, the baseline: ECE ")
    assert "Dice" not in second


@pytest.mark.parametrize(("temperature", "direction"), [(0.4, "over"), (2.5, "under")])
def test_one_method(temperature: float, direction: str) -> None:
    comparison = compare({"alone": make_result(temperature)})
    first, second = verdict(comparison)[:2]
    error = comparison["alone"].result.pooled("near")["ECE"]
    assert first == (
        f"NLL per foreground voxel {text_of(comparison, 'alone', NLL)} for alone. "
        f"Dice is {text_of(comparison, 'alone', DICE)}."
    )
    assert second.startswith(
        f"Near the structures, the confidences of alone are off by {100 * error:.1f} percentage points on average: ECE "
    )
    assert f"On the whole, it is {direction}-confident by " in second


def test_better_nll_and_worse_ece_over_the_union(blurred: dict[str, FolderResult]) -> None:
    """The paper's metrics prefer a posterior that is made softer than the one that the labels were drawn from."""
    union = {name: result.mean("union", "ECE") for name, result in blurred.items()}
    expected = blurred["soft"].mean("union", "ECE_expected")
    assert union["soft"] < union["true"] < expected
    first, second, third, fourth = verdict(compare(blurred))
    assert first.startswith("true gives the best probabilities: NLL per foreground voxel ")
    assert "), significant (p" in first
    assert second.startswith("Near the structures, true is calibrated best: ECE 0.00")
    assert "On the whole, soft is under-confident by 8." in second
    soft, sharp, true = third.split(" By ")
    assert soft.startswith("By the paper's ECE over the foreground (0.")
    assert soft.endswith(
        f" and ECE over the union ({union['soft']:.3f}; {expected:.3f} if perfectly calibrated) soft would be first: "
        "voxels chosen by their label prefer under-confident models."
    )
    # Its error is above what is expected of it.
    assert sharp.startswith("the paper's CECE over the foreground (0.")
    assert sharp.endswith(") sharp would be first: these voxels are chosen by their label.")
    assert true.startswith("the paper's CECE over the union (0.")
    assert true.endswith(" if perfectly calibrated) true is first, too.")
    # The truth's ECE is about what is expected of it, and by chance a little below.
    assert fourth.startswith("A method whose ECE is below what it would be if the method were perfectly calibrated is ")
    assert fourth.endswith(f"; over the union soft ({union['soft']:.3f}; {expected:.3f}).")
    assert "true" not in fourth
    assert "sharp" not in fourth


def test_below_its_expected_value(blurred: dict[str, FolderResult]) -> None:
    """Said of a method alone, and where near and image were not evaluated."""
    means = [blurred["soft"].mean("foreground", name) for name in ("ECE", "ECE_expected")]
    said = f"is under-confident: over the foreground soft ({means[0]:.3f}; {means[1]:.3f}); over the union soft (0."
    assert said in verdict(compare({"soft": blurred["soft"]}))[-1]
    chosen = {"soft": make_blurred(2.0, settings=Settings(voxels=("foreground", "union")))}
    assert said in verdict(compare(chosen))[-1]
    for name in ("true", "sharp"):
        assert not any("under-confident:" in one for one in verdict(compare({name: blurred[name]})))


def test_before_there_was_near(before: dict[str, FolderResult]) -> None:
    comparison = compare(before)
    ece, dice = differences(comparison, ECE)["right"], differences(comparison, DICE)["right"]
    first, second = verdict(comparison)
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
    assert second.startswith("Over the union, right is calibrated best: ECE ")
    assert "Dice" not in second
    (note,) = missing_notes(comparison)
    assert note == (
        "Not every method was evaluated over the voxel sets near and image. The verdict rests on voxels chosen by "
        "their label, where an under-confident model can score better than a perfectly calibrated one. Evaluate again, "
        "with the default voxel sets."
    )
    assert missing_notes(compare({"one": make_result(cases=NAMED[:2])})) == []


def test_one_of_them_was_evaluated_before(results: dict[str, FolderResult], before: dict[str, FolderResult]) -> None:
    comparison = compare({"sharp": before["sharp"], "right": results["right"]})
    assert comparison.voxels == ["foreground", "union"]
    assert verdict(comparison)[0].startswith("Over the foreground, right is calibrated best: ECE ")


def test_a_difference_that_could_be_chance() -> None:
    one, other = make_result(1.0, cases=NAMED[:4]), make_result(0.6, cases=NAMED[:4])
    first, second = verdict(compare({"other": other, "one": one}))[:2]
    assert "one gives the best probabilities" in first
    assert first.count("; too few cases to test") == 2  # p is at least 2 / 2^4, and "not significant" would mislead
    assert second.count("; too few cases to test") == 1
    assert "significant (" not in first + second
    close = {"other": make_result(0.95), "one": make_result(1.0)}
    assert "not significant (p = " in verdict(compare(close))[0]


def test_one_case() -> None:
    one, other = make_result(1.0, cases=NAMED[:1]), make_result(0.4, cases=NAMED[:1])
    assert "; too few cases to test. Its Dice" in verdict(compare({"other": other, "one": one}))[0]


def test_no_foreground_at_all() -> None:
    results = {name: make_result(t, empty=NAMED) for name, t in (("one", 1.0), ("other", 0.5))}
    assert verdict(compare(results)) == [
        "NLL per foreground voxel is not defined: no case has foreground.",
        "Calibration near the structures is not defined: no case has such voxels.",
    ]
    assert verdict(compare({name: as_before(result) for name, result in results.items()})) == [
        "Calibration over the foreground is not defined: no case has such voxels.",
        "Calibration over the union is not defined: no case has such voxels.",
    ]


def test_another_winner_by_class(before: dict[str, FolderResult]) -> None:
    """CECE is made to have another order by giving two methods each other's class tables."""
    swapped = {}
    for name, giver in (("sharp", "right"), ("right", "sharp")):
        cases = []
        for case, other in zip(before[name].cases, before[giver].cases, strict=True):
            found = {
                voxels: replace(tables, classwise=other.result.calibration[voxels].classwise)
                for voxels, tables in case.result.calibration.items()
            }
            cases.append(replace(case, result=replace(case.result, calibration=found)))
        swapped[name] = replace(before[name], cases=cases)
    last = verdict(compare(swapped))[-1]
    assert last.startswith("By the class-wise error (CECE) another method is best: over the foreground sharp (0.")
    assert np.isfinite(float(last.split("sharp (")[1][:5]))


def test_equal_to_the_baseline() -> None:
    result = make_result(0.4)
    paragraphs = verdict(compare({"copy": result, "original": result}, baseline="original"))
    assert paragraphs[0].startswith("No method gives better probabilities than original, the baseline")
    assert "no method is calibrated better than original, the baseline" in paragraphs[1]
    for paragraph in paragraphs[:2]:
        assert ": 0.000 (0.000 to 0.000), not significant (p = 1.000)" in paragraph
    assert paragraphs[2].endswith(" original is first, too.")
    assert len(paragraphs) == 3
