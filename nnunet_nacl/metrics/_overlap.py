"""Overlap of two segmentations."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 16


def confusion_matrix(
    ground_truth: NDArray[np.integer], prediction: NDArray[np.integer], num_labels: int
) -> NDArray[np.int64]:
    """How many voxels have label i in the ground truth and j in the prediction.

    Args:
        ground_truth: labels of any shape, 0 to ``num_labels`` − 1.
        prediction: the same.
        num_labels: L.

    Returns:
        int64 (L, L).
    """
    # Block by block: the indices of a whole image would take eight bytes a voxel.
    matrix = np.zeros(num_labels * num_labels, np.int64)
    rows, columns = ground_truth.ravel(), prediction.ravel()
    for start in range(0, rows.size, _BLOCK):
        index = rows[start : start + _BLOCK].astype(np.intp) * num_labels + columns[start : start + _BLOCK]
        matrix += np.bincount(index, minlength=num_labels * num_labels)
    return matrix.reshape(num_labels, num_labels)


def dice(confusion: NDArray[np.int64], labels: Sequence[int]) -> float:
    """Dice of a label or region, ``2 |A ∩ B| / (|A| + |B|)``; NaN if it is in neither, as nnU-Net reports it.

    Args:
        confusion: what :func:`confusion_matrix` returns.
        labels: the label, or the labels of the region.

    >>> dice(confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2), [1])
    0.6666666666666666
    """
    chosen = list(labels)
    size = int(confusion[chosen].sum()) + int(confusion[:, chosen].sum())
    if size == 0:
        return np.nan
    return 2 * int(confusion[np.ix_(chosen, chosen)].sum()) / size
