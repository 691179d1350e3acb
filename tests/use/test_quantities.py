"""Predicted Dice and agreement, by hand."""

import numpy as np
import pytest

from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.use import StructureSums, mean_pairwise_dice


def test_sums_by_hand() -> None:
    sums = StructureSums.of(np.array([[0.75, 0.5], [0.25, 0.0]]), np.array([[True, True], [False, False]]))
    assert sums == StructureSums(1.5, 2, 1.25, 3, 0.75)
    assert sums.predicted_dice == sums.dice_to_expect == 2 * 1.25 / 3.5


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sums_in_any_dtype(dtype: type) -> None:
    size = 100_000  # summed up in float16 it would stop at 2,048 or overflow
    sums = StructureSums.of(np.full(size, 0.5, dtype), np.ones(size, bool))
    assert (sums.probability, sums.overlap) == (size / 2, size / 2)
    limits = np.array([0.1, 0.9, 0.11, 0.89, 0.0, 1.0]).astype(dtype)
    assert StructureSums.of(limits, np.zeros(6, bool)).unsure == 2


def test_agreement_by_hand() -> None:
    meaning = LabelMeaning((0, 1, 2))
    labels = [np.array(one, np.uint8) for one in ([1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1])]
    assert mean_pairwise_dice(labels, meaning) == pytest.approx(((2 / 3 + 0 + 0) / 3, 1))  # 1: absent from all
