"""From files to numbers: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._case import Case, CaseResult, evaluate_case
from nnunet_nacl.evaluation._folder import evaluate, merge_results, read_summary_or_parts
from nnunet_nacl.evaluation._near import near_core
from nnunet_nacl.evaluation._result import SUMMARY_NAME, FolderResult, format_table
from nnunet_nacl.evaluation._saved import SavedCase, canonical_labels
from nnunet_nacl.evaluation._settings import CORE_PROBABILITY, VOXEL_SETS, Origin, Place, Settings, Voxels
from nnunet_nacl.evaluation._tables import METRICS, CalibrationTables
from nnunet_nacl.nnunet import Predictions

__all__ = [
    "CORE_PROBABILITY",
    "METRICS",
    "SUMMARY_NAME",
    "VOXEL_SETS",
    "CalibrationTables",
    "Case",
    "CaseResult",
    "FolderResult",
    "Origin",
    "Place",
    "Predictions",
    "SavedCase",
    "Settings",
    "Voxels",
    "canonical_labels",
    "evaluate",
    "evaluate_case",
    "format_table",
    "merge_results",
    "near_core",
    "read_summary_or_parts",
]
