"""Estimates over the cases and over resamples of them: by hand, and equal to those of cases added up."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from nnunet_nacl.metrics import Settings
from nnunet_nacl.report import (
    Comparison,
    Metric,
    compare,
    compared_metrics,
    differences,
    judging_metrics,
    per_foreground,
    pooled_gaps,
)
from tests.report.generated import NAMED, make_result

NEAR = Metric("ECE", "near")
REGIONS = {"background": 0, "organ": [1, 2, 3], "inner": [2, 3]}


@pytest.fixture(scope="module")
def regions() -> Comparison:
    return compare({"one": make_result(labels=REGIONS, settings=Settings())})


def test_a_ratio_of_sums_by_hand() -> None:
    """Two cases, of 10 and 30 foreground voxels: not the mean of 0.5 and 0.1, but 8 / 40."""
    estimate = per_foreground(np.array([5.0, 3.0]), np.array([10.0, 30.0]))
    assert estimate.value == 0.2
    weights = np.array([[2.0, 0], [1, 1], [0, 2]])
    np.testing.assert_allclose(estimate.resampled(weights), [10 / 20, 8 / 40, 6 / 60])
    nothing = per_foreground(np.array([5.0, 3.0]), np.array([0.0, 30.0]))
    assert np.isnan(nothing.resampled(weights)[0])  # a resample without foreground
    assert nothing.value == 8 / 30  # an empty case counts


def test_a_pooled_error_by_hand() -> None:
    """Gaps of two cases cancel in the first bin: (|3 − 3| + |1 + 1|) / 20, while each case has 4 / 10."""
    gaps, voxels = np.array([[[3.0, 1]], [[-3, 1]]]), np.array([[10.0], [10]])
    estimate = pooled_gaps(gaps, voxels)
    assert estimate.value == 0.1
    np.testing.assert_allclose(estimate.resampled(np.array([[2.0, 0], [0, 2]])), [0.4, 0.4])
    assert estimate.by_case is None
    empty = pooled_gaps(np.zeros((2, 2, 1)), np.array([[0.0, 0], [0, 4]]))
    assert np.isnan(empty.interval).all()
    assert np.isnan(empty.resampled(np.array([[2.0, 0]]))).all()


@pytest.mark.parametrize(
    ("name", "voxels"),
    [("NLL_per_foreground", "image"), ("Brier_per_foreground", "image")]
    + [(name, voxels) for name in ("ECE", "CECE") for voxels in ("near", "image")],
)
def test_values_and_resamples_are_those_of_the_cases_added_up(
    comparison: Comparison, regions: Comparison, name: str, voxels: str
) -> None:
    drawn = np.random.default_rng(0).integers(0, len(NAMED), (50, len(NAMED)))
    for method in (*comparison.methods, *regions.methods):
        estimate, tables = Metric(name, voxels).of(method), method.result.tables(voxels)
        pooled = [reduce(add, [tables[case] for case in one]) for one in drawn]
        expected = [(one.metrics() | one.per_foreground())[name] for one in pooled]
        weights = np.array([np.bincount(one, minlength=len(NAMED)) for one in drawn], float)
        np.testing.assert_allclose(estimate.resampled(weights), expected, rtol=1e-9)
        assert estimate.value == pytest.approx(method.result.pooled(voxels)[name], rel=1e-12)


def test_a_difference_in_a_pooled_error() -> None:
    close = compare({"base": make_result(1.0), "other": make_result(0.95)})
    found = differences(close, NEAR)["other"]
    tables = [method.bins("near", "top") for method in close.methods]
    gaps = []
    for drawn in np.random.default_rng(0).integers(0, len(NAMED), (2000, len(NAMED))):
        base, other = (
            np.abs((one.confidence - one.hits)[drawn].sum(0)).sum() / one.count[drawn].sum() for one in tables
        )
        gaps.append(other - base)
    np.testing.assert_allclose(found.interval, np.percentile(gaps, [2.5, 97.5]), rtol=1e-6)
    fewer = min(sum(gap <= 0 for gap in gaps), sum(gap >= 0 for gap in gaps))
    assert 8 < fewer < 1000  # p above 2^-7
    assert found.p == pytest.approx(2 * (1 + fewer) / 2001)
    # Of four cases however far apart, the sign alone would be as one-sided in one of eight samples.
    few = compare({"base": make_result(0.4, cases=NAMED[:4]), "other": make_result(1.0, cases=NAMED[:4])})
    assert differences(few, NEAR)["other"].p == 2**-3


def test_what_methods_are_judged_by(comparison: Comparison) -> None:
    def titles(settings: Settings) -> list[str]:
        return [metric.title for metric in judging_metrics(compare({"one": make_result(settings=settings)}))]

    assert titles(Settings(voxels=("image",))) == ["NLL per foreground voxel", "ECE image"]
    assert titles(Settings(voxels=("near", "union"))) == ["ECE near"]
    assert titles(Settings(voxels=("union",))) == []
    assert titles(Settings(protocol="authors")) == ["ECE near"]  # its tables lack voxels
    leading = ["Dice", "HD95", "NLL per foreground voxel", "Brier per foreground voxel"]
    assert [metric.title for metric in compared_metrics(comparison, "union")] == [*leading, "ECE union", "CECE union"]
