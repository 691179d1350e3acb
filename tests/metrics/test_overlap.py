import numpy as np
from sklearn.metrics import f1_score

from nnunet_nacl.metrics import dice


def test_by_hand() -> None:
    assert dice(np.array([True, True, False]), np.array([False, True, True])) == 0.5
    assert dice(np.array([True, False]), np.array([False, False])) == 0
    assert np.isnan(dice(np.zeros(3, bool), np.zeros(3, bool)))


def test_equals_the_f1_score() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random((2, 10, 10)) < 0.4
    assert dice(a, b) == f1_score(a.ravel(), b.ravel())
