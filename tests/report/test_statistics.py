"""Estimates, paired tests and orders: SciPy and statsmodels, hand-computed cases, cases added up."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import Estimate, Settings, each_column, measure
from nnunet_nacl.paper.report._ranks import FIRST, rank_by_paper
from nnunet_nacl.report import DICE, Comparison, Metric, compare_methods
from nnunet_nacl.report._statistics import Difference, differences
from tests.report.generated import NAMED, make_result, table_of, twice, with_dice

ECE = Metric("ECE", "foreground")


def differences_in(comparison: Comparison, metric: Metric) -> dict[str, Difference]:
    return differences(comparison.estimates[metric])


def compared(*gaps: Sequence[float]) -> list[Difference]:
    """Differences in Dice of methods whose cases have these gaps to a baseline of 0."""
    results = {f"{number}": with_dice(np.array(own)[:, None]) for number, own in enumerate(gaps)}
    base = with_dice(np.zeros((len(gaps[0]), 1)))
    return list(differences_in(compare_methods({"base": base, **results}), DICE).values())


@pytest.mark.parametrize("size", [1, 2, 7])
def test_holm_equals_statsmodels(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # statsmodels does it in each call, which takes a second
    for seed in range(2):
        untested = [0.1, *[np.nan] * 6]  # a test not made does not count
        gaps = np.random.default_rng(seed).normal(0.5, 1, (size, 7)).round(1)
        found = compared(untested, *gaps)
        assert np.isnan(found[0].p_holm)
        expected = multipletests([compared(own)[0].p_holm for own in gaps], method="holm")[1]
        np.testing.assert_allclose([one.p_holm for one in found[1:]], expected, atol=1e-12)


def test_wilcoxon_by_hand() -> None:
    # 5 differences, all positive: 2 of the 2^5 signs are as extreme
    few, same = compared([0.1, np.nan, 0.2, 0.3, 0.4, 0.5], [0.0] * 6)
    assert few.p_holm == 2 * 2 / 32
    assert same.p_holm == 1
    assert compared([0.0] * 20 + [0.1, 0.2, 0.3, 0.4, 0.5])[0].p_holm == 2 / 32  # equal cases say nothing


def pooled_error(gaps: np.ndarray, sizes: np.ndarray) -> Estimate:
    """ECE of bins whose gaps are (cases, M), pooled over cases of these sizes."""

    def pooled(weights: np.ndarray) -> np.ndarray:
        return np.abs(weights @ gaps).sum(1) / (weights @ sizes)

    return Estimate(pooled, np.arange(len(sizes)), np.ones(len(sizes), bool))


def test_six_cases_seldom_tell_equal_methods_apart_by_a_pooled_metric() -> None:
    """In 5 % of studies; by the shares of resamples on either side of 0, in 11 %."""
    generator = np.random.default_rng(0)
    told = 0
    for _ in range(400):
        sizes = generator.lognormal(0, 1, 6)
        shared, *own = generator.normal(0.03, 0.05, (3, 6, 1))
        gaps = [sizes[:, None] * (shared + one + generator.normal(0, 0.05, (6, 10))) for one in own]
        estimates = {str(number): pooled_error(each, sizes) for number, each in enumerate(gaps)}
        told += differences(estimates)["1"].is_significant()
    assert 0.02 < told / 400 < 0.07


def test_a_difference_over_the_cases(comparison: Comparison) -> None:
    found = differences_in(comparison, ECE)
    assert list(found) == ["right", "soft"]
    by_case = comparison.over("foreground").by_case[ECE]
    base, right = (by_case[name] for name in ("sharp", "right"))
    assert found["right"].value == pytest.approx(np.mean(right - base), abs=1e-12)
    p = stats.wilcoxon(right, base).pvalue
    assert p == 2 / 2**8
    assert found["right"].p_holm == pytest.approx(2 * p)
    assert found["right"].is_significant()
    assert comparison.estimates[ECE] is comparison.estimates[ECE]  # made once


def test_means_over_structures_of_means_over_cases() -> None:
    nan = float("nan")
    found = compare_methods({"one": with_dice([[0.5, 0.2], [0.7, nan], [nan, nan]])}).estimates[DICE]["one"]
    assert found.value == pytest.approx((0.6 + 0.2) / 2)
    np.testing.assert_allclose(found.by_case, [0.35, 0.7, nan])
    np.testing.assert_allclose(found.resampled(np.array([[2.0, 1, 0], [0, 1, 2]])), [((1.0 + 0.7) / 3 + 0.2) / 2, 0.7])
    one = compare_methods({"one": with_dice([[0.5], [nan]])}).estimates[DICE]["one"]
    assert np.isnan(one.interval).all()  # of fewer than two cases


def test_who_is_told_apart() -> None:
    nll = Metric("NLL_per_foreground", "image")
    found = compare_methods({"far": make_result(0.2), "one": make_result(1.0), "other": make_result(0.98)}).order_by(
        nll
    )
    assert (set(found.names), found.behind) == ({"one", "other", "far"}, ["far"])
    few = [f"case_0{number}" for number in range(4)]  # p is at least 2 / 2^4
    found = compare_methods({"one": make_result(1.0, cases=few), "other": make_result(0.4, cases=few)}).order_by(nll)
    assert (found.names, found.behind) == (["one", "other"], [])
    assert compare_methods({"one": make_result(empty=few, cases=few)}).order_by(nll).names == []
    # A lower sum because of one case, while most are higher: significant, but the interval holds 0.
    (one_case,) = compared([0.01 + 0.001 * number for number in range(11)] + [-0.5])
    assert one_case.value < 0
    assert one_case.p_holm < 0.05
    assert not one_case.is_significant()
    # Most are higher, but the mean, over many cases, is lower
    (most,) = compared([0.01 + 0.0001 * number for number in range(45)] + [-0.8] * 5)
    assert most.value < most.interval[1] < 0
    assert most.p_holm < 0.05
    assert not most.is_significant()


def test_better_in_the_table_is_not_significantly_worse_where_both_have_a_value() -> None:
    """One predicts nothing where there is nothing: its Dice is not defined there, that of the other is 0."""
    empty = [0.0] * 6 + [0.8 + 0.001 * number for number in range(20)]
    careful = [np.nan] * 6 + [value - 0.002 for value in empty[6:]]
    comparison = compare_methods(
        {name: with_dice(np.array(own)[:, None]) for name, own in (("a", careful), ("b", empty))}
    )
    assert differences_in(comparison, DICE)["b"].is_significant()
    found = comparison.order_by(DICE)
    assert (found.names, found.behind) == (["a", "b"], [])


def test_choosing_the_best_costs_significance() -> None:
    gaps = {
        str(number): with_dice(np.array([0.9 + 0.01 * case for case in range(7)])[:, None] - number / 100)
        for number in range(3)
    }
    found = differences_in(compare_methods(gaps), DICE)
    assert found["1"].p_holm == 2 * 2 / 2**7
    assert found["1"].is_significant()
    assert not found["1"].is_significant(num_methods=4)


def test_two_images_of_a_patient_are_no_two_witnesses() -> None:
    """With each image twice, everything by patient is as with each image once; without, images seem to be more."""
    once = {"base": make_result(0.4), "other": make_result(0.9), "third": make_result(1.0)}
    doubled = {name: twice(result) for name, result in once.items()}
    one, by_patient, naive = compare_methods(once), compare_methods(doubled, by_patient=True), compare_methods(doubled)
    assert by_patient.notes == ["Resampled and tested are 8 patients, not 16 cases."]
    for metric in one.estimates:
        found_of = differences_in(by_patient, metric)
        for name, difference in differences_in(one, metric).items():
            found = found_of[name]
            np.testing.assert_allclose(
                [found.value, *found.interval, found.p_holm],
                [difference.value, *difference.interval, difference.p_holm],
                atol=1e-9,
            )
    for metric in one.choice.leading + one.choice.paper:
        assert by_patient.order_by(metric) == one.order_by(metric)
    narrow, wide = (differences_in(there, DICE)["other"] for there in (naive, by_patient))
    assert narrow.interval[1] - narrow.interval[0] < 0.8 * (wide.interval[1] - wide.interval[0])
    assert narrow.p_holm < wide.p_holm
    for voxels, of_once_all in one.reliability.items():
        for name, expected in of_once_all.items():
            own = by_patient.reliability[voxels][name]
            np.testing.assert_allclose(own.by_chance, expected.by_chance, atol=1e-9)
            np.testing.assert_allclose(own.curves[0].low, expected.curves[0].low, atol=1e-9)
    firsts = [rank_by_paper([there], "mean-case-rank").values()[FIRST] for there in (one, by_patient)]
    np.testing.assert_array_equal(*firsts)


def test_patients_by_hand() -> None:
    names = [f"{patient}_{image}" for patient in "abcde" for image in (1, 2)]
    base = with_dice(np.zeros((10, 1)), names)
    # Of each patient the mean is above 0, though an image is below
    other = with_dice(np.array([0.3, -0.1, 0.4, -0.1, 0.5, -0.1, 0.6, np.nan, 0.7, -0.1])[:, None], names)
    (found,) = differences_in(compare_methods({"base": base, "other": other}, by_patient=r"^(.)"), DICE).values()
    assert found.p_holm == 2 / 2**5


NEAR = Metric("ECE", "near")
REGIONS = {"background": 0, "organ": [1, 2, 3], "inner": [2, 3]}


@pytest.mark.parametrize(("name", "voxels"), [("NLL_per_foreground", "image"), ("ECE", "image"), ("CECE", "image")])
def test_a_case_without_foreground_counts(name: str, voxels: str) -> None:
    """In what is divided and in what is pooled, but a resample of such cases alone has no score."""
    result = make_result(cases=NAMED[:2], empty=NAMED[:1])
    estimate = compare_methods({"one": result}).estimates[Metric(name, voxels)]["one"]
    assert estimate.value == pytest.approx(result.pooled(voxels)[name], rel=1e-12)
    assert estimate.num_known == 2
    note = "1 of 2 cases have no foreground: ECE and CECE over the foreground are means over the others."
    assert [*result.notes.values()] == compare_methods({"one": result}).notes == [note]
    assert np.isnan(estimate.resampled(np.array([[2.0, 0]]))[0]) == (name == "NLL_per_foreground")


@pytest.mark.parametrize(
    ("name", "voxels"),
    [("NLL_per_foreground", "image"), ("Brier_per_foreground", "image")]
    + [(name, voxels) for name in ("ECE", "CECE") for voxels in ("near", "image")],
)
def test_values_and_resamples_are_those_of_the_cases_added_up(
    results: dict[str, FolderResult], name: str, voxels: str
) -> None:
    drawn = np.random.default_rng(0).integers(0, len(NAMED), (50, len(NAMED)))
    of_regions = make_result(labels=REGIONS, settings=Settings())
    for result in (*results.values(), of_regions):
        estimate = compare_methods({"one": result}).estimates[Metric(name, voxels)]["one"]
        tables = result.counts.calibration[voxels]
        pooled = [each_column(lambda column, one=one: column[one], tables).sum() for one in drawn]
        expected = [measure(one, scores=True)[name] for one in pooled]
        weights = np.array([np.bincount(one, minlength=len(NAMED)) for one in drawn], float)
        np.testing.assert_allclose(estimate.resampled(weights), expected, rtol=1e-9)
        assert estimate.value == pytest.approx(result.pooled(voxels)[name], rel=1e-12)
    assert [Metric(one, "near").axis for one in ("ECE", "MCE")] == ["ECE near, pooled", "MCE near, mean over cases"]


def test_a_difference_in_a_pooled_error() -> None:
    close = compare_methods({"base": make_result(1.0), "other": make_result(0.95)})
    found = differences(close.estimates[NEAR])["other"]
    tables = [one.tables.top for one in close.reliability["near"].values()]
    n = len(NAMED)

    def gap(cases: np.ndarray) -> float:
        base, other = (np.abs((t.confidence - t.hits)[cases].sum(0)).sum() / t.count[cases].sum() for t in tables)
        return float(other - base)

    gaps = [gap(drawn) for drawn in np.random.default_rng(0).integers(0, n, (2000, n))]
    np.testing.assert_allclose(found.interval, np.percentile(gaps, [2.5, 97.5]), rtol=1e-6)
    others = [gap(np.delete(np.arange(n), left_out)) for left_out in range(n)]
    t = found.value / math.sqrt((n - 1) / n * sum((other - np.mean(others)) ** 2 for other in others))
    assert found.p_holm == pytest.approx(2 * stats.t.sf(abs(t), n - 1))
    assert found.p_holm > 2 ** (1 - n)
    # Of four cases however far apart, the sign alone would be as one-sided in one of eight samples.
    few = compare_methods({"base": make_result(0.4, cases=NAMED[:4]), "other": make_result(1.0, cases=NAMED[:4])})
    assert differences(few.estimates[NEAR])["other"].p_holm == 2**-3


def test_what_methods_are_judged_by(comparison: Comparison) -> None:
    scores = ["NLL per foreground voxel", "Brier per foreground voxel"]
    compared = table_of("differences", comparison, "union").columns
    assert [head.rstrip(" ↑↓") for head in compared] == ["Dice", "HD95 (mm)", *scores, "ECE union", "CECE union"]
