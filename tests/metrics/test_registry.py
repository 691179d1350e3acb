"""Each metric stands in one place, which summaries, tables, the glossary and docs/metrics.md read."""

from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.evaluation._summary import summary_of
from nnunet_nacl.metrics import (
    BY_LABEL,
    CALIBRATION_METRICS,
    LABEL_FREE,
    METRICS,
    SEGMENTATION_METRICS,
    VOXEL_SETS,
    BinCounts,
    MetricDefinition,
    each_column,
    mean_of_known,
    measure,
)
from nnunet_nacl.metrics._columns import named_columns
from nnunet_nacl.report import compare_all, compare_methods, write_report
from tests.report.generated import NAMED, make_result, table_of


def test_each_voxel_set_is_chosen_by_labels_or_is_not() -> None:
    assert sorted(BY_LABEL + LABEL_FREE) == sorted(VOXEL_SETS)


def test_what_is_computed_is_registered() -> None:
    result = make_result(cases=NAMED[:2])
    frame = result.to_dataframe()
    of_cases = set(frame["metric"]) - {"NLL_sum", "Brier_sum", "foreground_voxels"}  # what the scores are ratios of
    scores = {name for name, metric in METRICS.items() if metric.case_score}
    assert of_cases == set(METRICS) - scores
    assert set(frame[frame["voxels"] == ""]["metric"]) == set(SEGMENTATION_METRICS)
    assert set(result.pooled("image")) == (set(CALIBRATION_METRICS) - {"ECE_expected", "CECE_expected"})
    pooled = {name for name, metric in METRICS.items() if metric.pooled_over}
    assert pooled == {"ECE", "CECE", "over_confidence"} | scores == set(summary_of(result)["pooled_interval"]["image"])


def root_mean_square(bins: BinCounts) -> np.ndarray:
    gaps = np.nan_to_num((bins.hits - bins.confidence) / np.maximum(bins.count, 1))
    return np.sqrt((bins.count * gaps**2).sum(-1) / bins.total)


@pytest.mark.usefixtures("undrawn")
def test_a_new_metric_is_one_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    new = MetricDefinition(
        name="RMSCE",
        title="RMSCE {voxels}",
        formula="√(Σ_m",
        sentence="As ECE, but large gaps count for more.",
        from_tables=lambda tables: root_mean_square(tables.top),
        from_bins=root_mean_square,
        pooled_over=LABEL_FREE,
        further="pooled",
    )
    for registered in (CALIBRATION_METRICS, METRICS):
        monkeypatch.setitem(registered, new.name, new)
    result = make_result(0.4, cases=NAMED[:3])
    summed = result.counts["near"]
    error = float(root_mean_square(summed.top)[0])
    assert error > summed.ECE > 0
    assert result.pooled("near")["RMSCE"] == pytest.approx(error)
    low, high = result.estimate("RMSCE", "near").interval
    assert low <= error < high
    rows = result.to_dataframe().query("metric == 'RMSCE' and voxels == 'near'")
    assert len(rows) == 3 * (1 + 4)  # and of each class
    comparison = compare_methods({"sharp": result})
    assert table_of("scores", comparison, "near").values().loc["sharp", "pooled RMSCE"] == pytest.approx(error)
    write_report(compare_all({"": {"sharp": result}}), tmp_path / "page.html")
    assert "<dt>RMSCE</dt><dd>As ECE, but large gaps count for more.</dd>" in (tmp_path / "page.html").read_text()


def test_resamples_are_sums_of_cases() -> None:
    tables = make_result(0.4, cases=NAMED[:3]).counts.calibration["union"]
    resampled = tables.weighted(np.array([[1.0, 1, 1], [0, 2, 1]]))
    assert {column.shape[0] for column in named_columns(resampled).values()} == {2}
    assert named_columns(resampled).keys() == named_columns(tables).keys()
    sums = [each_column(lambda column, drawn=drawn: column[drawn], tables).sum() for drawn in ([0, 1, 2], [1, 1, 2])]
    for name, metric in CALIBRATION_METRICS.items():
        expected = [measure(one, scores=True)[name] for one in sums]
        np.testing.assert_allclose(mean_of_known(metric.from_tables(resampled)), expected, rtol=1e-12, err_msg=name)
