import numpy as np
import pytest
from sklearn import metrics

from nnunet_nacl.metrics import confusion_matrix, dice


def test_by_hand() -> None:
    confusion = confusion_matrix(np.array([[0, 1, 1, 2]]), np.array([[0, 0, 1, 1]]), 4)
    assert confusion.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert confusion.dtype == np.int64
    assert dice(confusion, [1]) == 0.5
    assert dice(confusion, [2]) == 0
    assert dice(confusion, [1, 2]) == dice(confusion, [1, 2, 2]) == pytest.approx(2 * 2 / 5)  # as dataset.json may say
    assert np.isnan(dice(confusion, [3]))


def test_equal_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, 3, (2, 50, 60, 70)).astype(np.uint8)
    confusion = confusion_matrix(a, b, 3)
    assert np.array_equal(confusion, metrics.confusion_matrix(a.ravel(), b.ravel()))
    for label in (1, 2):
        expected = metrics.f1_score(a.ravel() == label, b.ravel() == label)
        assert dice(confusion, [label]) == pytest.approx(expected, abs=1e-12)
