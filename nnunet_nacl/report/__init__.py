"""From the results of methods to a page, tables and plots that compare them.

>>> from nnunet_nacl.report import read_results, write_report  # in a notebook
"""

from nnunet_nacl.report._comparison import (
    DICE,
    Comparison,
    Metric,
    compare,
    compare_all,
    of_each,
    voxels_text,
)
from nnunet_nacl.report._page import PageParts, is_page, write_report
from nnunet_nacl.report._read import default_name, read_results
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._tables import TABLES, Cell, Table, column, metric_columns, table_text
from nnunet_nacl.report.plots import PLOTS, reliability_panels, tradeoff_panels, write_plot

__all__ = [
    "DICE",
    "PLOTS",
    "TABLES",
    "Cell",
    "Comparison",
    "Metric",
    "PageParts",
    "Reliability",
    "Table",
    "column",
    "compare",
    "compare_all",
    "default_name",
    "is_page",
    "metric_columns",
    "of_each",
    "read_results",
    "reliability_panels",
    "table_text",
    "tradeoff_panels",
    "voxels_text",
    "write_plot",
    "write_report",
]
