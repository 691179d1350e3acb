"""Calibration errors from bin tables, and proper scores as sums, which parts of an image or a data set add up to."""

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._bootstrap import ratio

NLL_CLIP = float(np.finfo(np.float32).eps)
"""Probabilities below this (1.19e-7) count as this much in the NLL; a p of 0 would make it infinite."""


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
    return ratio(np.abs(bins.hits - bins.confidence), bins.count)


def nll_sum(probabilities: NDArray[np.floating]) -> float:
    r"""Negative log-likelihood :math:`-\sum_i \ln \max(p_i, 1.19 \cdot 10^{-7})`.

    Args:
        probabilities: (n,) what was given to the event that happened, in [0, 1].

    Returns:
        The sum, in nats.

    >>> round(nll_sum(np.array([0.5, 1.0, 0.0])), 4)  # ln 2 + 0 - ln 1.19e-7
    16.6355
    """
    return float(-np.log(np.maximum(probabilities.astype(np.float64), NLL_CLIP)).sum())


def brier_sum(probabilities: NDArray[np.floating], hits: NDArray[np.bool_]) -> float:
    r"""Squared error :math:`\sum_i (p_i - hit_i)^2`. Over all classes of a voxel it adds up to its Brier score, 0 to 2.

    Args:
        probabilities: (n,) in [0, 1].
        hits: (n,) bool.

    References:
        Brier, Monthly Weather Review 1950.
    """
    error = probabilities - hits.astype(np.float64)
    return float(np.square(error).sum())  # not np.dot, whose threads would take the cores of other processes
