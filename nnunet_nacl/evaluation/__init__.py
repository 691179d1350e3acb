"""From files to numbers: the calibration of a folder of nnU-Net predictions.

A case's files are checked against each other (``_case``) and counted once (``_folder``): its record (``_record``) is
taken as long as files and settings are the same (``_counting``). The records of a folder together are its result
(``_result``), whose numbers the summary has (``_summary``).
"""

from nnunet_nacl.evaluation._case import SavedCase
from nnunet_nacl.evaluation._counting import CountedCase, Counting
from nnunet_nacl.evaluation._folder import USUAL_SETTINGS, count_for_review, evaluate
from nnunet_nacl.evaluation._result import NEARLY_ALL, FolderResult, format_table
from nnunet_nacl.evaluation._summary import SUMMARY_NAME, read_result, write_result

__all__ = [
    "NEARLY_ALL",
    "SUMMARY_NAME",
    "USUAL_SETTINGS",
    "CountedCase",
    "Counting",
    "FolderResult",
    "SavedCase",
    "count_for_review",
    "evaluate",
    "format_table",
    "read_result",
    "write_result",
]
