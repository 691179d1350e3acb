"""Adaptive ECE: bins that hold the same number of voxels, from a histogram so fine that no sorting is needed."""

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import BinCounts

# Fine bins are bins of 1 - c, 64 to each factor of two: saturated networks put most confidences right below 1.
_STEPS = 64
_SMALLEST = 127 - 24  # exponent of 2^-24, the distance from 1 to the float32 below it
NUM_FINE_BINS = 24 * _STEPS + 2
FINE_SHIFT = 23 - 6
"""Shifts the bits of the float32 1 − c so far that its exponent and the first 6 bits of its fraction are left."""
FINE_OFFSET = (_SMALLEST << 6) - 1
"""What is then subtracted to give the fine bin, at least 0."""


def fine_histogram(confidences: NDArray[np.floating], hits: NDArray[np.bool_]) -> BinCounts:
    """Histogram of 1 − c in 1,538 bins: c = 1, then 64 bins for each halving of the distance to 1.

    Args:
        confidences: (n,) in [0, 1].
        hits: (n,) bool.

    Returns:
        Table of shape (1538,), from the highest confidence to the lowest.
    """
    distance = np.float32(1) - np.asarray(confidences, np.float32)
    bins = np.maximum((distance.view(np.int32) >> FINE_SHIFT) - FINE_OFFSET, 0)  # 0 for c = 1
    return BinCounts.at(bins.astype(np.intp), confidences, hits, NUM_FINE_BINS)


def adaptive_calibration_error(histogram: BinCounts, num_bins: int = 15) -> tuple[float, float]:
    r"""ECE over M bins of equal mass, and how far from the figure of a full sort it can be.

    .. math:: AECE = \sum_m \frac{1}{N} \left| \sum_{i \in B_m} (hit_i - c_i) \right|,\quad |B_m| = N / M

    The voxels of a fine bin that two or more of the M bins share are dealt out evenly. Equal confidences have no order,
    so for c = 1 that is the definition. Elsewhere it is an approximation; the second figure bounds its error by the
    worst order that the voxels within the fine bins could have.

    Args:
        histogram: what :func:`fine_histogram` returns; sums of them pool cases.
        num_bins: M.

    Returns:
        AECE in [0, 1] and the bound; NaN without voxels.

    References:
        Nguyen & O'Connor, EMNLP 2015; Nixon et al., CVPR workshops 2019.
    """
    total = int(histogram.total)
    if total == 0:
        return np.nan, np.nan
    filled = np.flatnonzero(histogram.count)[::-1]  # ascending confidence
    count, hits, confidence = histogram.count[filled], histogram.hits[filled], histogram.confidence[filled]
    ends = np.concatenate([[0], np.cumsum(count)])
    gaps = np.concatenate([[0], np.cumsum(hits - confidence)])
    cuts = total * np.arange(num_bins + 1) / num_bins
    error = np.abs(np.diff(np.interp(cuts, ends, gaps))).sum() / total

    at = np.searchsorted(ends, cuts[1:-1]) - 1  # the fine bin of each cut
    size, right = count[at], hits[at]
    below = cuts[1:-1] - ends[at]
    even = below / size * right
    misplaced_hits = np.maximum(np.minimum(below, right) - even, even - np.maximum(0, right - (size - below)))
    misplaced_confidence = below * (1 - below / size) * _widths()[filled[at]]
    misplaced = np.where(filled[at] == 0, 0, misplaced_hits + misplaced_confidence)
    return float(error), float(2 * misplaced.sum() / total)


def _widths() -> NDArray[np.float64]:
    """Width of each fine bin: 0 for c = 1."""
    bits = (np.arange(NUM_FINE_BINS - 1, dtype=np.int32) + (_SMALLEST << 6)) << FINE_SHIFT
    lower = bits.view(np.float32).astype(np.float64)
    return np.concatenate([[0.0], np.diff(lower, append=1.0)])
