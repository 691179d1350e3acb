import numpy as np
import pytest
import torch
from monai.metrics import CalibrationErrorMetric
from sklearn.calibration import calibration_curve

from nnunet_nacl.metrics import BinCounts, classwise_calibration_error, expected_calibration_error


def test_by_hand() -> None:
    # (0.8, 14/15]: two voxels, accuracy 1/2, confidence 0.9; the bin of 0.5: one, accuracy 1.
    table = BinCounts.of(np.array([0.9, 0.9, 0.5]), np.array([True, False, True]))
    assert expected_calibration_error(table) == pytest.approx(2 / 3 * 0.4 + 1 / 3 * 0.5)


def test_no_voxels() -> None:
    assert np.isnan(expected_calibration_error(BinCounts.empty()))
    assert np.isnan(classwise_calibration_error([BinCounts.empty(), BinCounts.empty()]))


def test_perfect_and_worst() -> None:
    sure = np.ones(4)
    assert expected_calibration_error(BinCounts.of(sure, np.ones(4, bool))) == 0
    assert expected_calibration_error(BinCounts.of(sure, np.zeros(4, bool))) == 1


def test_equals_scikit_learns_curve() -> None:
    generator = np.random.default_rng(0)
    p = generator.random(5000)
    y = generator.random(5000) < p**2
    accuracy, confidence = calibration_curve(y, p, n_bins=15, strategy="uniform")
    share = np.histogram(p, bins=15, range=(0, 1))[0] / 5000
    expected = float((share * np.abs(accuracy - confidence)).sum())
    assert expected_calibration_error(BinCounts.of(p, y)) == pytest.approx(expected, abs=1e-12)


def test_equals_monai_by_class() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(1, 4, 40, 40, generator=generator).softmax(1)
    y = torch.randint(4, (1, 40, 40), generator=generator)
    one_hot = torch.nn.functional.one_hot(y, 4).movedim(-1, 1)
    metric = CalibrationErrorMetric(num_bins=15)
    metric(y_pred=p, y=one_hot)
    tables = [BinCounts.of(p[0, k].double().numpy().ravel(), (y[0] == k).numpy().ravel()) for k in range(4)]
    assert classwise_calibration_error(tables) == pytest.approx(float(metric.aggregate()), abs=1e-6)
