"""From files to numbers: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._case import Case
from nnunet_nacl.evaluation._folder import evaluate
from nnunet_nacl.evaluation._origin import Folders, Origin
from nnunet_nacl.evaluation._result import SUMMARY_NAME, FolderResult, format_table
from nnunet_nacl.evaluation._saved import SavedCase

__all__ = [
    "SUMMARY_NAME",
    "Case",
    "FolderResult",
    "Folders",
    "Origin",
    "SavedCase",
    "evaluate",
    "format_table",
]
