"""Calibration errors from bin tables."""

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import BinCounts, Counts


def expected_calibration_error(bins: BinCounts) -> NDArray[np.float64]:
    r"""ECE, the gap between accuracy and confidence, averaged over the voxels.

    .. math:: ECE = \sum_m \frac{|B_m|}{N} |acc(B_m) - conf(B_m)|

    Args:
        bins: top-label tables (confidence = max_k p_k, hit = argmax is right), or tables of one class
            (confidence = p_k, hit = y is k), which give that class's ECE_k; of shape (..., M).

    Returns:
        (...) ECE in [0, 1]; NaN for a table without voxels.

    References:
        Naeini et al., AAAI 2015; Murugesan et al., Medical Image Analysis 2024, section 4.1.2.

    >>> table = BinCounts.of(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False]))
    >>> round(float(expected_calibration_error(table)), 3)  # 2/4 |1 - 0.9| + 2/4 |0.5 - 0.6|
    0.1
    """
    return _ratio(np.abs(bins.hits - bins.confidence).sum(-1), bins.total)


def maximum_calibration_error(bins: BinCounts) -> NDArray[np.float64]:
    r"""MCE, the largest gap of a bin: :math:`\max_m |acc(B_m) - conf(B_m)|` over the bins that hold voxels.

    Args:
        bins: tables of shape (..., M).

    Returns:
        (...) MCE in [0, 1]; NaN for a table without voxels.

    References:
        Naeini et al., AAAI 2015.
    """
    gaps = _bin_gaps(bins)
    return np.where(bins.total > 0, np.where(np.isnan(gaps), 0, gaps).max(-1), np.nan)


def average_calibration_error(bins: BinCounts) -> NDArray[np.float64]:
    r"""ACE, the gap of a bin averaged over the bins that hold voxels, each counting the same.

    Args:
        bins: tables of shape (..., M).

    Returns:
        (...) ACE in [0, 1]; NaN for a table without voxels.

    References:
        Neumann et al., NeurIPS workshop 2018 (netcal's ACE).
    """
    gaps = _bin_gaps(bins)
    filled = (bins.count > 0).sum(-1)
    return np.where(bins.total > 0, np.where(np.isnan(gaps), 0, gaps).sum(-1) / np.maximum(filled, 1), np.nan)


def _bin_gaps(bins: BinCounts) -> NDArray[np.float64]:
    return _ratio(np.abs(bins.hits - bins.confidence), bins.count)


def _ratio(part: NDArray[np.float64], whole: Counts) -> NDArray[np.float64]:
    # Not max(whole, 1): expected counts can be below 1.
    ratio: NDArray[np.float64] = np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)
    return ratio
