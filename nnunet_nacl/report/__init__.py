"""From the results of methods to a page, tables and plots that compare them.

>>> from nnunet_nacl.report import read_results, write_report  # in a notebook
"""

from nnunet_nacl.report._answer import calibrated_methods
from nnunet_nacl.report._comparison import Comparison, View, of_each
from nnunet_nacl.report._formats import Column, Table
from nnunet_nacl.report._matching import compare, compare_all
from nnunet_nacl.report._metrics import DICE, Metric, voxels_text
from nnunet_nacl.report._page import PageParts, is_page, write_report
from nnunet_nacl.report._panels import (
    PLOTS,
    reliability_panels,
    tradeoff_panels,
    write_plot,
)
from nnunet_nacl.report._reading import default_name, read_results
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._tables import TABLES, metric_columns, table_text

__all__ = [
    "DICE",
    "PLOTS",
    "TABLES",
    "Column",
    "Comparison",
    "Metric",
    "PageParts",
    "Reliability",
    "Table",
    "View",
    "calibrated_methods",
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
