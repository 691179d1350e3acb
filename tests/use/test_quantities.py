"""Predicted Dice, doubt and agreement: by hand, and against SciPy and the package's own Dice."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy

from nnunet_nacl.metrics import confusion_matrix, dice
from nnunet_nacl.nnunet import LabelMeaning, PredictionFolder
from nnunet_nacl.use import StructureSums
from nnunet_nacl.use._quantities import DoubtSums, class_entropy, mean_pairwise_dice, region_entropy
from tests.use.generated import random_probabilities, softmax, write_folder

DTYPES = [np.float16, np.float32, np.float64]


def distribution(seed: int, size: int = 200) -> np.ndarray:
    return softmax(2 * np.random.default_rng(seed).normal(size=(3, size)))


@pytest.fixture(scope="module")
def meaning(tmp_path_factory: pytest.TempPathFactory) -> LabelMeaning:
    folder = write_folder(tmp_path_factory.mktemp("described") / "in", {"a": random_probabilities(0)})
    return PredictionFolder.read(folder).data_set.meaning


def test_sums_by_hand() -> None:
    sums = StructureSums.of(np.array([[0.75, 0.5], [0.25, 0.0]]), np.array([[True, True], [False, False]]))
    assert sums == StructureSums(4, 1.5, 2, 1.25, 3, 0.75)
    assert sums.predicted_dice == sums.dice_to_expect == 2 * 1.25 / 3.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_in_any_dtype(dtype: type) -> None:
    size = 100_000  # summed up in float16 it would stop at 2,048 or overflow
    sums = StructureSums.of(np.full(size, 0.5, dtype), np.ones(size, bool))
    assert (sums.probability, sums.overlap) == (size / 2, size / 2)
    limits = np.array([0.1, 0.9, 0.11, 0.89, 0.0, 1.0]).astype(dtype)
    assert StructureSums.of(limits, np.zeros(6, bool)).unsure == 2


def test_empty_structures() -> None:
    nothing, everything = np.zeros(3, bool), np.ones(3, bool)
    assert StructureSums.of(np.zeros(3), nothing).predicted_dice == 1
    assert StructureSums.of(np.zeros(3), everything).predicted_dice == 0
    faint = StructureSums.of(np.full(3, 1e-6), nothing)
    assert (faint.predicted_dice, faint.dice_to_expect) == (0, 1 - 1e-6)
    assert StructureSums.of(np.zeros(0), np.zeros(0, bool)) == StructureSums()


@given(seed=st.integers(0, 1000), cut=st.integers(0, 200))
@settings(max_examples=20, deadline=None)
def test_parts_add_up_and_order_does_not_matter(seed: int, cut: int) -> None:
    p = distribution(seed)[1]
    s = np.random.default_rng(seed).random(200) < p
    whole, order = StructureSums.of(p, s), np.random.default_rng(seed).permutation(200)
    parts = StructureSums.of(p[:cut], s[:cut]) + StructureSums.of(p[cut:], s[cut:])
    for other in (parts, StructureSums.of(p[order], s[order])):
        assert vars(other) == pytest.approx(vars(whole), abs=1e-12)
    assert 0 <= whole.predicted_dice <= 1


def test_predicted_dice_of_a_sure_model_is_the_dice() -> None:
    y, s = np.random.default_rng(0).integers(0, 2, (2, 500))
    found = StructureSums.of(y.astype(np.float32), s.astype(bool)).predicted_dice
    assert found == pytest.approx(dice(confusion_matrix(y, s, 2), [1]))


@pytest.mark.parametrize(
    ("p", "s", "said"),
    [
        ([0.5, np.nan], [True, True], r"probabilities must be in \[0, 1\]; got values from nan to nan"),
        ([0, 1], [True, True], "probabilities must be of a floating dtype; got int64"),
        ([0.5, 0.5], [True], r"segmentation must have the shape \(2,\); got \(1,\)"),
    ],
)
def test_bad_sums(p: list, s: list, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        StructureSums.of(np.array(p), np.array(s))


@pytest.mark.parametrize("dtype", DTYPES)
def test_entropy_equals_scipys(dtype: type) -> None:
    p = distribution(1).astype(dtype)
    exact = p.astype(np.float64)
    np.testing.assert_allclose(class_entropy(p), -(exact * np.log(exact)).sum(0), atol=1e-12)
    pair = np.stack([exact[0], 1 - exact[0]])
    np.testing.assert_allclose(region_entropy(p[0]), scipy_entropy(pair), atol=1e-12)
    np.testing.assert_allclose(class_entropy(p[:1]) + class_entropy(p[1:]), class_entropy(p), atol=1e-12)


def test_doubt_by_hand() -> None:
    doubt = DoubtSums.of(np.array([0.6, 0.3]), np.array([0.5, 0.75]))
    assert (doubt.mean_entropy, doubt.mean_error) == pytest.approx((0.45, 0.375))
    nowhere = DoubtSums.of(np.empty(0), np.empty(0))
    assert (nowhere.voxels, nowhere.mean_entropy, nowhere.mean_error) == (0, None, None)


def test_agreement_by_hand(meaning: LabelMeaning) -> None:
    labels = [np.array(one, np.uint8) for one in ([1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1])]
    assert mean_pairwise_dice(labels, meaning) == pytest.approx(((2 / 3 + 0 + 0) / 3, 1))  # 1: absent from all
    drawn = np.random.default_rng(0).integers(0, 3, (4, 60)).astype(np.uint8)
    pairs = [[dice(confusion_matrix(drawn[a], drawn[b], 3), [k]) for a in range(4) for b in range(a)] for k in (1, 2)]
    assert mean_pairwise_dice([*drawn], meaning) == pytest.approx(np.mean(pairs, axis=1))
