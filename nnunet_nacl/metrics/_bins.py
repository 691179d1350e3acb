"""Bins of confidence, and the calibration errors that follow from their counts and sums."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.typing import Floats, Mask


def ratio(part: Floats, whole: NDArray[np.number]) -> Floats:
    """Compute ``part / whole``; NaN where ``whole`` is 0. Both may be expectations, and so below 1."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def mean_of_known(values: ArrayLike) -> Floats:
    """Average values (..., n) along the last axis, without NaN; NaN where all values are NaN."""
    of_all = np.asarray(values, np.float64)
    known = ~np.isnan(of_all)
    return ratio(np.where(known, of_all, 0).sum(-1), known.sum(-1))


BinSums = NDArray[Any]
"""int64; float64 where they are expectations."""


@dataclass(frozen=True)
class BinCounts:
    """The contents of M confidence bins. Leading axes (such as cases or classes) may precede.

    Attributes:
        count: int64 (..., M), voxels per bin; float64 in tables that are expected under perfect calibration.
        hits: the same for the voxels that are right.
        confidence: float64 (..., M), sum of the voxels' confidences.
        unbinned: int64 (...), voxels that count in N but are in no bin: those with p = 0 in the authors' protocol.
    """

    count: BinSums
    hits: BinSums
    confidence: Floats
    unbinned: BinSums

    @classmethod
    def fill(
        cls,
        confidences: Floats,
        hits: Mask,
        num_bins: int = 15,
        *,
        weights: Floats | None = None,
    ) -> "BinCounts":
        """Fill one table of M equal-width bins (lo, hi]; 0 belongs to the first.

        Edges are compared in the dtype of the confidences, so that a float32 k/M is on its edge, not beside it.

        Args:
            confidences: (n,) in [0, 1].
            hits: (n,) bool, whether the event with that confidence happened.
            num_bins: M.
            weights: (n,) how many voxels each voxel represents; counts are then float64.

        Raises:
            ValueError: confidences outside [0, 1], or NaN.
        """
        if confidences.size and not (confidences.min() >= 0 and confidences.max() <= 1):
            raise ValueError(
                f"confidences must be in [0, 1]; got values from {confidences.min()} to {confidences.max()}."
            )
        # Truncating c * M finds the bin, or for a c on or rounded onto a bin's lower edge the next one. It is never too
        # low: a c above the rounded k/M is a step of its dtype above it, which times M exceeds the edge's rounding
        # error.
        bins = (confidences * confidences.dtype.type(num_bins)).astype(np.intp)
        bins -= confidences <= cls.edges(num_bins, confidences.dtype).take(bins)
        wrong, right = np.bincount(bins + num_bins * hits, weights, 2 * num_bins).reshape(
            2, num_bins
        )
        weighted = confidences if weights is None else confidences * weights
        confidence = np.bincount(bins, weighted, num_bins).astype(np.float64)
        return cls(wrong + right, right, confidence, np.zeros((), np.int64))

    def __getitem__(self, index: Any) -> "BinCounts":
        """Some of the tables; the index is one of the leading axes."""
        return each_column(lambda part: part[index], self)

    def sum(self) -> "BinCounts":
        """Return the tables added up over the first axis."""
        return each_column(lambda part: part.sum(0), self)

    @property
    def total(self) -> BinSums:
        """N (...), the voxels of each table."""
        total: BinSums = self.count.sum(-1) + self.unbinned
        return total

    @property
    def over_confidence(self) -> Floats:
        """Confidence − accuracy (...) over all voxels; NaN for a table without voxels."""
        return ratio((self.confidence - self.hits).sum(-1), self.total)

    @staticmethod
    def edges(num_bins: int, dtype: "np.dtype[np.floating]") -> Floats:
        """Return the M + 1 edges in a dtype; the lowest is −1, so that 0 lies above it."""
        edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
        edges[0] = -1
        return edges


def expected_calibration_error(bins: BinCounts) -> Floats:
    """Compute the ECE, the gap between accuracy and confidence, averaged over the voxels.

        ECE = Σ_m |B_m| / N · |acc(B_m) - conf(B_m)|

    Args:
        bins: top-label tables (confidence = max_k p_k, hit = argmax is right), or tables of one class
            (confidence = p_k, hit = y is k), which give that class's ECE_k; of shape (..., M).

    Returns:
        (...) ECE in [0, 1]; NaN for a table without voxels.

    References:
        Naeini et al., AAAI 2015; Murugesan et al., Medical Image Analysis 2025, section 4.1.2, equations 10
        and 11 (which sums over the classes).

    >>> table = BinCounts.fill(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False]))
    >>> round(float(expected_calibration_error(table)), 3)  # 2/4 |1 - 0.9| + 2/4 |0.5 - 0.6|
    0.1
    """
    return ratio(np.abs(bins.hits - bins.confidence).sum(-1), bins.total)


def maximum_calibration_error(bins: BinCounts) -> Floats:
    """Compute the MCE (...), the largest gap of a bin: ``max_m |acc(B_m) - conf(B_m)|``; NaN without voxels.

    References:
        Naeini et al., AAAI 2015.
    """
    return np.where(bins.total > 0, _bin_gaps(bins).max(-1), np.nan)


def average_calibration_error(bins: BinCounts) -> Floats:
    """Compute the ACE (...), the unweighted mean gap of the bins that hold voxels; NaN without voxels.

    References:
        Neumann et al., NeurIPS workshop 2018 (netcal's ACE).
    """
    filled = (bins.count > 0).sum(-1)
    return np.where(bins.total > 0, _bin_gaps(bins).sum(-1) / np.maximum(filled, 1), np.nan)


def _bin_gaps(bins: BinCounts) -> Floats:
    # Empty bins have none
    return np.nan_to_num(ratio(np.abs(bins.hits - bins.confidence), bins.count))
