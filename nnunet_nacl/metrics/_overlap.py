"""Overlap of two masks."""

import numpy as np
from numpy.typing import NDArray


def dice(reference: NDArray[np.bool_], prediction: NDArray[np.bool_]) -> float:
    """Dice, ``2 |A ∩ B| / (|A| + |B|)``; NaN if both masks are empty, as nnU-Net reports it.

    >>> dice(np.array([True, True, False]), np.array([True, False, False]))
    0.6666666666666666
    """
    size = int(np.count_nonzero(reference)) + int(np.count_nonzero(prediction))
    if size == 0:
        return float("nan")
    return 2 * int(np.count_nonzero(reference & prediction)) / size
