"""Calibration errors from bin tables."""

from collections.abc import Sequence

import numpy as np

from nnunet_nacl.metrics._bins import BinCounts


def expected_calibration_error(bins: BinCounts) -> float:
    r"""ECE, the gap between accuracy and confidence, averaged over the voxels.

    .. math:: ECE = \sum_m \frac{|B_m|}{N} |acc(B_m) - conf(B_m)|

    Args:
        bins: top-label table (confidence = max_k p_k, hit = argmax is right), or the table of one class
            (confidence = p_k, hit = y is k), which gives that class's ECE_k.

    Returns:
        ECE in [0, 1]; NaN for a table without voxels.

    References:
        Naeini et al., AAAI 2015; Murugesan et al., Medical Image Analysis 2024, section 4.1.2.

    >>> table = BinCounts.of(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False]))
    >>> round(expected_calibration_error(table), 3)  # 2/4 |1 - 0.9| + 2/4 |0.5 - 0.6|
    0.1
    """
    if bins.total == 0:
        return float("nan")
    return float(np.abs(bins.hits - bins.confidence).sum() / bins.total)


def classwise_calibration_error(per_class: Sequence[BinCounts]) -> float:
    """CECE, the mean of ECE_k over the classes, background included (as in the NACL authors' code).

    Returns:
        CECE in [0, 1]; NaN without voxels.
    """
    return float(np.mean([expected_calibration_error(bins) for bins in per_class]))
