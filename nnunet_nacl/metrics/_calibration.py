"""Calibration errors from bin tables, and the log-likelihood."""

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._bootstrap import ratio

NLL_CLIP = float(np.finfo(np.float32).eps)
"""Probabilities below this (1.19e-7) count as this much in the NLL; a p of 0 would make it infinite."""

# Fine bins are bins of 1 - c, 64 to each factor of two: saturated networks put most confidences right below 1.
_STEPS = 64
_SMALLEST = 127 - 24  # exponent of 2^-24, the distance from 1 to the float32 below it
NUM_FINE_BINS = 24 * _STEPS + 2
FINE_SHIFT = 23 - 6
"""Shifts the bits of the float32 1 − c so far that its exponent and the first 6 bits of its fraction are left."""
FINE_OFFSET = (_SMALLEST << 6) - 1
"""What is then subtracted to give the fine bin, at least 0."""


def expected_calibration_error(bins: BinCounts) -> NDArray[np.float64]:
    r"""ECE, the gap between accuracy and confidence, averaged over the voxels.

    .. math:: ECE = \sum_m \frac{|B_m|}{N} |acc(B_m) - conf(B_m)|

    Args:
        bins: top-label tables (confidence = max_k p_k, hit = argmax is right), or tables of one class
            (confidence = p_k, hit = y is k), which give that class's ECE_k; of shape (..., M).

    Returns:
        (...) ECE in [0, 1]; NaN for a table without voxels.

    References:
        Naeini et al., AAAI 2015; Murugesan et al., Medical Image Analysis 2025, section 4.1.2, equations 10
        and 11 (which sums over the classes).

    >>> table = BinCounts.of(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False]))
    >>> round(float(expected_calibration_error(table)), 3)  # 2/4 |1 - 0.9| + 2/4 |0.5 - 0.6|
    0.1
    """
    return ratio(np.abs(bins.hits - bins.confidence).sum(-1), bins.total)


def maximum_calibration_error(bins: BinCounts) -> NDArray[np.float64]:
    r"""MCE (...), the largest gap of a bin: :math:`\max_m |acc(B_m) - conf(B_m)|`; NaN without voxels.

    References:
        Naeini et al., AAAI 2015.
    """
    return np.where(bins.total > 0, _bin_gaps(bins).max(-1), np.nan)


def average_calibration_error(bins: BinCounts) -> NDArray[np.float64]:
    """ACE (...), the gap of a bin averaged over the bins that hold voxels, each counting the same; NaN without voxels.

    References:
        Neumann et al., NeurIPS workshop 2018 (netcal's ACE).
    """
    filled = (bins.count > 0).sum(-1)
    return np.where(bins.total > 0, _bin_gaps(bins).sum(-1) / np.maximum(filled, 1), np.nan)


def _bin_gaps(bins: BinCounts) -> NDArray[np.float64]:
    return np.nan_to_num(ratio(np.abs(bins.hits - bins.confidence), bins.count))  # empty bins have none


def fine_histogram(confidences: NDArray[np.floating], hits: NDArray[np.bool_]) -> BinCounts:
    """Histogram of 1 − c in 1,538 bins, from the highest c to the lowest: c = 1, then 64 for each halving of 1 − c."""
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


def nll_sum(probabilities: NDArray[np.floating]) -> float:
    r"""Negative log-likelihood :math:`-\sum_i \ln \max(p_i, 1.19 \cdot 10^{-7})` of events given p (n,), in nats.

    >>> round(nll_sum(np.array([0.5, 1.0, 0.0])), 4)  # ln 2 + 0 - ln 1.19e-7
    16.6355
    """
    return float(-np.log(np.maximum(probabilities.astype(np.float64), NLL_CLIP)).sum())
