"""Which regions a label map can hold, against nnU-Net's own way to write one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from nnunet_nacl.metrics import LabelMeaning, segment

BRATS = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "enhancing": [3]}
APART = {"background": 0, "A": [1, 4], "B": [2, 3]}
OVERLAPPING = {"background": 0, "A": [1, 3], "B": [2, 3]}


def meaning_of(labels: dict[str, object], order: list[int]) -> LabelMeaning:
    regions = [tuple(value) for name, value in labels.items() if name != "background"]  # type: ignore[arg-type]
    return LabelMeaning.of_names(labels, regions, order)


@pytest.mark.parametrize(("labels", "order", "is_held"), [
    (BRATS, [1, 2, 3], True),
    (APART, [1, 2], True),
    (OVERLAPPING, [1, 2], False),
    ({"background": 0, "core": [2], "whole": [1, 2]}, [2, 1], False),  # nested, in the wrong order
    (APART, [2, 4], False),  # each writes a label of the other
    ({"background": 0, "whole": [1, 2], "core": [2]}, [1, 7], False),  # of no region
    ({"background": 0, "whole": [1, 2], "core": [2]}, [2, 2], False),
])  # fmt: skip
def test_by_hand(labels: dict[str, object], order: list[int], is_held: bool) -> None:
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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_of_equal_probabilities_the_first_class_wins_as_in_nnunet(dtype: type[np.floating]) -> None:
    p = np.random.default_rng(0).integers(0, 3, (4, 3, 5, 7)).astype(dtype) / 4
    found = segment(p, LabelMeaning(tuple(range(4))))
    np.testing.assert_array_equal(found, p.argmax(0))
    assert found.dtype == np.uint8
