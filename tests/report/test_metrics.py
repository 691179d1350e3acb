"""Estimates over the cases and over resamples of them, against direct loops."""

import numpy as np
import pytest

from nnunet_nacl.evaluation import FolderResult, Settings
from nnunet_nacl.report import Comparison, compare
from nnunet_nacl.report._metrics import (
    Metric,
    compared_metrics,
    judging_metrics,
    per_foreground,
    pooled_gaps,
)
from nnunet_nacl.report._statistics import differences
from tests.report.generated import NAMED, make_result

NLL, NEAR = Metric("NLL_per_foreground", "image"), Metric("ECE", "near")
REGIONS = {"background": 0, "organ": [1, 2, 3], "inner": [2, 3]}


@pytest.fixture(scope="module")
def regions() -> Comparison:
    return compare({"one": make_result(labels=REGIONS, settings=Settings())})


def draws(num_cases: int) -> np.ndarray:
    """The cases of each resample."""
    return np.random.default_rng(0).integers(0, num_cases, (2000, num_cases))


def error_of(result: FolderResult, voxels: str, table: str, drawn: np.ndarray) -> float:
    """ECE of the drawn cases' voxels together, one bin after the other."""
    tables = [getattr(result.cases[number].result.calibration[voxels], table) for number in drawn]
    errors = []
    for row in range(len(tables[0].count)):
        voxels_there = sum(int(one.count[row].sum()) for one in tables)
        if voxels_there:
            gaps = [
                abs(sum(one.confidence[row, m] for one in tables) - sum(one.hits[row, m] for one in tables))
                for m in range(tables[0].count.shape[1])
            ]
            errors.append(sum(gaps) / voxels_there)
    return float(np.mean(errors)) if errors else float("nan")


def score_of(result: FolderResult, table: str, drawn: np.ndarray) -> float:
    total = foreground = 0.0
    for number in drawn:
        tables = result.cases[number].result.calibration["image"]
        total += getattr(tables, table).sum()
        hits = tables.classwise.hits.sum(1)
        foreground += hits.sum() if len(tables.top.count) == len(hits) else hits[1:].sum()
    return float(total / foreground)


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


@pytest.mark.parametrize(("name", "table"), [("NLL_per_foreground", "nll"), ("Brier_per_foreground", "brier")])
def test_a_ratio_of_sums_equals_a_loop(comparison: Comparison, regions: Comparison, name: str, table: str) -> None:
    for method in (*comparison.methods, *regions.methods):
        estimate = Metric(name, "image").of(method)
        resampled = [score_of(method.result, table, drawn) for drawn in draws(len(NAMED))]
        assert estimate.value == pytest.approx(score_of(method.result, table, np.arange(len(NAMED))), rel=1e-12)
        np.testing.assert_allclose(estimate.interval, np.percentile(resampled, [2.5, 97.5]), rtol=1e-12)
        assert estimate.value == pytest.approx(method.result.pooled("image")[name], rel=1e-12)
        np.testing.assert_allclose(estimate.interval, method.result.pooled_interval("image")[name], rtol=1e-12)


@pytest.mark.parametrize("voxels", ["near", "image"])
@pytest.mark.parametrize(("name", "table"), [("ECE", "top"), ("CECE", "classwise")])
def test_a_pooled_error_equals_a_loop(
    comparison: Comparison, regions: Comparison, name: str, table: str, voxels: str
) -> None:
    for method in (comparison["soft"], regions["one"]):
        estimate = Metric(name, voxels).of(method)
        resampled = [error_of(method.result, voxels, table, drawn) for drawn in draws(len(NAMED))[:200]]
        np.testing.assert_allclose(estimate.resampled(weights_of(draws(len(NAMED))[:200])), resampled, rtol=1e-9)
        assert estimate.value == pytest.approx(method.result.pooled(voxels)[name], rel=1e-12)
        np.testing.assert_allclose(estimate.interval, method.result.pooled_interval(voxels)[name], rtol=1e-9)


def weights_of(drawn: np.ndarray) -> np.ndarray:
    return np.array([[np.count_nonzero(one == case) for case in range(drawn.shape[1])] for one in drawn], float)


def test_a_difference_in_a_pooled_error() -> None:
    close = compare({"base": make_result(1.0), "other": make_result(0.95)})
    base, other = (close[name].result for name in ("base", "other"))
    found = differences(close, NEAR)["other"]
    gaps = np.array(
        [error_of(other, "near", "top", drawn) - error_of(base, "near", "top", drawn) for drawn in draws(len(NAMED))]
    )
    np.testing.assert_allclose(found.interval, np.percentile(gaps, [2.5, 97.5]), rtol=1e-6)
    fewer = min((gaps <= 0).sum(), (gaps >= 0).sum())
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
