"""Estimates over the cases and over resamples of them: by hand, and equal to those of cases added up."""

import math

import numpy as np
import pytest
from scipy import stats

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import Settings, each_column, measure
from nnunet_nacl.report import DICE, Comparison, Metric, compare_methods
from nnunet_nacl.report._statistics import differences
from tests.report.generated import NAMED, make_result, table_of

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
    by_authors = compare_methods({"one": make_result(settings=Settings(protocol="authors"))})
    assert by_authors.choice.leading == [DICE, NEAR]  # its tables lack voxels
    scores = ["NLL per foreground voxel", "Brier per foreground voxel"]
    compared = table_of("differences", comparison, "union").columns
    assert [head.rstrip(" ↑↓") for head in compared] == ["Dice", "HD95 (mm)", *scores, "ECE union", "CECE union"]
