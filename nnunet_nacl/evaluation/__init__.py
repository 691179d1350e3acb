"""From files to figures: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._case import CaseResult, canonical_labels, evaluate_case
from nnunet_nacl.evaluation._checks import SumCheck, check_block, check_shape
from nnunet_nacl.evaluation._folder import evaluate
from nnunet_nacl.evaluation._merge import merge_results
from nnunet_nacl.evaluation._near import near_core
from nnunet_nacl.evaluation._settings import CORE_PROBABILITY, PROTOCOLS, VOXEL_SETS, Settings, Voxels
from nnunet_nacl.evaluation._storage import Case
from nnunet_nacl.evaluation._summary import SUMMARY_NAME, FolderResult, Skipped, bins_file
from nnunet_nacl.evaluation._table import format_table
from nnunet_nacl.evaluation._tables import METRICS, SCORES, CalibrationTables
from nnunet_nacl.evaluation._worker import check_same_grid
from nnunet_nacl.nnunet import Predictions, Region

__all__ = [
    "CORE_PROBABILITY",
    "METRICS",
    "PROTOCOLS",
    "SCORES",
    "SUMMARY_NAME",
    "VOXEL_SETS",
    "CalibrationTables",
    "Case",
    "CaseResult",
    "FolderResult",
    "Predictions",
    "Region",
    "Settings",
    "Skipped",
    "SumCheck",
    "Voxels",
    "bins_file",
    "canonical_labels",
    "check_block",
    "check_same_grid",
    "check_shape",
    "evaluate",
    "evaluate_case",
    "format_table",
    "merge_results",
    "near_core",
]
