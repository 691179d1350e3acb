"""From files to figures: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._case import CalibrationTables, CaseResult, evaluate_case
from nnunet_nacl.evaluation._folder import SUMMARY_NAME, evaluate_folder
from nnunet_nacl.evaluation._summary import FolderResult
from nnunet_nacl.evaluation._table import format_table

__all__ = [
    "SUMMARY_NAME",
    "CalibrationTables",
    "CaseResult",
    "FolderResult",
    "evaluate_case",
    "evaluate_folder",
    "format_table",
]
