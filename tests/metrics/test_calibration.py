import monai.metrics
import netcal.metrics
import numpy as np
import pytest
import torch

from nnunet_nacl.metrics import (
    BinCounts,
    Settings,
    average_calibration_error,
    evaluate_case,
    expected_calibration_error,
    maximum_calibration_error,
)

ERRORS = {"ECE": expected_calibration_error, "ACE": average_calibration_error, "MCE": maximum_calibration_error}


def test_by_hand() -> None:
    # (0.8, 14/15]: two voxels, accuracy 1/2, confidence 0.9; the bin of 0.5: one, accuracy 1.
    table = BinCounts.fill(np.array([0.9, 0.9, 0.5]), np.array([True, False, True]))
    assert expected_calibration_error(table) == pytest.approx(2 / 3 * 0.4 + 1 / 3 * 0.5)
    assert maximum_calibration_error(table) == pytest.approx(0.5)
    assert average_calibration_error(table) == pytest.approx((0.4 + 0.5) / 2)


@pytest.mark.parametrize("error", ERRORS.values())
def test_perfect_and_worst(error: object) -> None:
    sure = np.ones(4)
    assert error(BinCounts.fill(sure, np.ones(4, bool))) == 0
    assert error(BinCounts.fill(sure, np.zeros(4, bool))) == 1
    assert np.isnan(error(BinCounts.fill(np.zeros(0), np.zeros(0, bool))))


@pytest.mark.parametrize("name", ERRORS)
def test_equals_netcal(name: str) -> None:
    generator = np.random.default_rng(0)
    p = generator.random(5000)
    y = generator.random(5000) < p**2
    peer = getattr(netcal.metrics, name)(15).measure(p, y.astype(int))
    assert ERRORS[name](BinCounts.fill(p, y)) == pytest.approx(peer, abs=1e-12)


@pytest.mark.skipif(not hasattr(monai.metrics, "CalibrationErrorMetric"), reason="needs a later MONAI")
def test_equals_monai_by_class() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(1, 4, 40, 40, generator=generator).softmax(1)
    y = torch.randint(4, (1, 40, 40), generator=generator)
    metric = monai.metrics.CalibrationErrorMetric(num_bins=15)
    metric(y_pred=p, y=torch.nn.functional.one_hot(y, 4).movedim(-1, 1))
    tables = [BinCounts.fill(p[0, k].double().numpy().ravel(), (y[0] == k).numpy().ravel()) for k in range(4)]
    found = np.mean([expected_calibration_error(table) for table in tables])
    assert found == pytest.approx(float(metric.aggregate()), abs=1e-6)


@pytest.mark.skipif(not hasattr(monai.metrics, "CalibrationErrorMetric"), reason="needs a later MONAI")
def test_gaps_of_classes_are_those_of_ml1_ace() -> None:
    """MONAI's metric is by the authors: their tables leave out the background, and are of 20 bins."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(3, 4, 40, 40, generator=generator).mul(3).softmax(1)
    y = torch.randint(3, (3, 40, 40), generator=generator)  # no image has class 3
    metric = monai.metrics.CalibrationErrorMetric(20, include_background=False, calibration_reduction="average")
    metric(y_pred=p, y=torch.nn.functional.one_hot(y, 4).movedim(-1, 1))
    result = evaluate_case(p, y, settings=Settings(num_bins=20), channel_axis=1)
    of_cases = result.calibration["image"].metrics()["CACE_fg"]
    assert of_cases.mean() == pytest.approx(float(metric.aggregate()), abs=1e-6)
