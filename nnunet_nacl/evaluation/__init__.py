"""From files to numbers: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._case import evaluate_case
from nnunet_nacl.evaluation._folder import evaluate
from nnunet_nacl.evaluation._near import near_core
from nnunet_nacl.evaluation._result import SUMMARY_NAME, FolderResult, format_table
from nnunet_nacl.evaluation._saved import SavedCase
from nnunet_nacl.evaluation._settings import CORE_PROBABILITY, Origin, Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables

__all__ = [
    "CORE_PROBABILITY",
    "SUMMARY_NAME",
    "CalibrationTables",
    "FolderResult",
    "Origin",
    "SavedCase",
    "Settings",
    "Voxels",
    "evaluate",
    "evaluate_case",
    "format_table",
    "near_core",
]
