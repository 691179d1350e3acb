"""Calibration, overlap and surface metrics: arrays in, numbers out."""

from nnunet_nacl.metrics._bins import BinCounts, bin_edges, top_label
from nnunet_nacl.metrics._bootstrap import (
    Interval,
    bootstrap_interval,
    mean_of_known,
    mean_over_cases,
    percentile_interval,
    ratio,
    resample_tables,
    resample_weights,
    resampled_means,
)
from nnunet_nacl.metrics._calibration import (
    FINE_OFFSET,
    FINE_SHIFT,
    NLL_CLIP,
    NUM_FINE_BINS,
    adaptive_calibration_error,
    average_calibration_error,
    expected_calibration_error,
    fine_histogram,
    maximum_calibration_error,
    nll_sum,
)
from nnunet_nacl.metrics._overlap import SurfaceDistances, confusion_matrix, dice

__all__ = [
    "FINE_OFFSET",
    "FINE_SHIFT",
    "NLL_CLIP",
    "NUM_FINE_BINS",
    "BinCounts",
    "Interval",
    "SurfaceDistances",
    "adaptive_calibration_error",
    "average_calibration_error",
    "bin_edges",
    "bootstrap_interval",
    "confusion_matrix",
    "dice",
    "expected_calibration_error",
    "fine_histogram",
    "maximum_calibration_error",
    "mean_of_known",
    "mean_over_cases",
    "nll_sum",
    "percentile_interval",
    "ratio",
    "resample_tables",
    "resample_weights",
    "resampled_means",
    "top_label",
]
