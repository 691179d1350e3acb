"""Probabilities as logarithms, and back without a change of the winner."""

import numpy as np
from numpy.typing import NDArray

SMALLEST = float(np.finfo(np.float32).tiny)
"""What a p of 0 counts as: 1.18e-38, the smallest normal float32. Below it machines differ in what they round to 0."""

SMALLEST_REST = 2.0**-25
"""What 1 − p counts as for a region's p of 1: in float32, p rounds to 1 where 1 − p is below this."""


def log_probabilities(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """The logits up to a constant of each voxel, ln p; a p of 0 counts as 1.18e-38."""
    return np.log(np.maximum(probabilities.astype(np.float64), SMALLEST))


def log_odds(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """The logits of sigmoid channels, ln p − ln(1 − p); a p of 0 counts as 1.18e-38, one of 1 as 1 − 2^-25."""
    rest = np.maximum(1 - probabilities.astype(np.float64), SMALLEST_REST)
    return log_probabilities(probabilities) - np.log(rest)


def round_classes(before: NDArray[np.floating], after: NDArray[np.float64]) -> NDArray[np.float32]:
    """``after`` (C, n) in float32, in which two classes can become equal; the first of ``before`` stays ahead."""
    rounded = after.astype(np.float32)
    top = before.argmax(0)
    lost = np.flatnonzero(rounded.argmax(0) != top)
    rounded[top[lost], lost] = np.nextafter(rounded[:, lost].max(0), np.float32(2))
    return rounded


def round_regions(before: NDArray[np.floating], after: NDArray[np.float64]) -> NDArray[np.float32]:
    """``after`` (R, n) in float32, in which a p just above 1/2 can become 1/2; those of ``before`` stay above."""
    rounded = after.astype(np.float32)
    rounded[(before > 0.5) & (rounded <= 0.5)] = np.nextafter(np.float32(0.5), np.float32(1))
    return rounded
