"""Calibration, overlap and surface metrics: arrays in, numbers out."""

from nnunet_nacl.metrics._adaptive import (
    FINE_OFFSET,
    FINE_SHIFT,
    NUM_FINE_BINS,
    adaptive_calibration_error,
    fine_histogram,
)
from nnunet_nacl.metrics._bins import BinCounts, bin_edges, equal_width_bins, region_top_label, top_label
from nnunet_nacl.metrics._bootstrap import (
    NUM_RESAMPLES,
    Interval,
    bootstrap_interval,
    mean_of_known,
    mean_over_cases,
    percentile_interval,
    ratio,
    resample_tables,
    resample_weights,
)
from nnunet_nacl.metrics._calibration import (
    NLL_CLIP,
    average_calibration_error,
    brier_sum,
    expected_calibration_error,
    maximum_calibration_error,
    nll_sum,
)
from nnunet_nacl.metrics._overlap import confusion_matrix, dice
from nnunet_nacl.metrics._surface import SurfaceDistances

__all__ = [
    "FINE_OFFSET",
    "FINE_SHIFT",
    "NLL_CLIP",
    "NUM_FINE_BINS",
    "NUM_RESAMPLES",
    "BinCounts",
    "Interval",
    "SurfaceDistances",
    "adaptive_calibration_error",
    "average_calibration_error",
    "bin_edges",
    "bootstrap_interval",
    "brier_sum",
    "confusion_matrix",
    "dice",
    "equal_width_bins",
    "expected_calibration_error",
    "fine_histogram",
    "maximum_calibration_error",
    "mean_of_known",
    "mean_over_cases",
    "nll_sum",
    "percentile_interval",
    "ratio",
    "region_top_label",
    "resample_tables",
    "resample_weights",
    "top_label",
]
