"""From files to numbers: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._case import Case, CaseResult, Skipped, evaluate_case
from nnunet_nacl.evaluation._folder import check_summary, evaluate
from nnunet_nacl.evaluation._labels import (
    SavedCase,
    canonical_labels,
    check_drawn,
    checked_blocks,
    given_labels,
    read_case_labels,
)
from nnunet_nacl.evaluation._near import near_core
from nnunet_nacl.evaluation._result import (
    SUMMARY_NAME,
    FolderResult,
    bins_file,
    merge_results,
    read_summary_or_parts,
)
from nnunet_nacl.evaluation._settings import (
    CORE_PROBABILITY,
    PROTOCOLS,
    VOXEL_SETS,
    Origin,
    Place,
    Settings,
    Voxels,
)
from nnunet_nacl.evaluation._tables import METRICS, CalibrationTables
from nnunet_nacl.evaluation._text import format_html, format_table
from nnunet_nacl.nnunet import Predictions, Region

__all__ = [
    "CORE_PROBABILITY",
    "METRICS",
    "PROTOCOLS",
    "SUMMARY_NAME",
    "VOXEL_SETS",
    "CalibrationTables",
    "Case",
    "CaseResult",
    "FolderResult",
    "Origin",
    "Place",
    "Predictions",
    "Region",
    "SavedCase",
    "Settings",
    "Skipped",
    "Voxels",
    "bins_file",
    "canonical_labels",
    "check_drawn",
    "check_summary",
    "checked_blocks",
    "evaluate",
    "evaluate_case",
    "format_html",
    "format_table",
    "given_labels",
    "merge_results",
    "near_core",
    "read_case_labels",
    "read_summary_or_parts",
]
