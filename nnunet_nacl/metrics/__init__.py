"""Calibration, overlap and surface metrics: arrays in, numbers out."""

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._bootstrap import Interval, mean_of_known, percentile_interval, ratio, resample_weights
from nnunet_nacl.metrics._calibration import (
    NLL_CLIP,
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from nnunet_nacl.metrics._overlap import SurfaceDistances, confusion_matrix, dice

__all__ = [
    "NLL_CLIP",
    "BinCounts",
    "Interval",
    "SurfaceDistances",
    "average_calibration_error",
    "confusion_matrix",
    "dice",
    "expected_calibration_error",
    "maximum_calibration_error",
    "mean_of_known",
    "percentile_interval",
    "ratio",
    "resample_weights",
]
