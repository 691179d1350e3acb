"""Bins of confidence and the errors that follow from them, against other libraries."""

import monai.metrics
import netcal.metrics
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnunet_nacl.metrics import (
    BinCounts,
    Settings,
    average_calibration_error,
    evaluate_case,
    expected_calibration_error,
    maximum_calibration_error,
    measure,
)


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan, np.inf])
def test_values_that_are_no_confidence(bad: float) -> None:
    with pytest.raises(ValueError, match=r"^confidences must be in \[0, 1\]; got values from "):
        BinCounts.fill(np.array([0.5, bad]), np.array([True, True]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(st.data(), st.integers(1, 60))
def test_bins_equal_a_search_among_the_edges(dtype: type[np.floating], data: st.DataObject, num_bins: int) -> None:
    """They are open below and closed above; 0 is in the first."""
    edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
    near = np.unique(np.concatenate([edges, np.nextafter(edges, dtype(0)), np.nextafter(edges, dtype(1))]))
    random = data.draw(hnp.arrays(np.float64, 20, elements=st.floats(0, 1))).astype(dtype)
    values = np.concatenate([near, random])
    expected = np.bincount(np.searchsorted(edges[1:-1], values, side="left"), minlength=num_bins)
    assert BinCounts.fill(values, values > 0, num_bins).count.tolist() == expected.tolist()


ERRORS = {"ECE": expected_calibration_error, "ACE": average_calibration_error, "MCE": maximum_calibration_error}


def test_tables_and_errors_by_hand() -> None:
    table = BinCounts.fill(np.array([0.0, 0.5, 0.51, 1.0]), np.array([True, False, True, True]), num_bins=2)
    assert (table.count.tolist(), table.hits.tolist(), table.confidence.tolist()) == ([2, 2], [1, 2], [0.5, 1.51])
    # (0.8, 14/15]: two voxels, accuracy 1/2, confidence 0.9; the bin of 0.5: one, accuracy 1.
    table = BinCounts.fill(np.array([0.9, 0.9, 0.5]), np.array([True, False, True]))
    assert expected_calibration_error(table) == pytest.approx(2 / 3 * 0.4 + 1 / 3 * 0.5)
    assert maximum_calibration_error(table) == pytest.approx(0.5)
    assert average_calibration_error(table) == pytest.approx((0.4 + 0.5) / 2)


@pytest.mark.parametrize("name", ERRORS)
def test_equals_netcal(name: str) -> None:
    generator = np.random.default_rng(0)
    p = generator.random(5000)
    y = generator.random(5000) < p**2
    peer = getattr(netcal.metrics, name)(15).measure(p, y.astype(int))
    assert ERRORS[name](BinCounts.fill(p, y)) == pytest.approx(peer, abs=1e-12)


@pytest.mark.skipif(not hasattr(monai.metrics, "CalibrationErrorMetric"), reason="needs a later MONAI")
@pytest.mark.parametrize(
    ("name", "num_bins", "options"),
    [("CECE", 15, {}), ("CACE_fg", 20, {"include_background": False, "calibration_reduction": "average"})],
)
def test_errors_of_classes_equal_monais(name: str, num_bins: int, options: dict[str, object]) -> None:
    """Its metric is by the authors of mL1-ACE: their tables leave out the background, and are of 20 bins."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(3, 4, 40, 40, generator=generator).mul(3).softmax(1)
    y = torch.randint(3, (3, 40, 40), generator=generator)  # no image has class 3
    metric = monai.metrics.CalibrationErrorMetric(num_bins, **options)
    metric(y_pred=p, y=torch.nn.functional.one_hot(y, 4).movedim(-1, 1))
    result = evaluate_case(p, y, settings=Settings(num_bins=num_bins), channel_axis=1)
    of_cases = measure(result.calibration["image"])[name]
    assert of_cases.mean() == pytest.approx(float(metric.aggregate()), abs=1e-6)
