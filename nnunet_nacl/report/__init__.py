"""From the summaries of methods to a page, tables and plots that compare them.

>>> from nnunet_nacl.report import read_results, write_report  # in a notebook
"""

from nnunet_nacl.report._comparison import compare
from nnunet_nacl.report._page import is_page, write_report
from nnunet_nacl.report._panels import write_plot
from nnunet_nacl.report._published import published
from nnunet_nacl.report._results import read_results
from nnunet_nacl.report._study import Study, Variant
from nnunet_nacl.report._tables import write_table

__all__ = [
    "Study",
    "Variant",
    "compare",
    "is_page",
    "published",
    "read_results",
    "write_plot",
    "write_report",
    "write_table",
]
