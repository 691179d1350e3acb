"""The tables that every calibration figure of a voxel set is computed from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import (
    BinCounts,
    adaptive_calibration_error,
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)

METRICS = ("ECE", "CECE", "CECE_fg", "CECE_sum", "MCE", "ACE", "AECE", "AECE_error", "NLL", "Brier")
CLASS_METRICS = ("ECE", "MCE", "ACE")


@dataclass(frozen=True)
class CalibrationTables:
    """Counts and sums over one voxel set of a case, or of several added up.

    For C classes there is one top-label table, T = 1. For C regions there are T = C, one a region (confidence =
    max(p, 1 − p), hit = the region's mask is right), since each has a voxel set of its own; figures are then means over
    the regions whose set is not empty.

    Attributes:
        top: top-label tables (T, M).
        classwise: tables (C, M) of each channel: confidence = p_k, hit = y is k, or lies in region k.
        fine: fine histograms (T, 1538) of the top-label confidences, for the adaptive ECE.
        nll: float64 (T,), sum of the negative log-likelihoods.
        brier: float64 (T,), sum of the Brier scores.
        num_classes: how many channels enter CECE: C, or fewer with the reference protocol.
    """

    top: BinCounts
    classwise: BinCounts
    fine: BinCounts
    nll: NDArray[np.float64]
    brier: NDArray[np.float64]
    num_classes: int

    def __add__(self, other: "CalibrationTables") -> "CalibrationTables":
        return CalibrationTables(
            self.top + other.top,
            self.classwise + other.classwise,
            self.fine + other.fine,
            self.nll + other.nll,
            self.brier + other.brier,
            max(self.num_classes, other.num_classes),
        )

    @property
    def is_empty(self) -> bool:
        return not self.top.total.any()

    def metrics(self) -> dict[str, float]:
        """Every figure of ``METRICS``; NaN for an empty voxel set."""
        voxels = self.top.total.astype(np.float64)
        voxels[voxels == 0] = np.nan
        adaptive = [adaptive_calibration_error(fine, self.top.count.shape[-1]) for fine in self._fine_tables()]
        by_class = expected_calibration_error(self.classwise)[: self.num_classes]
        has_background = len(voxels) != len(self.classwise.count)
        return {
            "ECE": _mean(expected_calibration_error(self.top)),
            "CECE": _mean(by_class),
            "CECE_fg": _mean(by_class[1:] if has_background else by_class),
            "CECE_sum": float("nan") if np.isnan(by_class).all() else float(np.nansum(by_class)),
            "MCE": _mean(maximum_calibration_error(self.top)),
            "ACE": _mean(average_calibration_error(self.top)),
            "AECE": _mean(np.array([error for error, _ in adaptive])),
            "AECE_error": _mean(np.array([bound for _, bound in adaptive])),
            "NLL": _mean(self.nll / voxels),
            "Brier": _mean(self.brier / voxels),
        }

    def class_metrics(self) -> list[dict[str, float]]:
        """The figures of ``CLASS_METRICS`` for each channel."""
        columns = (
            expected_calibration_error(self.classwise),
            maximum_calibration_error(self.classwise),
            average_calibration_error(self.classwise),
        )
        return [dict(zip(CLASS_METRICS, map(float, row), strict=True)) for row in zip(*columns, strict=True)]

    def _fine_tables(self) -> list[BinCounts]:
        fine = self.fine
        rows = zip(fine.count, fine.hits, fine.confidence, fine.unbinned, strict=True)
        return [BinCounts(*row) for row in rows]


def _mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
