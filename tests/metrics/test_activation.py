"""Classes or regions: a region is a problem of two classes, outside and inside."""

import numpy as np
import pytest
import torch

from nnunet_nacl.metrics import Activation, dice, dice_of_sizes

CLASSES, REGIONS = Activation.SOFTMAX, Activation.SIGMOID


def test_a_region_is_a_problem_of_two_classes() -> None:
    generator = np.random.default_rng(0)
    inside = generator.normal(size=(1, 50)) * 5
    both = np.concatenate([np.zeros_like(inside), inside])
    truth = generator.random((1, 50)) > 0.5
    p, q = CLASSES.probabilities(both), REGIONS.probabilities(inside)
    np.testing.assert_allclose(p[1:], q, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(CLASSES.confidences(p), REGIONS.confidences(q), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(CLASSES.lowest_confidence(p), REGIONS.lowest_confidence(q), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(CLASSES.nll(both, truth[0]), REGIONS.nll(inside, truth), rtol=1e-9, atol=1e-14)
    np.testing.assert_array_equal(CLASSES.predicted(both), REGIONS.predicted(inside)[0])
    np.testing.assert_array_equal(CLASSES.members(truth[0], 2)[1:], REGIONS.members(truth, 1))
    np.testing.assert_allclose(CLASSES.foreground(p[0]), REGIONS.foreground(q[0]), rtol=1e-9, atol=1e-14)


def test_by_hand() -> None:
    p = np.array([[0.2, 0.5], [0.7, 0.1], [0.1, 0.4]])
    np.testing.assert_allclose(CLASSES.confidences(p), [[0.7, 0.5]])
    np.testing.assert_allclose(REGIONS.confidences(p), [[0.8, 0.5], [0.7, 0.9], [0.9, 0.6]])
    for channels in (p, iter(p)):  # an array, or what is read one channel after the other
        np.testing.assert_allclose(REGIONS.lowest_confidence(channels), [0.7, 0.5])
    np.testing.assert_allclose(CLASSES.lowest_confidence(iter(p)), [0.7, 0.5])
    assert CLASSES.members(np.array([1, 0]), 3).tolist() == [[False, True], [True, False], [False, False]]


@pytest.mark.parametrize("activation", Activation)
def test_tensors_as_arrays(activation: Activation) -> None:
    logits = np.random.default_rng(0).normal(size=(3, 7))
    found = activation.probabilities(torch.from_numpy(logits))
    np.testing.assert_allclose(found.numpy(), activation.probabilities(logits), rtol=1e-9, atol=1e-14)


def test_dice_of_sizes() -> None:
    np.testing.assert_array_equal(dice_of_sizes([3, 0, 0], [8, 5, 0]), [0.75, 0, np.nan])
    assert dice(np.array([[5, 1], [2, 3]]), [1]) == dice_of_sizes(3, 9) == 6 / 9
