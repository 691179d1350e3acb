"""Calibration, overlap and surface metrics: arrays in, numbers out.

A case's probabilities are read once (``_channels``, ``_one_pass``) and summed by cell and bin (``_cells``). From these
sums follows its record (``_from_cells``, ``_counts``). Its tables of each voxel set (``_tables``, ``_bins``) give the
metrics of the registry (``_registry``), over cases with their intervals (``_estimate``).
"""

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._bins import (
    BinCounts,
    average_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
    mean_of_known,
    ratio,
)
from nnunet_nacl.metrics._case import evaluate_case
from nnunet_nacl.metrics._cells import NLL_CLIP, RECALL_THRESHOLDS
from nnunet_nacl.metrics._channels import (
    BLOCK,
    Blocks,
    Channels,
    check_dtype,
    check_shape,
    checked_blocks,
    whole_channels,
)
from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._counts import Counts, Doubt, StructureSums, TruthCounts
from nnunet_nacl.metrics._decision import ImpliedLabels, above, segment
from nnunet_nacl.metrics._estimate import (
    Estimate,
    Interval,
    case_weights,
    error_by_chance,
)
from nnunet_nacl.metrics._labels import (
    LabelMeaning,
    Structure,
    canonical_labels,
    region_of,
    to_numpy,
    whole_numbers,
)
from nnunet_nacl.metrics._near import near_core
from nnunet_nacl.metrics._one_pass import CaseArrays, evaluate_arrays
from nnunet_nacl.metrics._overlap import (
    confusion_matrix,
    dice,
    mean_pairwise_dice,
)
from nnunet_nacl.metrics._registry import (
    CALIBRATION_METRICS,
    METRICS,
    PAPER_METRICS,
    SEGMENTATION_METRICS,
    MetricDefinition,
    measure,
)
from nnunet_nacl.metrics._settings import (
    BY_LABEL,
    CORE_PROBABILITY,
    LABEL_FREE,
    MARGIN_MM,
    VOXEL_SETS,
    Settings,
    Voxels,
)
from nnunet_nacl.metrics._surfaces import surface_metrics
from nnunet_nacl.metrics._tables import CalibrationTables, ScoreParts, split_scores

__all__ = [
    "BLOCK",
    "BY_LABEL",
    "CALIBRATION_METRICS",
    "CORE_PROBABILITY",
    "LABEL_FREE",
    "MARGIN_MM",
    "METRICS",
    "NLL_CLIP",
    "PAPER_METRICS",
    "RECALL_THRESHOLDS",
    "SEGMENTATION_METRICS",
    "VOXEL_SETS",
    "Activation",
    "BinCounts",
    "Blocks",
    "CalibrationTables",
    "CaseArrays",
    "Channels",
    "Counts",
    "Doubt",
    "Estimate",
    "ImpliedLabels",
    "Interval",
    "LabelMeaning",
    "MetricDefinition",
    "ScoreParts",
    "Settings",
    "Structure",
    "StructureSums",
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
    "each_column",
    "error_by_chance",
    "evaluate_arrays",
    "evaluate_case",
    "expected_calibration_error",
    "maximum_calibration_error",
    "mean_of_known",
    "mean_pairwise_dice",
    "measure",
    "near_core",
    "ratio",
    "region_of",
    "segment",
    "split_scores",
    "surface_metrics",
    "to_numpy",
    "whole_channels",
    "whole_numbers",
]
