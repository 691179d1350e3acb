"""Labels and channels: which regions a label map can hold, and classes or regions (a problem of two classes each)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from nnunet_nacl.metrics import Activation, LabelMeaning, segment

BRATS = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "enhancing": [3]}
APART = {"background": 0, "A": [1, 4], "B": [2, 3]}
OVERLAPPING = {"background": 0, "A": [1, 3], "B": [2, 3]}
MANY = {str(label): [label] for label in range(1, 8193)}


def meaning_of(labels: dict[str, object], order: list[int]) -> LabelMeaning:
    regions = [tuple(value) for name, value in labels.items() if name != "background"]  # type: ignore[arg-type]
    return LabelMeaning.of_names(labels, regions, order)


@pytest.mark.parametrize(("labels", "order", "is_held"), [
    (BRATS, [1, 2, 3], True),
    (APART, [1, 2], True),
    (OVERLAPPING, [1, 2], False),
    ({"background": 0, "core": [2], "whole": [1, 2]}, [2, 1], False),  # nested, in the wrong order
    (APART, [2, 4], False),  # each writes a label of the other
    ({"background": 0, "kidney": [1, 2, 3], "mass": [2, 3], "tumor": [2]}, [1, 3, 2], True),  # as in KiTS
    ({"background": 0, "all": list(range(1, 8194)), **MANY}, [8193, *range(1, 8193)], True),
    ({"background": 0, "all": list(range(1, 8193)), **MANY}, [1, *range(1, 8193)], False),  # nothing is left for all
    ({"background": 0, "whole": [1, 2], "core": [2]}, [1, 7], False),  # of no region
    ({"background": 0, "whole": [1, 2], "core": [2]}, [2, 2], False),
    ({"background": 0, "whole": [1, 2], "again": [1, 2]}, [1, 2], False),
])  # fmt: skip
def test_regions_that_a_label_map_holds(labels: dict[str, object], order: list[int], is_held: bool) -> None:
    assert (meaning_of(labels, order).note_on_overlap is None) == is_held


@given(
    st.lists(st.sets(st.integers(1, 5), min_size=1), min_size=2, max_size=4).flatmap(
        lambda regions: st.tuples(
            st.just(regions), st.lists(st.integers(1, 5), min_size=len(regions), max_size=len(regions))
        )
    )
)
def test_what_is_held_is_what_nnunet_writes_of_a_perfect_prediction(drawn: tuple[list[set[int]], list[int]]) -> None:
    regions, order = drawn
    labels = {"background": 0} | {f"region {n}": sorted(region) for n, region in enumerate(regions)}
    every = {"background": 0, "a": [1, 2], "b": [3, 4, 5]} | labels  # so that nnU-Net finds regions among them
    order = [1, 3, *order]
    meaning = meaning_of(every, order)
    y = np.arange(6)
    masks = np.array([np.isin(y, region) for region in meaning.regions or ()])
    written = LabelManager(every, order).convert_probabilities_to_segmentation(masks.astype(np.float32))
    is_held = all(np.array_equal(np.isin(written, r), m) for r, m in zip(meaning.regions or (), masks, strict=True))
    assert is_held or meaning.note_on_overlap is not None
    np.testing.assert_array_equal(segment(masks.astype(np.float32), meaning), written)


def test_the_first_of_equal_classes_wins_and_a_region_needs_more_than_a_half_as_in_nnunet() -> None:
    p = np.random.default_rng(0).integers(0, 5, (4, 3, 5, 7)).astype(np.float32) / 4
    found = segment(p, LabelMeaning(tuple(range(4))))
    np.testing.assert_array_equal(found, p.argmax(0))
    assert found.dtype == np.uint8
    of_regions = LabelManager(BRATS, [1, 2, 3]).convert_probabilities_to_segmentation(p[1:])
    np.testing.assert_array_equal(segment(p[1:], meaning_of(BRATS, [1, 2, 3])), of_regions)


CLASSES, REGIONS = Activation.SOFTMAX, Activation.SIGMOID


def test_a_region_is_a_problem_of_two_classes() -> None:
    generator = np.random.default_rng(0)
    inside = generator.normal(size=(1, 50)) * 5
    both = np.concatenate([np.zeros_like(inside), inside])
    p, q = CLASSES.probabilities(both), REGIONS.probabilities(inside)
    np.testing.assert_allclose(p[1:], q, rtol=1e-9, atol=1e-14)
    for activation, logits, expected in ((CLASSES, both, p), (REGIONS, inside, q)):
        of_tensor = activation.probabilities(torch.from_numpy(logits)).numpy()
        np.testing.assert_allclose(of_tensor, expected, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(CLASSES.lowest_confidence(p), REGIONS.lowest_confidence(q), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(CLASSES.foreground(p[0]), REGIONS.foreground(q[0]), rtol=1e-9, atol=1e-14)


def test_confidences_by_hand() -> None:
    p = np.array([[0.2, 0.5], [0.7, 0.1], [0.1, 0.4]])
    for channels in (p, iter(p)):  # an array, or what is read one channel after the other
        np.testing.assert_allclose(REGIONS.lowest_confidence(channels), [0.7, 0.5])
    np.testing.assert_allclose(CLASSES.lowest_confidence(iter(p)), [0.7, 0.5])
