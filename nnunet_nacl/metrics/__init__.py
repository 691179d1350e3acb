"""Calibration, overlap and surface metrics: arrays in, numbers out."""

from nnunet_nacl.metrics._adaptive import (
    FINE_OFFSET,
    FINE_SHIFT,
    NUM_FINE_BINS,
    adaptive_calibration_error,
    fine_histogram,
)
from nnunet_nacl.metrics._bins import BinCounts, bin_edges, equal_width_bins
from nnunet_nacl.metrics._bootstrap import NUM_RESAMPLES, resample_weights
from nnunet_nacl.metrics._calibration import (
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from nnunet_nacl.metrics._overlap import confusion_matrix, dice
from nnunet_nacl.metrics._scores import NLL_CLIP, brier_sum, nll_sum
from nnunet_nacl.metrics._surface import SurfaceDistances
from nnunet_nacl.metrics._top_label import raise_top_label, top_label

__all__ = [
    "FINE_OFFSET",
    "FINE_SHIFT",
    "NLL_CLIP",
    "NUM_FINE_BINS",
    "NUM_RESAMPLES",
    "BinCounts",
    "SurfaceDistances",
    "adaptive_calibration_error",
    "average_calibration_error",
    "bin_edges",
    "brier_sum",
    "confusion_matrix",
    "dice",
    "equal_width_bins",
    "expected_calibration_error",
    "fine_histogram",
    "maximum_calibration_error",
    "nll_sum",
    "raise_top_label",
    "resample_weights",
    "top_label",
]
