"""From files to numbers: the calibration of a folder of nnU-Net predictions."""

from nnunet_nacl.evaluation._files import (
    SUMMARY_NAME,
    read_parts,
    read_result,
    summary_of,
    write_result,
)
from nnunet_nacl.evaluation._folder import count_for_review, default_summary, evaluate
from nnunet_nacl.evaluation._origin import Folders, Origin
from nnunet_nacl.evaluation._result import FolderResult
from nnunet_nacl.evaluation._saved import SavedCase
from nnunet_nacl.evaluation._table import format_table

__all__ = [
    "SUMMARY_NAME",
    "FolderResult",
    "Folders",
    "Origin",
    "SavedCase",
    "count_for_review",
    "default_summary",
    "evaluate",
    "format_table",
    "read_parts",
    "read_result",
    "summary_of",
    "write_result",
]
