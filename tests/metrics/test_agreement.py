"""The saved segmentation is what the probabilities give, up to postprocessing, or the case is named."""

from collections.abc import Callable

import numpy as np
import pytest
from nnunetv2.postprocessing.remove_connected_components import remove_all_but_largest_component_from_segmentation
from scipy.ndimage import gaussian_filter

from nnunet_nacl.metrics import ImpliedLabels, LabelMeaning
from tests.generated import segment, softmax

CLASSES = LabelMeaning(tuple(range(4)))
REGIONS = LabelMeaning(tuple(range(4)), ((1, 2, 3), (2, 3), (3,)), (1, 2, 3))


def given(p: np.ndarray, saved: np.ndarray, meaning: LabelMeaning) -> ImpliedLabels:
    found = ImpliedLabels(saved.reshape(-1), meaning, p.dtype)
    for channel, values in enumerate(p):
        found.add(channel, slice(None), values.reshape(-1).astype(np.result_type(p, np.float32)))
    return found


def check(p: np.ndarray, saved: np.ndarray, meaning: LabelMeaning) -> None:
    given(p, saved, meaning).check("x.npz")


def smooth_case(seed: int, *, regions: bool = False, shape: tuple[int, ...] = (6, 30, 32)) -> np.ndarray:
    """Probabilities of several structures in several components."""
    noise = np.random.default_rng(seed).normal(size=(3 if regions else 4, *shape))
    logits = 60 * gaussian_filter(noise, (0, 1.5, 2.5, 2.5))
    if regions:
        return (1 / (1 + np.exp(3 - logits))).astype(np.float32)
    logits[0] += 1
    return softmax(logits).astype(np.float32)


def postprocessed(labels: np.ndarray, structures: list[list[int] | tuple[int, ...] | int]) -> np.ndarray:
    for structure in structures:
        labels = remove_all_but_largest_component_from_segmentation(labels, structure)
    return labels


@pytest.mark.parametrize("meaning", [CLASSES, REGIONS], ids=["classes", "regions"])
@pytest.mark.parametrize(
    "structures", [[], [[1, 2, 3]], [1], [3, 1, 2], [[1, 2, 3], 2, 1], [(2, 3)], [(1, 2, 3), (2, 3)]]
)
def test_whatever_nnunets_postprocessing_leaves(meaning: LabelMeaning, structures: list[object]) -> None:
    changed = 0
    for seed in range(6):
        p = smooth_case(seed, regions=meaning is REGIONS)
        labels = segment(p, meaning is REGIONS)
        saved = postprocessed(labels, structures)
        assert (saved > 0).any()
        changed += int((saved != labels).any())
        check(p, saved, meaning)
    assert changed or not structures


@pytest.mark.parametrize("meaning", [CLASSES, REGIONS], ids=["classes", "regions"])
@pytest.mark.parametrize("change", [
    lambda labels: labels[:, ::-1], lambda labels: labels[:, :, ::-1], lambda labels: labels[::-1],
    lambda labels: np.roll(labels, 1, 2), lambda labels: 0 * labels, lambda labels: np.where(labels == 2, 1, labels),
    lambda labels: np.where(labels == 0, 1, labels),
])  # fmt: skip
def test_whatever_it_cannot_leave(meaning: LabelMeaning, change: Callable[[np.ndarray], np.ndarray]) -> None:
    p = smooth_case(0, regions=meaning is REGIONS)
    saved = change(segment(p, meaning is REGIONS)).astype(np.uint8)
    rule = "each region where p exceeds 1/2" if meaning is REGIONS else "the argmax"
    found = rf"^x\.npz: the segmentation .*; expected {rule}, but for components that postprocessing removed\. Was it"
    with pytest.raises(ValueError, match=found):
        check(p, saved, meaning)


def test_ties() -> None:
    p = np.array([[0.25, 0.5, 0.3], [0.375, 0.5, 0.3], [0.375, 0, 0.4]], np.float32)[:, None, None]
    for saved, right in (([1, 0, 2], True), ([2, 1, 2], True), ([1, 0, 1], False), ([1, 2, 2], False)):
        labels = np.array([[saved]], np.uint8)
        assert np.array_equal(given(p, labels, CLASSES).labels(), labels.reshape(-1)) == right
    p = np.array([[0.5, 0.5, 0.6, 0.6], [0.2, 0.7, 0.5, 0.5], [0, 0, 0, 0]], np.float16)[:, None, None]
    for saved, right in (([1, 2, 1, 2], True), ([0, 2, 2, 1], True), ([0, 1, 1, 1], False), ([2, 2, 1, 1], False)):
        labels = np.array([[saved]], np.uint8)
        assert np.array_equal(given(p, labels, REGIONS).labels(), labels.reshape(-1)) == right
