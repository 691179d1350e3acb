from dataclasses import replace

import monai.metrics
import netcal.metrics
import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from torchmetrics.functional.classification import binary_calibration_error

from nnunet_nacl.metrics import (
    BinCounts,
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)

EMPTY = BinCounts.of(np.zeros(0), np.zeros(0, bool))
ERRORS = {"ECE": expected_calibration_error, "ACE": average_calibration_error, "MCE": maximum_calibration_error}


def random_table(dtype: type[np.floating] = np.float64) -> tuple[np.ndarray, np.ndarray, BinCounts]:
    generator = np.random.default_rng(0)
    p = generator.random(5000).astype(dtype)
    y = generator.random(5000) < p**2
    return p, y, BinCounts.of(p, y)


def test_by_hand() -> None:
    # (0.8, 14/15]: two voxels, accuracy 1/2, confidence 0.9; the bin of 0.5: one, accuracy 1.
    table = BinCounts.of(np.array([0.9, 0.9, 0.5]), np.array([True, False, True]))
    assert expected_calibration_error(table) == pytest.approx(2 / 3 * 0.4 + 1 / 3 * 0.5)
    assert maximum_calibration_error(table) == pytest.approx(0.5)
    assert average_calibration_error(table) == pytest.approx((0.4 + 0.5) / 2)


@pytest.mark.parametrize("error", ERRORS.values())
def test_no_voxels(error: object) -> None:
    assert np.isnan(error(EMPTY))
    found = error(BinCounts.stack([EMPTY, BinCounts.of(np.ones(1), np.ones(1, bool))]))
    assert np.isnan(found[0])
    assert found[1] == 0


@pytest.mark.parametrize("error", ERRORS.values())
def test_perfect_and_worst(error: object) -> None:
    sure = np.ones(4)
    assert error(BinCounts.of(sure, np.ones(4, bool))) == 0
    assert error(BinCounts.of(sure, np.zeros(4, bool))) == 1


def test_dropped_zeros_weaken_the_ece() -> None:
    p, y = np.array([0.0, 0.5, 0.5]), np.array([True, True, True])
    assert expected_calibration_error(BinCounts.of(p, y)) == pytest.approx((1 + 0.5 + 0.5) / 3)
    table = replace(BinCounts.of(p[1:], y[1:]), unbinned=np.array(1))
    assert table.total == 3
    assert expected_calibration_error(table) == pytest.approx((0.5 + 0.5) / 3)
    assert table.over_confidence == pytest.approx(-1 / 3)


def test_equals_scikit_learns_curve() -> None:
    p, y, table = random_table()
    accuracy, confidence = calibration_curve(y, p, n_bins=15, strategy="uniform")
    share = np.histogram(p, bins=15, range=(0, 1))[0] / 5000
    expected = float((share * np.abs(accuracy - confidence)).sum())
    assert expected_calibration_error(table) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ERRORS)
def test_equals_netcal(name: str) -> None:
    p, y, table = random_table()
    peer = getattr(netcal.metrics, name)(15).measure(p, y.astype(int))
    assert ERRORS[name](table) == pytest.approx(peer, abs=1e-12)


@pytest.mark.parametrize(("name", "norm"), [("ECE", "l1"), ("MCE", "max")])
def test_equals_torchmetrics(name: str, norm: str) -> None:
    p, y, table = random_table(np.float32)
    peer = binary_calibration_error(torch.from_numpy(p), torch.from_numpy(y).long(), n_bins=15, norm=norm)
    # torchmetrics takes max(p, 1 - p) of neither: its binary error is that of the probability of class 1, as ours.
    assert ERRORS[name](table) == pytest.approx(float(peer), abs=2e-6)


@pytest.mark.skipif(not hasattr(monai.metrics, "CalibrationErrorMetric"), reason="needs a later MONAI")
def test_equals_monai_by_class() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(1, 4, 40, 40, generator=generator).softmax(1)
    y = torch.randint(4, (1, 40, 40), generator=generator)
    metric = monai.metrics.CalibrationErrorMetric(num_bins=15)
    metric(y_pred=p, y=torch.nn.functional.one_hot(y, 4).movedim(-1, 1))
    tables = [BinCounts.of(p[0, k].double().numpy().ravel(), (y[0] == k).numpy().ravel()) for k in range(4)]
    found = expected_calibration_error(BinCounts.stack(tables)).mean()
    assert found == pytest.approx(float(metric.aggregate()), abs=1e-6)
