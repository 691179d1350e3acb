"""Calibration errors from bin tables."""

import numpy as np

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._means import ratio
from nnunet_nacl.typing import Floats

NLL_CLIP = float(np.finfo(np.float32).eps)
"""Probabilities below this (1.19e-7) count as this much in the NLL; a p of 0 would make it infinite."""


def expected_calibration_error(bins: BinCounts) -> Floats:
    """ECE, the gap between accuracy and confidence, averaged over the voxels.

        ECE = Σ_m |B_m| / N · |acc(B_m) - conf(B_m)|

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


def maximum_calibration_error(bins: BinCounts) -> Floats:
    """MCE (...), the largest gap of a bin: ``max_m |acc(B_m) - conf(B_m)|``; NaN without voxels.

    References:
        Naeini et al., AAAI 2015.
    """
    return np.where(bins.total > 0, _bin_gaps(bins).max(-1), np.nan)


def average_calibration_error(bins: BinCounts) -> Floats:
    """ACE (...), the unweighted mean gap of the bins that hold voxels; NaN without voxels.

    References:
        Neumann et al., NeurIPS workshop 2018 (netcal's ACE).
    """
    filled = (bins.count > 0).sum(-1)
    return np.where(bins.total > 0, _bin_gaps(bins).sum(-1) / np.maximum(filled, 1), np.nan)


def _bin_gaps(bins: BinCounts) -> Floats:
    # Empty bins have none
    return np.nan_to_num(ratio(np.abs(bins.hits - bins.confidence), bins.count))
