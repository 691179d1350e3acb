"""Intervals, Wilcoxon and Holm, against SciPy and statsmodels and a direct bootstrap."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from nnunet_nacl.evaluation._statistics import bootstrap_interval
from nnunet_nacl.report import Comparison, differences, holm, wilcoxon_signed_rank
from nnunet_nacl.report._metrics import CaseMeans, Metric, by_case, mean_over_cases

ECE = Metric("ECE", "foreground")


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_holm_equals_statsmodels(size: int) -> None:
    for seed in range(5):  # statsmodels collects garbage in each call
        p_values = list(np.random.default_rng(seed).beta(0.3, 1, size).round(2))  # rounded: some are equal
        np.testing.assert_allclose(holm(p_values), multipletests(p_values, method="holm")[1], atol=1e-12)


def test_holm_by_hand() -> None:
    # 3 · 0.01; 2 · 0.03; 0.04, but not below the one before
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([]) == []
    with_nan = holm([float("nan"), 0.02, 0.04])
    assert np.isnan(with_nan[0])
    assert with_nan[1:] == pytest.approx([0.04, 0.04])  # a test that was not made does not count


def test_wilcoxon_by_hand() -> None:
    # 5 differences, all positive: 2 of the 2^5 signs are as extreme
    assert wilcoxon_signed_rank(np.array([0.1, 0.2, 0.3, 0.4, 0.5])) == 2 / 32
    assert wilcoxon_signed_rank(np.array([0.1, np.nan, 0.2, 0.3, 0.4, 0.5])) == 2 / 32
    assert wilcoxon_signed_rank(np.zeros(4)) == 1
    assert np.isnan(wilcoxon_signed_rank(np.array([0.1])))
    assert np.isnan(wilcoxon_signed_rank(np.full(3, np.nan)))


@pytest.mark.parametrize("size", [6, 40, 200])
def test_wilcoxon_equals_scipy_on_pairs(size: int) -> None:
    generator = np.random.default_rng(size)
    one, other = generator.normal(0, 1, size), generator.normal(0.3, 1, size)
    assert wilcoxon_signed_rank(one - other) == stats.wilcoxon(one, other).pvalue


def test_a_difference_over_the_cases(comparison: Comparison) -> None:
    found = differences(comparison, ECE)
    assert list(found) == ["right", "soft"]
    base, right = (comparison[name].calibration["foreground"]["ECE"] for name in ("sharp", "right"))
    assert found["right"].mean == pytest.approx(np.mean(right - base), abs=1e-12)
    assert found["right"].p == stats.wilcoxon(right, base).pvalue == 2 / 2**8
    assert found["right"].p_holm == pytest.approx(2 * found["right"].p)
    assert found["right"].is_significant
    direct = stats.bootstrap(
        (right - base,), np.mean, method="percentile", n_resamples=20000, rng=1
    ).confidence_interval
    np.testing.assert_allclose(found["right"].interval, direct, atol=0.002)


def test_p_is_that_of_the_pairs(comparison: Comparison) -> None:
    dice = Metric("Dice", higher_is_better=True)
    base, soft = (by_case(dice.values(comparison[name])) for name in ("sharp", "soft"))
    assert 0 < (soft > base).sum() < len(base)  # in both directions
    found = differences(comparison, dice)
    assert found["soft"].p == stats.wilcoxon(soft, base).pvalue
    p_values = [found[name].p for name in ("right", "soft")]
    assert [found[name].p_holm for name in ("right", "soft")] == list(multipletests(p_values, method="holm")[1])


def test_intervals_equal_those_of_the_summary(comparison: Comparison) -> None:
    values = comparison["soft"].calibration["foreground"]["ECE"]
    np.testing.assert_allclose(CaseMeans(values[:, None]).interval, bootstrap_interval(list(values)), atol=1e-12)


def test_intervals_equal_a_direct_bootstrap() -> None:
    generator = np.random.default_rng(0)
    values = generator.beta(8, 2, (40, 3))
    values[generator.random((40, 3)) < 0.2] = np.nan
    values[3] = np.nan
    means = []
    for _ in range(8000):
        drawn = values[generator.integers(0, 40, 40)]
        means.append(np.nanmean(np.nanmean(drawn, axis=0)))
    np.testing.assert_allclose(CaseMeans(values).interval, np.percentile(means, [2.5, 97.5]), atol=0.003)
    assert mean_over_cases(values) == pytest.approx(np.nanmean(np.nanmean(values, axis=0)))
    np.testing.assert_allclose(by_case(values)[:3], np.nanmean(values[:3], axis=1))


def test_no_interval_from_fewer_than_two_cases() -> None:
    assert np.isnan(CaseMeans(np.array([[0.5]])).interval).all()
    assert np.isnan(CaseMeans(np.array([[0.5], [np.nan]])).interval).all()
    assert np.isnan(mean_over_cases(np.full((3, 2), np.nan)))
