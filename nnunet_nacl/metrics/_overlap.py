"""Overlap of two segmentations."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnunet_nacl.metrics._bins import ratio
from nnunet_nacl.metrics._labels import LabelMeaning, region_of
from nnunet_nacl.metrics._loops import count_pairs
from nnunet_nacl.typing import Floats, Labels


def confusion_matrix(
    ground_truth: Labels, prediction: Labels, num_labels: int
) -> NDArray[np.int64]:
    """Count the voxels with label i in the ground truth and j in the prediction, of 0 to L − 1: int64 (L, L).

    Raises a ValueError for other labels, or another shape of the prediction.
    """
    if prediction.shape != ground_truth.shape:
        raise ValueError(
            f"expected a prediction of the shape {ground_truth.shape}; got {prediction.shape}."
        )
    rows = ground_truth.reshape(-1)
    columns = prediction.reshape(-1)
    for labels in (rows, columns):
        lowest = labels.min(initial=0)
        highest = labels.max(initial=0)
        if lowest < 0 or highest >= num_labels:
            raise ValueError(
                f"expected labels from 0 to {num_labels - 1}; got {lowest} to {highest}."
            )
    pairs = np.zeros((num_labels, num_labels), np.int64)
    count_pairs(rows, columns, pairs)
    return pairs


def dice(confusion: NDArray[np.int64], labels: Sequence[int]) -> float:
    """Compute the Dice of the region of some labels; NaN if it is in neither, as nnU-Net reports it.

        Dice = 2 |A ∩ B| / (|A| + |B|)

    >>> from nnunet_nacl.metrics import confusion_matrix
    >>> dice(confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2), [1])
    0.6666666666666666
    """
    chosen = sorted(set(labels))  # dataset.json may name one twice
    sizes = confusion[chosen].sum() + confusion[:, chosen].sum()
    return float(dice_of_sizes(confusion[np.ix_(chosen, chosen)].sum(), sizes))


def dice_of_sizes(shared: ArrayLike, sizes: ArrayLike) -> Floats:
    """Compute the Dice from |A ∩ B| and |A| + |B|, (...) each; NaN where the latter is 0."""
    return ratio(2 * np.asarray(shared, np.float64), np.asarray(sizes))


def mean_pairwise_dice(segmentations: Sequence[Labels], meaning: LabelMeaning) -> tuple[float, ...]:
    """Compute the agreement on each structure: the mean over pairs of ``2 |A ∩ B| / (|A| + |B|)``, 1 for 0 / 0.

    References:
        Roy et al., NeuroImage 2019; Zenk et al., Medical Image Analysis 2025, where it detects failed segmentations
        most reliably.
    """
    found = []
    for pair in combinations(segmentations, 2):
        confusion = confusion_matrix(*pair, meaning.ignored + 1)
        found.append([dice(confusion, region_of(one)) for one in meaning.structures])
    return tuple(np.nan_to_num(found, nan=1.0).mean(0).tolist())
