import numpy as np
import pytest
from scipy.stats import bootstrap

from nnunet_nacl.metrics import Estimate

NAN = float("nan")


def mean_interval(values: list[float]) -> tuple[float, float]:
    return Estimate.of_means(np.array(values)[:, None]).interval


def test_interval_of_a_mean_equals_scipys() -> None:
    values = np.random.default_rng(1).random(30)
    expected = bootstrap(
        (values,), np.mean, n_resamples=2000, confidence_level=0.95, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert mean_interval(values.tolist()) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_undefined_cases_are_left_out_after_all_are_drawn() -> None:
    """As in comparisons between methods, whose cases must be the same: one interval of a mean, wherever it is shown."""
    values = np.array([0.1, NAN, 0.4, 0.8, NAN, 0.3])
    drawn = np.random.default_rng(0).integers(0, 6, (2000, 6))
    means = [np.nanmean(values[cases]) for cases in drawn if not np.isnan(values[cases]).all()]
    assert mean_interval(values.tolist()) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])))


def test_percentiles_by_hand_of_two_cases_or_more() -> None:
    drawn = np.array([NAN, *range(201)])
    assert Estimate(lambda _: drawn, np.arange(2), np.ones(2, bool)).interval == (5, 195)
    assert mean_interval([0.25, NAN, 0.75]) == (0.25, 0.75)
    assert np.isnan([mean_interval([0.5]), mean_interval([0.5, NAN]), mean_interval([NAN, NAN])]).all()


def test_rounding_errors_are_no_differences() -> None:
    """Of sums over voxels, which may be of any size."""
    sums = 1e6 * np.random.default_rng(0).random(6)
    one, other, larger = (
        Estimate(lambda weights, of=of: weights @ of, np.arange(6), np.ones(6, bool), of)
        for of in (sums, sums * (1 + 1e-13), sums * (1 + 1e-6))
    )
    assert other.minus(one).by_patient.tolist() == [0.0] * 6
    assert (larger.minus(one).by_patient > 0).all()
