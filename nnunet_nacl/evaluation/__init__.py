"""From files to numbers: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._case import SavedCase
from nnunet_nacl.evaluation._folder import (
    SUMMARY_NAME,
    USUAL_SETTINGS,
    count_for_review,
    evaluate,
    read_result,
    write_result,
)
from nnunet_nacl.evaluation._origin import FolderPair, Origin
from nnunet_nacl.evaluation._result import NEARLY_ALL, FolderResult, format_table

__all__ = [
    "NEARLY_ALL",
    "SUMMARY_NAME",
    "USUAL_SETTINGS",
    "FolderPair",
    "FolderResult",
    "Origin",
    "SavedCase",
    "count_for_review",
    "evaluate",
    "format_table",
    "read_result",
    "write_result",
]
