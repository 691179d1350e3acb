"""From the results of methods to a page, tables and plots that compare them.

>>> from nnunet_nacl.report import compare_all, read_results, write_report  # in a notebook
"""

from nnunet_nacl.report._choice import DICE, Metric, voxels_text
from nnunet_nacl.report._common_cases import compare_all, compare_methods
from nnunet_nacl.report._comparison import Comparison, of_each
from nnunet_nacl.report._formats import Table, column
from nnunet_nacl.report._page import PageParts, is_page, write_report
from nnunet_nacl.report._read import read_results
from nnunet_nacl.report._tables import TABLES, metric_columns, table_text
from nnunet_nacl.report.plots import PLOTS, write_plot

__all__ = [
    "DICE",
    "PLOTS",
    "TABLES",
    "Comparison",
    "Metric",
    "PageParts",
    "Table",
    "column",
    "compare_all",
    "compare_methods",
    "is_page",
    "metric_columns",
    "of_each",
    "read_results",
    "table_text",
    "voxels_text",
    "write_plot",
    "write_report",
]
