"""Calibration, overlap and surface metrics: arrays in, numbers out."""

from nnunet_nacl.metrics._activation import Activation, Truth
from nnunet_nacl.metrics._agreement import segment
from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._bootstrap import Interval, percentile_interval
from nnunet_nacl.metrics._calibration import (
    NLL_CLIP,
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from nnunet_nacl.metrics._case import SURFACE_METRICS, evaluate_case
from nnunet_nacl.metrics._estimate import Estimate
from nnunet_nacl.metrics._labels import LabelMeaning, Structure
from nnunet_nacl.metrics._near import near_core
from nnunet_nacl.metrics._overlap import SurfaceDistances, confusion_matrix, dice
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
    BY_LABEL,
    CORE_PROBABILITY,
    LABEL_FREE,
    MARGIN_MM,
    THRESHOLDS,
    VOXEL_SETS,
    Settings,
    Voxels,
)

__all__ = [
    "BY_LABEL",
    "CALIBRATION_METRICS",
    "CORE_PROBABILITY",
    "LABEL_FREE",
    "MARGIN_MM",
    "METRICS",
    "NLL_CLIP",
    "PAPER_METRICS",
    "SEGMENTATION_METRICS",
    "SURFACE_METRICS",
    "THRESHOLDS",
    "VOXEL_SETS",
    "Activation",
    "BinCounts",
    "CalibrationTables",
    "Counts",
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
    "average_calibration_error",
    "confusion_matrix",
    "dice",
    "evaluate_case",
    "expected_calibration_error",
    "maximum_calibration_error",
    "near_core",
    "percentile_interval",
    "segment",
]
