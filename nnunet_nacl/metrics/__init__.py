"""Calibration, overlap and surface metrics: arrays in, numbers out."""

from nnunet_nacl.metrics._activation import Activation, Truth
from nnunet_nacl.metrics._agreement import DisagreementError, labels_given, segment
from nnunet_nacl.metrics._arrays import (
    Array,
    Blocks,
    above,
    canonical_labels,
    check_shape,
    checked_blocks,
    to_numpy,
    whole_numbers,
)
from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._bootstrap import (
    Interval,
    case_weights,
    mean_of_known,
    percentile_interval,
    ratio,
    resample_weights,
)
from nnunet_nacl.metrics._calibration import (
    NLL_CLIP,
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from nnunet_nacl.metrics._case import SURFACE_METRICS, evaluate_arrays, evaluate_case
from nnunet_nacl.metrics._channels import BLOCK, Channels, check_dtype
from nnunet_nacl.metrics._columns import each_column, named_columns, with_columns
from nnunet_nacl.metrics._count import CaseArrays
from nnunet_nacl.metrics._estimate import Estimate
from nnunet_nacl.metrics._labels import LabelMeaning, Structure, region_of
from nnunet_nacl.metrics._near import near_core
from nnunet_nacl.metrics._overlap import SurfaceDistances, confusion_matrix, dice, dice_of_sizes
from nnunet_nacl.metrics._record import Counts, Doubt, StructureSums, TruthCounts
from nnunet_nacl.metrics._registry import (
    CALIBRATION_METRICS,
    METRICS,
    PAPER_METRICS,
    SEGMENTATION_METRICS,
    CalibrationTables,
    MetricDefinition,
)
from nnunet_nacl.metrics._settings import (
    CORE_PROBABILITY,
    MARGIN_MM,
    THRESHOLDS,
    VOXEL_SETS,
    Settings,
    Voxels,
)
from nnunet_nacl.metrics._sums import no_counts

__all__ = [
    "BLOCK",
    "CALIBRATION_METRICS",
    "CORE_PROBABILITY",
    "MARGIN_MM",
    "METRICS",
    "NLL_CLIP",
    "PAPER_METRICS",
    "SEGMENTATION_METRICS",
    "SURFACE_METRICS",
    "THRESHOLDS",
    "VOXEL_SETS",
    "Activation",
    "Array",
    "BinCounts",
    "Blocks",
    "CalibrationTables",
    "CaseArrays",
    "Channels",
    "Counts",
    "DisagreementError",
    "Doubt",
    "Estimate",
    "Interval",
    "LabelMeaning",
    "MetricDefinition",
    "Settings",
    "Structure",
    "StructureSums",
    "SurfaceDistances",
    "Truth",
    "TruthCounts",
    "Voxels",
    "above",
    "average_calibration_error",
    "canonical_labels",
    "case_weights",
    "check_dtype",
    "check_shape",
    "checked_blocks",
    "confusion_matrix",
    "dice",
    "dice_of_sizes",
    "each_column",
    "evaluate_arrays",
    "evaluate_case",
    "expected_calibration_error",
    "labels_given",
    "maximum_calibration_error",
    "mean_of_known",
    "named_columns",
    "near_core",
    "no_counts",
    "percentile_interval",
    "ratio",
    "region_of",
    "resample_weights",
    "segment",
    "to_numpy",
    "whole_numbers",
    "with_columns",
]
