from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nnunet_nacl.use import dice_optimal_labels, dice_optimal_mask

EVEN = st.floats(0, 1, width=16)
"""Few different values, so that many are equal."""
DTYPES = [np.float16, np.float32, np.float64]


def score(p: np.ndarray, mask: np.ndarray) -> float:
    """Expected Dice in the approximation of RankSEG."""
    p = p.astype(np.float64)
    return 2 * p[mask].sum() / (p.sum() + mask.sum() + 1) if mask.any() else 1 - p.max(initial=0)


def scores(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.array([score(p[k], labels == k) for k in range(1, len(p))])


def test_by_hand() -> None:
    # Σ p = 2.2: 2 · 0.9 / 4.2 = 0.43, 3.4 / 5.2 = 0.65, 4.2 / 6.2 = 0.68, 4.4 / 7.2 = 0.61
    found = dice_optimal_mask(np.array([0.4, 0.9, 0.1, 0.8]))
    assert found.mask.tolist() == [True, True, False, True]
    assert found.expected_dice == pytest.approx(4.2 / 6.2)
    assert found.threshold == pytest.approx(2.1 / 6.2)


@given(p=arrays(np.float64, st.integers(1, 8), elements=EVEN))
@settings(max_examples=60, deadline=None)
def test_no_mask_is_better(p: np.ndarray) -> None:
    found = dice_optimal_mask(p)
    best = max(score(p, np.array(mask, bool)) for mask in product([0, 1], repeat=p.size))
    assert found.expected_dice == pytest.approx(best, abs=1e-12)
    assert score(p, found.mask) == pytest.approx(best, abs=1e-12)
    assert np.array_equal(found.mask, p > found.threshold)
    if found.mask.any():
        assert found.threshold == pytest.approx(best / 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes(dtype: type) -> None:
    leaked = np.full(10_000, 0.016, dtype)  # what label smoothing leaves of each structure in every voxel
    found = dice_optimal_mask(leaked)
    assert (found.mask.any(), found.threshold, found.expected_dice) == (False, 1, pytest.approx(0.984, abs=1e-5))
    assert not dice_optimal_labels(np.stack([1 - 2 * leaked, leaked, leaked])).labels.any()
    full = dice_optimal_mask(np.ones((20, 20), dtype))
    assert (full.mask.all(), full.expected_dice) == (True, pytest.approx(800 / 801))
    labels = dice_optimal_labels(np.stack([np.zeros(50), np.ones(50), np.zeros(50)]).astype(dtype))
    assert (labels.labels == 1).all()
    assert labels.expected_dice[1] == 1


def test_same_as_rankseg() -> None:
    pytest.importorskip("rankseg")
    import torch
    from rankseg import rankseg_rma

    p = np.random.default_rng(0).beta(0.4, 1.2, (6, 1, 20, 30))
    theirs = rankseg_rma(torch.from_numpy(p), output_mode="multilabel", pruning_prob=0.0).numpy()
    for image, mask in zip(p[:, 0], theirs[:, 0], strict=True):
        assert np.array_equal(dice_optimal_mask(image).mask, mask)


@given(seed=st.integers(0, 10_000), classes=st.integers(2, 6), scale=st.floats(0.1, 6), dtype=st.sampled_from(DTYPES))
@settings(max_examples=40, deadline=None)
def test_labels_are_never_worse_than_argmax_or_a_threshold(seed: int, classes: int, scale: float, dtype: type) -> None:
    z = np.exp(scale * np.random.default_rng(seed).normal(size=(classes, 120)))
    p = (z / z.sum(0)).astype(dtype)
    found = dice_optimal_labels(p)
    assert scores(p, found.labels) == pytest.approx(found.expected_dice, abs=1e-9)
    largest, label = p[1:].max(0), p[1:].argmax(0) + 1
    candidates = [p.argmax(0), *(np.where(largest > t, label, 0) for t in [0.0, *np.unique(p[1:])[::7], 0.5])]
    assert found.expected_dice.mean() >= max(scores(p, labels).mean() for labels in candidates) - 1e-9
    apart = np.array([dice_optimal_mask(channel).expected_dice for channel in p[1:]])
    assert (found.expected_dice <= apart + 1e-9).all()  # each structure by itself cannot do worse


def test_where_two_structures_are_probable_the_smaller_one_gains() -> None:
    # Voxel 0: 0.5 of a large structure, 0.45 of a small one.
    p = np.zeros((3, 200))
    p[1, 1:101], p[2, 101:104] = 1, 1
    p[1, 0], p[2, 0] = 0.5, 0.45
    p[0] = 1 - p[1:].sum(0)
    found = dice_optimal_labels(p)
    assert p.argmax(0)[0] == 1
    assert found.labels[0] == 2
    assert found.expected_dice.mean() > scores(p, p.argmax(0)).mean()


def test_bad_probabilities() -> None:
    for bad in (np.array([0.5, np.nan]), np.array([0.5, -0.1]), np.array([1, 0])):
        with pytest.raises(ValueError, match="probabilities must be"):
            dice_optimal_mask(bad)
    with pytest.raises(ValueError, match=r"at least 2 classes, background first; got \(1, 4\)"):
        dice_optimal_labels(np.ones((1, 4)))
