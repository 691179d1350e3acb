"""From files to numbers: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._folder import count_for_review, evaluate, read_result, write_result
from nnunet_nacl.evaluation._origin import USUAL_SETTINGS, FolderPair, Origin
from nnunet_nacl.evaluation._paths import SUMMARY_NAME, default_summary
from nnunet_nacl.evaluation._result import NEARLY_ALL, FolderResult, format_table
from nnunet_nacl.evaluation._saved import SavedCase

__all__ = [
    "NEARLY_ALL",
    "SUMMARY_NAME",
    "USUAL_SETTINGS",
    "FolderPair",
    "FolderResult",
    "Origin",
    "SavedCase",
    "count_for_review",
    "default_summary",
    "evaluate",
    "format_table",
    "read_result",
    "write_result",
]
