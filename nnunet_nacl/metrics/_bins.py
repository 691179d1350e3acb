"""Bin tables: the counts and sums from which every binned calibration error follows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BinCounts:
    """What each of M equal-width confidence bins holds. Tables of parts add up with ``+``.

    Bins are (lo, hi]; 0 belongs to the first. Edges are compared in the dtype of the confidences, so that a float32
    k/M is on its edge, not beside it.

    Attributes:
        count: int64 (M,), voxels per bin.
        hits: int64 (M,), how many of them are right.
        confidence: float64 (M,), sum of their confidences.
    """

    count: NDArray[np.int64]
    hits: NDArray[np.int64]
    confidence: NDArray[np.float64]

    @classmethod
    def empty(cls, num_bins: int = 15) -> "BinCounts":
        if num_bins < 1:
            raise ValueError(f"num_bins must be at least 1; got {num_bins}.")
        return cls(np.zeros(num_bins, np.int64), np.zeros(num_bins, np.int64), np.zeros(num_bins, np.float64))

    @classmethod
    def of(cls, confidences: NDArray[np.floating], hits: NDArray[np.bool_], num_bins: int = 15) -> "BinCounts":
        """Fill a table.

        Args:
            confidences: (n,) of a floating dtype, in [0, 1].
            hits: (n,) bool, whether the event of that confidence happened.
            num_bins: M.

        Raises:
            ValueError: different shapes, or confidences outside [0, 1] or NaN.
        """
        if confidences.shape != hits.shape:
            raise ValueError(f"confidences and hits must have one shape; got {confidences.shape} and {hits.shape}.")
        if confidences.size == 0:
            return cls.empty(num_bins)
        lowest, highest = confidences.min(), confidences.max()
        if not (lowest >= 0 and highest <= 1):
            raise ValueError(f"confidences must be in [0, 1]; got values from {lowest} to {highest}.")
        upper_edges = (np.arange(1, num_bins) / num_bins).astype(confidences.dtype)
        bins = np.searchsorted(upper_edges, confidences, side="left")
        return cls(
            np.bincount(bins, minlength=num_bins).astype(np.int64),
            np.bincount(bins[hits], minlength=num_bins).astype(np.int64),
            np.bincount(bins, weights=confidences, minlength=num_bins).astype(np.float64),
        )

    def __add__(self, other: "BinCounts") -> "BinCounts":
        return BinCounts(self.count + other.count, self.hits + other.hits, self.confidence + other.confidence)

    @property
    def total(self) -> int:
        return int(self.count.sum())
