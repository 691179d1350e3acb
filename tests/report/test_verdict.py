"""Sentences say what the numbers say."""

import re
from dataclasses import replace

import numpy as np
import pytest

from nnunet_nacl.evaluation import FolderResult, Settings
from nnunet_nacl.report import Comparison, compare, verdict
from nnunet_nacl.report._metrics import Metric, over_confidence
from nnunet_nacl.report._notes import missing_notes
from nnunet_nacl.report._statistics import Difference, differences, rank_by_scores
from nnunet_nacl.report._verdict import _at_dice, _told_apart, full_verdict, ranking_remark, standing_by
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


def test_the_answer_is_read_off_the_curves(comparison: Comparison) -> None:
    """By hand, from the tables: a line between the points of the bins on both sides of 90 %."""
    shares = {}
    for name in comparison.names:
        tables = comparison[name].result.pooled_tables("near").top
        count, hits, confidence = tables.count[0], tables.hits[0], tables.confidence[0]
        kept = count >= 0.001 * count.sum()
        sure, right = confidence[kept] / count[kept], hits[kept] / count[kept]
        above = int(np.searchsorted(sure, 0.9))
        weight = (0.9 - sure[above - 1]) / (sure[above] - sure[above - 1])
        shares[name] = f"{100 * ((1 - weight) * right[above - 1] + weight * right[above]):.0f} %"
    found = full_verdict(comparison)
    assert found.answer == (
        f"The confidences of sharp and soft cannot be believed: where sharp says 90 %, it is right {shares['sharp']} "
        f"of the time; soft, {shares['soft']}. These 8 cases do not tell whether those of right can be believed: "
        f"{shares['right']}."
    )
    assert verdict(comparison)[0] == found.answer


def test_whose_confidences_can_be_believed(blurred: dict[str, FolderResult]) -> None:
    """By the intervals of ECE near and its sign, and by how often a method is right where it says 90 %."""
    comparison = compare(blurred)
    assert NEAR.of(comparison["true"]).interval[1] < 0.01
    assert over_confidence("near").of(comparison["soft"]).interval[1] < -0.01
    assert over_confidence("near").of(comparison["sharp"]).interval[0] > 0.01
    assert re.fullmatch(
        r"The confidences of true can be believed: where it says 90 %, it is right (89|90|91) % of the time\. "
        r"Those of soft and sharp cannot: soft, 9\d %; sharp, [67]\d %\.",
        full_verdict(comparison).answer,
    )
    alone = full_verdict(compare({"sharp": blurred["sharp"]})).answer
    assert re.fullmatch(
        r"The confidences of sharp cannot be believed: where it says 90 %, it is right [67]\d % of the time\.", alone
    )
    two = full_verdict(compare({"sharp": blurred["sharp"], "true": blurred["true"]})).answer
    assert re.search(r"\. Those of sharp cannot: [67]\d %\.$", two)


def test_too_few_cases_to_believe_or_not() -> None:
    """Of two cases even the truth has an ECE above 0.01."""
    one, several = make_blurred(num_cases=1), make_blurred(num_cases=2)
    assert full_verdict(compare({"true": one})).answer.startswith(
        "One case does not tell whether the confidences of true can be believed: where it says 90 %, it is right "
    )
    assert NEAR.of(compare({"true": several})["true"]).interval[0] > 0.01
    assert full_verdict(compare({"true": several})).answer.startswith(
        "These 2 cases do not tell whether the confidences of true can be believed: where it says 90 %, "
    )


def test_how_far_off_with_the_sign(comparison: Comparison) -> None:
    told = full_verdict(comparison).summary[0]
    for name in comparison.names:
        pooled = comparison[name].result.pooled("near")
        assert f"{name} by {100 * pooled['ECE']:.1f}" in told
        if abs(pooled["over_confidence"]) >= 0.005:
            side = "too sure" if pooled["over_confidence"] > 0 else "not sure enough"
            assert f"{name} by {100 * pooled['ECE']:.1f} ({side})" in told


def test_of_many_methods_the_baseline_and_the_best_are_named(results: dict[str, FolderResult]) -> None:
    five = {**results, "sharper": make_result(0.2), "softer": make_result(3.0)}
    answer = full_verdict(compare(five)).answer
    assert answer.startswith("The confidences of sharp cannot be believed: ")
    assert "whether those of right can be believed" in answer
    assert not any(name in answer for name in ("soft", "sharper"))


def test_who_hardly_ever_says_it() -> None:
    """A model so soft that no bin around 90 % holds a thousandth of the voxels."""
    soft, true = make_blurred(12.0), make_blurred()
    answer = full_verdict(compare({"true": true, "soft": soft})).answer
    assert re.fullmatch(
        r"The confidences of true can be believed: where it says 90 %, it is right \d\d % of the time\. "
        r"Those of soft cannot: it hardly ever says 90 %\.",
        answer,
    )
    alone = full_verdict(compare({"soft": soft})).answer
    assert alone == "The confidences of soft cannot be believed: it hardly ever says 90 %."


def test_two_methods_are_one_difference(blurred: dict[str, FolderResult]) -> None:
    comparison = compare({"sharp": blurred["sharp"], "true": blurred["true"]})
    gaps = {metric: differences(replace(comparison, baseline="true"), metric)["sharp"] for metric in (NLL, NEAR)}
    by = [
        f"by {gap.mean:.3f} ({gap.interval[0]:.3f} to {gap.interval[1]:.3f}) in {metric.title}"
        for metric, gap in gaps.items()
    ]
    assert full_verdict(comparison).summary[1:] == [f"true is better than sharp {by[0]} and {by[1]}, at the same Dice."]


@pytest.mark.parametrize(
    ("gap", "told"),
    [
        (Difference(0.8, 0.8, 0.0, (0.0, 0.0), 1.0, 1.0, can_show=True), "at the same Dice"),
        (Difference(0.8, 0.8, 0.0004, (0.0003, 0.0005), 0.01, 0.01, can_show=True), "at the same Dice"),
        (
            Difference(0.804, 0.8, 0.004, (0.001, 0.007), 0.01, 0.01, can_show=True),
            "at a Dice 0.004 higher (told apart, p = 0.010)",
        ),
        (
            Difference(0.796, 0.8, -0.004, (-0.01, 0.002), 0.16, 0.16, can_show=True),
            "at a Dice 0.004 lower (not told apart, p = 0.160)",
        ),
        (
            Difference(0.79, 0.8, -0.01, (-0.02, -0.001), 0.25, 0.25, can_show=False),
            "at a Dice 0.010 lower (too few cases to test)",
        ),
    ],
)
def test_at_what_dice(gap: Difference, told: str) -> None:
    assert _at_dice(gap) == told


def test_the_best_against_the_next_and_the_baseline(comparison: Comparison) -> None:
    found = full_verdict(comparison)
    others = replace(comparison, baseline="right")
    nll, near = (differences(others, metric) for metric in (NLL, NEAR))
    first, second, third = found.details
    value = {name: NLL.of(comparison[name]).value for name in comparison.names}
    following = min(("sharp", "soft"), key=value.__getitem__)
    assert first.startswith(
        f"right gives the best probabilities: NLL per foreground voxel {text_of(comparison, 'right', NLL)}."
    )
    assert f" Next is {following}" in first
    for name in {following, "sharp"}:
        gap = nll[name]
        assert f": {text_of(comparison, name, NLL)}, {NLL.format_difference(gap.mean)} (" in first
    assert f"significant (p = {nll['sharp'].p_holm:.3f})" in first
    assert f"The Dice of right is {text_of(comparison, 'right', DICE)[:5]}, that of sharp " in first
    assert second.startswith(
        f"Near the structures, right is calibrated best: ECE {text_of(comparison, 'right', NEAR)}."
    )
    assert NEAR.format_difference(near["sharp"].mean) in second
    assert "On the whole, " in second
    in_short = found.summary[-1]
    assert in_short.startswith(
        f"right gives the best probabilities (NLL per foreground voxel {value['right']:.3f}; next is "
    )
    assert "Near the structures, right is calibrated best (ECE 0." in in_short
    means = [comparison["right"].result.mean("union", name) for name in ("ECE", "ECE_expected")]
    assert third.startswith("By the paper's ECE over the foreground (")
    assert f"ECE over the union ({means[0]:.3f}; {means[1]:.3f} if perfectly calibrated)" in third
    assert third.endswith(") right is first, too.")
    assert verdict(comparison) == [found.answer, *found.summary, *found.details]


def test_the_baseline_may_be_the_best(results: dict[str, FolderResult]) -> None:
    first, second = full_verdict(compare(results, baseline="right")).details[:2]
    assert first.startswith("right gives the best probabilities: NLL per foreground voxel ")
    assert "The Dice of soft is " in first or "The Dice of sharp is " in first
    assert second.startswith("Near the structures, right is calibrated best: ECE ")
    assert "Dice" not in second


def test_a_winner_is_told_apart_from_all_others() -> None:
    """Against the next, not against the baseline, which may be far behind."""
    close = {"far": make_result(0.2), "one": make_result(1.0), "other": make_result(0.98)}
    comparison = compare(close)
    standing = standing_by(comparison, NLL)
    assert standing is not None
    assert set(standing.leaders) == {"one", "other"}
    assert differences(comparison, NLL)[standing.best].is_significant  # against the baseline
    found = full_verdict(comparison)
    names = " and ".join(standing.leaders)
    said = f"By their probabilities, {names} are not told apart by these 8 cases; the others are behind"
    assert said in found.summary[-1]
    assert found.details[0].startswith(said)
    assert "best" not in found.summary[-1].split(". ")[0]


def test_a_test_that_points_the_other_way_names_no_winner() -> None:
    """A lower sum because of one case, while most cases are higher: significant, but the interval holds 0."""
    gap = Difference(1.0, 1.1, 0.1, (-0.2, 0.4), 0.01, 0.01, can_show=True)
    assert not _told_apart(gap)
    assert _told_apart(replace(gap, interval=(0.05, 0.4)))
    assert not _told_apart(replace(gap, interval=(0.05, 0.4), p_holm=0.2))


@pytest.mark.parametrize(("temperature", "direction"), [(0.4, "over"), (2.5, "under")])
def test_one_method(temperature: float, direction: str) -> None:
    comparison = compare({"alone": make_result(temperature)})
    found = full_verdict(comparison)
    first, second = found.details[:2]
    error = comparison["alone"].result.pooled("near")["ECE"]
    assert found.answer.startswith("The confidences of alone cannot be believed: where it says 90 %, it is right ")
    assert len(found.summary) == 1
    assert first == (
        f"NLL per foreground voxel {text_of(comparison, 'alone', NLL)} for alone. "
        f"Dice is {text_of(comparison, 'alone', DICE)}."
    )
    assert second.startswith(
        f"Near the structures, the confidences of alone are off by {100 * error:.1f} percentage points on average: ECE "
    )
    assert f"On the whole, alone is {direction}-confident by " in second


def test_better_nll_and_worse_ece_over_the_union(blurred: dict[str, FolderResult]) -> None:
    """The paper's metrics prefer a posterior that is made softer than the one that the labels were drawn from."""
    union = {name: result.mean("union", "ECE") for name, result in blurred.items()}
    expected = blurred["soft"].mean("union", "ECE_expected")
    assert union["soft"] < union["true"] < expected
    first, second, third, fourth = full_verdict(compare(blurred)).details
    assert first.startswith("true gives the best probabilities: NLL per foreground voxel ")
    assert ", significant (p" in first
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


def test_why_the_ranking_has_another_first(comparison: Comparison) -> None:
    ranking = rank_by_scores([comparison])
    assert ranking is not None
    first = replace(ranking, overall=np.array([1.0, 2.0, 3.0]))  # sharp first
    remark = ranking_remark(comparison, first)
    assert remark.startswith(
        "The ranking puts sharp first, the verdict, by NLL per foreground voxel, right. Ranks count Dice"
    )
    assert ranking_remark(comparison, replace(ranking, overall=np.array([2.0, 1.0, 3.0]))) == ""
    same = compare({"one": make_result(0.4), "copy": make_result(0.4), "far": make_result(0.1)})
    standing = rank_by_scores([same])
    assert standing is not None
    assert ranking_remark(same, standing) == ""
    told = ranking_remark(same, replace(standing, overall=np.array([1.0, 2.0, 3.0])))
    assert told.startswith(
        "The ranking puts one first; by NLL per foreground voxel the cases do not tell one and copy apart."
    )


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
    ece = differences(replace(comparison, baseline="right"), ECE)["sharp"]
    first, second = verdict(comparison)
    assert full_verdict(comparison).answer == ""
    assert first.startswith(f"Over the foreground, right has the lowest ECE: ECE {text_of(comparison, 'right', ECE)}.")
    assert f": {text_of(comparison, 'sharp', ECE)}, {ECE.format_difference(ece.mean)} (" in first
    assert f"significant (p = {ece.p_holm:.3f})" in first
    assert f"The Dice of right is {text_of(comparison, 'right', DICE)[:5]}, that of sharp " in first
    assert second.startswith("Over the union, right has the lowest ECE: ECE ")
    assert "Dice" not in second
    (note,) = missing_notes(comparison)
    assert note == (
        "sharp, right and soft were not evaluated over the voxel sets near and image. The verdict rests on voxels "
        "chosen by their label, where an under-confident model can score better than a perfectly calibrated one. To "
        "evaluate again: "
        + "; ".join(
            f"nnunet_nacl evaluate labelsTs predictions/{t} -djfile dataset.json --surface --overwrite"
            for t in (0.4, 1.0, 1.8)
        )
    )
    assert missing_notes(compare({"one": make_result(cases=NAMED[:2])})) == []


def test_one_of_them_was_evaluated_before(results: dict[str, FolderResult], before: dict[str, FolderResult]) -> None:
    comparison = compare({"sharp": before["sharp"], "right": results["right"]})
    assert comparison.voxels == ["foreground", "union"]
    assert verdict(comparison)[0].startswith("Over the foreground, right has the lowest ECE: ECE ")
    (note,) = missing_notes(comparison)
    assert note.startswith("sharp was not evaluated over the voxel sets near and image. The verdict rests on ")
    assert note.endswith(
        "To evaluate again: nnunet_nacl evaluate labelsTs predictions/0.4 -djfile dataset.json --surface --overwrite"
    )


def test_near_alone() -> None:
    near = Settings(voxels=("near",))
    comparison = compare({name: make_result(t, settings=near) for name, t in (("sharp", 0.4), ("soft", 1.8))})
    (note,) = missing_notes(comparison)
    assert note.startswith("sharp and soft were not evaluated over the voxel set image. To evaluate again: ")
    assert "--voxels" not in note


def test_a_difference_that_could_be_chance() -> None:
    one, other = make_result(1.0, cases=NAMED[:4]), make_result(0.6, cases=NAMED[:4])
    found = full_verdict(compare({"other": other, "one": one}))
    first, second = found.details[:2]
    assert first.startswith(
        "By their probabilities, one and other are not told apart by these 4 cases, which are too few for a test: "
    )
    assert first.count("; too few cases to test") == 2  # p is at least 2 / 2^4, and "not significant" would mislead
    assert second.count("; too few cases to test") == 1
    assert "significant (" not in first + second
    assert "best" not in found.summary[-1]
    close = {"other": make_result(0.95), "one": make_result(1.0)}
    text = full_verdict(compare(close)).details[0]
    assert " are not told apart by these 8 cases: NLL per foreground voxel " in text
    assert "not significant (p = " in text


def test_one_case() -> None:
    one, other = make_result(1.0, cases=NAMED[:1]), make_result(0.4, cases=NAMED[:1])
    found = full_verdict(compare({"other": other, "one": one}))
    assert found.details[0].startswith("By their probabilities, one and other are not told apart by one case: ")
    assert "; too few cases to test. The Dice of one is " in found.details[0]


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
    assert last.startswith(
        "By the class-wise error (CECE) another method has the lowest value: over the foreground sharp (0."
    )
    assert np.isfinite(float(last.split("sharp (")[1][:5]))


def test_equal_to_the_baseline() -> None:
    result = make_result(0.4)
    found = full_verdict(compare({"copy": result, "original": result}, baseline="original"))
    for judged, paragraph in zip(("probabilities", "calibration near the structures"), found.details, strict=False):
        assert paragraph.startswith(f"By their {judged}, original and copy are not told apart by these 8 cases: ")
        assert "Next is copy: " in paragraph
        assert ", 0.000 (0.000 to 0.000), not significant (p = 1.000)" in paragraph
    assert found.details[2].endswith(" original is first, too.")
    assert len(found.details) == 3
