"""Bin tables: the counts and sums from which every binned calibration error follows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._means import ratio
from nnunet_nacl.typing import Floats, Mask

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
    def of(
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
            ValueError: different shapes, or confidences outside [0, 1] or NaN.
        """
        if confidences.shape != hits.shape:
            raise ValueError(
                f"confidences and hits must have one shape; got {confidences.shape} and {hits.shape}."
            )
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

    @classmethod
    def stack(cls, tables: "list[BinCounts]") -> "BinCounts":
        """One object with a new leading axis from tables of one shape."""
        return each_column(lambda *parts: np.stack(parts), *tables)

    def __getitem__(self, index: Any) -> "BinCounts":
        """Some of the tables; the index is one of the leading axes."""
        return each_column(lambda part: part[index], self)

    def sum(self) -> "BinCounts":
        """The tables added up over the first axis."""
        return each_column(lambda part: part.sum(0), self)

    def resampled(self, weights: Floats) -> "BinCounts":
        """Tables (resamples, ..., M): the sum of the tables (cases, ..., M) of the cases that each resample drew."""
        return each_column(lambda part: np.tensordot(weights, part, 1), self)

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
        """The M + 1 edges in a dtype; the lowest is −1, so that 0 lies above it."""
        edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
        edges[0] = -1
        return edges
