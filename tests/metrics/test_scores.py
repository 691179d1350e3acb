import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from nnunet_nacl.metrics import NLL_CLIP, brier_sum, nll_sum


def test_nll_by_hand() -> None:
    assert nll_sum(np.array([0.5, 0.25])) == pytest.approx(np.log(8))
    assert nll_sum(np.array([0.0])) == pytest.approx(-np.log(NLL_CLIP))
    assert nll_sum(np.array([])) == 0


def test_brier_by_hand() -> None:
    assert brier_sum(np.array([0.9, 0.2]), np.array([True, False])) == pytest.approx(0.01 + 0.04)


def test_equal_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(4), 500)
    y = generator.integers(0, 4, 500)
    assert nll_sum(p[np.arange(500), y]) / 500 == pytest.approx(log_loss(y, p), abs=1e-12)
    brier = sum(brier_sum(p[:, k], y == k) for k in range(4)) / 500
    expected = sum(brier_score_loss(y == k, p[:, k]) for k in range(4))
    assert brier == pytest.approx(expected, abs=1e-12)


def test_clips_zeros_as_scikit_learn_does_for_float32() -> None:
    p, y = np.array([[0, 1], [1, 0], [0.5, 0.5]], np.float32), np.array([0, 0, 1])
    assert nll_sum(p[np.arange(3), y]) / 3 == pytest.approx(log_loss(y, p), abs=1e-6)


def test_float32_is_summed_in_float64() -> None:
    p = np.full(2**24 + 1, 1, np.float32)
    assert brier_sum(p, np.zeros(p.shape, bool)) == 2**24 + 1
