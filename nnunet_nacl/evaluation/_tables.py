"""The tables that every calibration metric of a voxel set is computed from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import (
    BinCounts,
    adaptive_calibration_error,
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
    mean_of_known,
)

METRICS = (
    "ECE", "CECE", "CECE_fg", "CECE_sum", "MCE", "ACE", "AECE", "AECE_error", "NLL", "Brier", "over_confidence",
    "ECE_expected", "CECE_expected", "share",
)  # fmt: skip
"""The expected ones only where there are the tables that they are made of."""
SCORES = ("NLL_per_foreground", "Brier_per_foreground")
CLASS_METRICS = ("ECE", "MCE", "ACE")


@dataclass(frozen=True)
class CalibrationTables:
    """Counts and sums over one voxel set of a case, or of several added up.

    For C classes there is one top-label table, T = 1. For C regions there are T = C, one a region (confidence =
    max(p, 1 − p), hit = the region's mask is right), since each has a voxel set of its own; metrics are then means over
    the regions whose set is not empty.

    Attributes:
        top: top-label tables (T, M).
        classwise: tables (C, M) of each channel: confidence = p_k, hit = y is k, or lies in region k.
        fine: fine histograms (T, 1538) of the top-label confidences, for the adaptive ECE.
        nll: float64 (T,), sum of the negative log-likelihoods.
        brier: float64 (T,), sum of the Brier scores.
        num_classes: how many channels enter CECE: C, or fewer with the authors' protocol.
        has_background: whether channel 0 is the background; see ``LabelMeaning.has_background``.
        image_voxels: int64 (T,), voxels of the image that are not ignored.
        expected_top: what ``top`` would hold in expectation if the labels were drawn from the probabilities; None for
            voxel sets without a closed form, and with the authors' protocol.
        expected_classwise: the same for ``classwise``.
    """

    top: BinCounts
    classwise: BinCounts
    fine: BinCounts
    nll: NDArray[np.float64]
    brier: NDArray[np.float64]
    num_classes: int
    has_background: bool
    image_voxels: NDArray[np.int64]
    expected_top: BinCounts | None = None
    expected_classwise: BinCounts | None = None

    def __add__(self, other: "CalibrationTables") -> "CalibrationTables":
        return CalibrationTables(
            self.top + other.top,
            self.classwise + other.classwise,
            self.fine + other.fine,
            self.nll + other.nll,
            self.brier + other.brier,
            max(self.num_classes, other.num_classes),
            self.has_background,
            self.image_voxels + other.image_voxels,
            _sum(self.expected_top, other.expected_top),
            _sum(self.expected_classwise, other.expected_classwise),
        )

    @property
    def foreground_voxels(self) -> int:
        """Ground truth foreground voxels in the set; for regions, those of all regions added up."""
        hits = self.classwise.hits.sum(-1)
        return int(hits[1:].sum() if self.has_background else hits.sum())

    @property
    def is_empty(self) -> bool:
        return not self.top.total.any()

    def metrics(self) -> dict[str, float]:
        """The metrics of ``METRICS`` that there are; NaN for an empty voxel set."""
        return dict(self._metrics)

    @cached_property
    def _metrics(self) -> dict[str, float]:
        voxels = np.where(self.top.total > 0, self.top.total, np.nan)
        num_bins = self.top.count.shape[-1]
        adaptive = [adaptive_calibration_error(self.fine[row], num_bins) for row in range(len(self.fine.count))]
        by_class = expected_calibration_error(self.classwise)[: self.num_classes]
        metrics = {
            "ECE": expected_calibration_error(self.top),
            "CECE": by_class,
            "CECE_fg": by_class[1:] if self.has_background else by_class,
            "CECE_sum": np.array([np.nan if np.isnan(by_class).all() else np.nansum(by_class)]),
            "MCE": maximum_calibration_error(self.top),
            "ACE": average_calibration_error(self.top),
            "AECE": np.array([error for error, _ in adaptive]),
            "AECE_error": np.array([bound for _, bound in adaptive]),
            "NLL": self.nll / voxels,
            "Brier": self.brier / voxels,
            "over_confidence": (self.top.confidence - self.top.hits).sum(-1) / voxels,
        }
        if self.expected_top is not None and self.expected_classwise is not None:
            # Over the same regions and classes, and so means over the same cases, as the metrics beside them.
            of_top = np.where(self.top.total > 0, expected_calibration_error(self.expected_top), np.nan)
            of_classes = np.where(self.classwise.total > 0, expected_calibration_error(self.expected_classwise), np.nan)
            metrics |= {"ECE_expected": of_top, "CECE_expected": of_classes[: self.num_classes]}
        metrics["share"] = self.top.total / np.where(self.image_voxels > 0, self.image_voxels, np.nan)
        return {name: float(mean_of_known(values)) for name, values in metrics.items()}

    def per_foreground(self) -> dict[str, float]:
        r"""NLL and Brier, summed over the set's voxels and divided by the ground truth foreground voxels.

        .. math:: NLL = \frac{\sum_i -\ln p_{i,y_i}}{\sum_i [y_i > 0]}

        Of the image's tables of all cases added up, these are proper scores: every method is divided by the same
        number, no voxel is chosen by its label, and cases without foreground count. NaN without foreground.
        """
        foreground = self.foreground_voxels or np.nan
        return {name: float(sums.sum()) / foreground for name, sums in zip(SCORES, (self.nll, self.brier), strict=True)}

    def class_metrics(self) -> list[dict[str, float]]:
        """The metrics of ``CLASS_METRICS`` for each channel."""
        columns = (
            expected_calibration_error(self.classwise),
            maximum_calibration_error(self.classwise),
            average_calibration_error(self.classwise),
        )
        return [dict(zip(CLASS_METRICS, map(float, row), strict=True)) for row in zip(*columns, strict=True)]


def _sum(one: BinCounts | None, other: BinCounts | None) -> BinCounts | None:
    return None if one is None or other is None else one + other
