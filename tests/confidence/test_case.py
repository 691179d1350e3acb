import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy

from nnunet_nacl.confidence import (
    DoubtSums,
    MemberOverlap,
    StructureSums,
    class_entropy,
    mutual_information,
    region_entropy,
    region_mutual_information,
)
from nnunet_nacl.metrics import confusion_matrix, dice

DTYPES = [np.float16, np.float32, np.float64]


def softmax(seed: int, classes: int = 3, size: int = 200) -> np.ndarray:
    z = np.exp(2 * np.random.default_rng(seed).normal(size=(classes, size)))
    return z / z.sum(0)


def test_sums_by_hand() -> None:
    sums = StructureSums.of(np.array([[0.75, 0.5], [0.25, 0.0]]), np.array([[True, True], [False, False]]))
    assert sums == StructureSums(4, 1.5, 2, 1.25, 3, 0.75)
    assert sums.predicted_dice == 2 * 1.25 / 3.5
    assert sums.expected_volume_ml(0.002) == pytest.approx(0.003)
    assert sums.segmented_volume_ml(0.002) == pytest.approx(0.004)
    assert sums.unsure_volume_ml(0.002) == pytest.approx(0.006)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_made_in_float64(dtype: type) -> None:
    size = 100_000  # summed up in float16 it would stop at 2,048 or overflow
    sums = StructureSums.of(np.full(size, 0.5, dtype), np.ones(size, bool))
    assert (sums.probability, sums.overlap) == (size / 2, size / 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_limits_of_unsure_are_not_unsure_in_any_dtype(dtype: type) -> None:
    p = np.array([0.1, 0.9, 0.11, 0.89, 0.0, 1.0]).astype(dtype)
    assert StructureSums.of(p, np.zeros(6, bool)).unsure == 2


def test_empty_structures() -> None:
    nothing, everything = np.zeros(3, bool), np.ones(3, bool)
    assert StructureSums.of(np.zeros(3), nothing).predicted_dice == 1
    assert StructureSums.of(np.zeros(3), everything).predicted_dice == 0
    assert StructureSums.of(np.full(3, 1e-6), nothing).predicted_dice == 0
    assert StructureSums.of(np.ones(3), everything).predicted_dice == 1
    none = StructureSums.of(np.zeros(0), np.zeros(0, bool))
    assert none == StructureSums()
    assert none.predicted_dice == 1
    assert none.expected_volume_ml(1) == 0


@given(seed=st.integers(0, 1000), cut=st.integers(0, 200))
@settings(max_examples=30, deadline=None)
def test_parts_add_up_and_order_does_not_matter(seed: int, cut: int) -> None:
    p = softmax(seed)[1]
    s = np.random.default_rng(seed).random(200) < p
    whole = StructureSums.of(p, s)
    order = np.random.default_rng(seed).permutation(200)
    for other in (
        StructureSums.of(p[:cut], s[:cut]) + StructureSums.of(p[cut:], s[cut:]),
        StructureSums.of(p[order], s[order]),
    ):
        assert (other.voxels, other.segmented, other.unsure) == (whole.voxels, whole.segmented, whole.unsure)
        assert other.max_probability == whole.max_probability
        assert other.predicted_dice == pytest.approx(whole.predicted_dice, abs=1e-12)
        assert other.probability == pytest.approx(whole.probability, abs=1e-12)
    assert 0 <= whole.predicted_dice <= 1
    assert whole.expected_volume_ml(3) == pytest.approx(3 * whole.expected_volume_ml(1))


def test_predicted_dice_of_a_sure_model_is_the_dice() -> None:
    generator = np.random.default_rng(0)
    y, s = generator.integers(0, 2, (2, 500))
    found = StructureSums.of(y.astype(np.float32), s.astype(bool)).predicted_dice
    assert found == pytest.approx(dice(confusion_matrix(y, s, 2), [1]))


@pytest.mark.parametrize(
    ("p", "s", "said"),
    [
        ([0.5, np.nan], [True, True], r"probabilities must be in \[0, 1\]; got values from nan to nan"),
        ([0.5, 1.5], [True, True], r"probabilities must be in \[0, 1\]; got values from 0.5 to 1.5"),
        ([0, 1], [True, True], "probabilities must be of a floating dtype; got int64"),
        ([0.5, 0.5], [1, 0], "segmentation must be of dtype bool; got int64"),
        ([0.5, 0.5], [True], r"segmentation must have the shape \(2,\); got \(1,\)"),
    ],
)
def test_bad_sums(p: list, s: list, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        StructureSums.of(np.array(p), np.array(s))


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_bad_voxel_volume(value: float) -> None:
    for volume in ("expected_volume_ml", "segmented_volume_ml", "unsure_volume_ml"):
        with pytest.raises(ValueError, match="voxel_ml must be a number above 0; got"):
            getattr(StructureSums(), volume)(value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_entropy_equals_scipys(dtype: type) -> None:
    p = softmax(1).astype(dtype)
    reference = p.astype(np.float64)
    expected = -(reference * np.log(reference)).sum(0)
    np.testing.assert_allclose(class_entropy(p), expected, atol=1e-12)
    np.testing.assert_allclose(class_entropy(softmax(1)), scipy_entropy(softmax(1)), atol=1e-12)
    pair = np.stack([softmax(1)[0], 1 - softmax(1)[0]])
    np.testing.assert_allclose(region_entropy(softmax(1)[0]), scipy_entropy(pair), atol=1e-12)
    np.testing.assert_allclose(class_entropy(p[:1]) + class_entropy(p[1:]), class_entropy(p), atol=1e-12)


def test_doubt_by_hand() -> None:
    entropy, confidence = np.array([0.6, 0.0, 0.3]), np.array([0.5, 1.0, 0.75])
    near = np.array([True, False, True])
    doubt = DoubtSums.of(entropy, confidence, near)
    assert doubt == DoubtSums(2, pytest.approx(0.9), pytest.approx(0.75))
    assert doubt.mean_entropy == pytest.approx(0.45)
    assert doubt.mean_error == pytest.approx(0.375)
    parts = DoubtSums.of(entropy[:1], confidence[:1], near[:1]) + DoubtSums.of(entropy[1:], confidence[1:], near[1:])
    assert parts == DoubtSums(2, pytest.approx(0.9), pytest.approx(0.75))
    assert DoubtSums.of(entropy, confidence).voxels == 3
    nowhere = DoubtSums.of(entropy, confidence, np.zeros(3, bool))
    assert nowhere == DoubtSums()
    assert np.isnan([nowhere.mean_entropy, nowhere.mean_error]).all()


def test_bad_doubt() -> None:
    good = np.array([0.5])
    with pytest.raises(ValueError, match="entropy and confidence must have one shape"):
        DoubtSums.of(good, np.ones(2))
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(ValueError, match="entropy must be finite and at least 0"):
            DoubtSums.of(np.array([bad]), good)
    with pytest.raises(ValueError, match="confidence must be in"):
        DoubtSums.of(good, np.array([np.nan]))
    with pytest.raises(ValueError, match="where must have the shape"):
        DoubtSums.of(good, good, np.ones(2, bool))
    for function in (class_entropy, region_entropy):
        with pytest.raises(ValueError, match="probabilities must be in"):
            function(np.array([[np.nan]]))


def test_members_by_hand() -> None:
    masks = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]], bool)
    overlap = MemberOverlap.of(masks)
    assert overlap.shared.tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 2]]
    assert overlap.mean_pairwise_dice == pytest.approx((2 / 3 + 0 + 0) / 3)
    assert MemberOverlap.of(np.zeros((3, 5), bool)).mean_pairwise_dice == 1  # absent from all
    assert MemberOverlap.of(np.array([[True], [False]])).mean_pairwise_dice == 0
    assert MemberOverlap.of(np.ones((4, 2, 2), bool)).mean_pairwise_dice == 1


@given(seed=st.integers(0, 1000), members=st.integers(2, 5), cut=st.integers(0, 60))
@settings(max_examples=30, deadline=None)
def test_agreement_equals_the_dice_of_pairs(seed: int, members: int, cut: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 3, (members, 60))
    pairs = [dice(confusion_matrix(labels[a], labels[b], 3), [1]) for a in range(members) for b in range(a)]
    overlap = MemberOverlap.of(labels == 1)
    assert overlap.mean_pairwise_dice == pytest.approx(np.mean(pairs))
    parts = MemberOverlap.of(labels[:, :cut] == 1) + MemberOverlap.of(labels[:, cut:] == 1)
    assert parts.shared.tolist() == overlap.shared.tolist()


def test_mutual_information_of_agreeing_and_opposed_members() -> None:
    same = np.stack([softmax(0)] * 3)
    np.testing.assert_allclose(mutual_information(same), 0, atol=1e-12)
    np.testing.assert_allclose(region_mutual_information(same[:, 1]), 0, atol=1e-12)
    opposed = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
    np.testing.assert_allclose(mutual_information(opposed), np.log(2))
    np.testing.assert_allclose(region_mutual_information(opposed[:, 0]), np.log(2))


@given(seed=st.integers(0, 1000), dtype=st.sampled_from(DTYPES))
@settings(max_examples=30, deadline=None)
def test_mutual_information_is_the_mean_divergence_from_the_mean(seed: int, dtype: type) -> None:
    members = np.stack([softmax(seed + m) for m in range(4)]).astype(dtype)
    if dtype is np.float64:  # what it is defined as; only probabilities that sum to 1 have a divergence
        divergence = scipy_entropy(members, members.mean(0)[None], axis=1).mean(0)
        np.testing.assert_allclose(mutual_information(members), divergence, atol=1e-12)
    channels = sum(mutual_information(members[:, k : k + 1]) for k in range(3))
    np.testing.assert_allclose(channels, mutual_information(members), atol=1e-12)
    assert (mutual_information(members) >= 0).all()
    p = members[:, 0].astype(np.float64)
    both = mutual_information(np.stack([p, 1 - p], axis=1))
    np.testing.assert_allclose(region_mutual_information(p), both, atol=1e-12)


def test_bad_members() -> None:
    with pytest.raises(ValueError, match=r"masks must hold at least 2 members .* got the shape \(1, 3\)"):
        MemberOverlap.of(np.ones((1, 3), bool))
    with pytest.raises(ValueError, match="masks must be of dtype bool"):
        MemberOverlap.of(np.ones((2, 3)))
    with pytest.raises(ValueError, match="same members; got 2 and 3"):
        MemberOverlap.of(np.ones((2, 3), bool)) + MemberOverlap.of(np.ones((3, 3), bool))
    for function in (mutual_information, region_mutual_information):
        with pytest.raises(ValueError, match="members must hold at least 2 members"):
            function(np.ones((1, 2, 3)))
        with pytest.raises(ValueError, match=r"members must be in \[0, 1\]"):
            function(np.full((2, 2, 3), np.nan))
