"""From the results of methods to a page, tables and plots that compare them.

>>> from nnunet_nacl.report import read_results, write_report  # in a notebook
"""

from nnunet_nacl.report._answer import answer
from nnunet_nacl.report._formats import FORMATS, Column, Table
from nnunet_nacl.report._frame import Comparison, compare
from nnunet_nacl.report._metrics import DICE, LABEL_FREE, Metric
from nnunet_nacl.report._page import PageParts, is_page, write_report
from nnunet_nacl.report._panels import (
    PLOTS,
    panels_of_each,
    reliability_panels,
    tradeoff_panels,
    write_plot,
)
from nnunet_nacl.report._reading import default_name, read_results
from nnunet_nacl.report._reviews import read_reviews
from nnunet_nacl.report._slices import Slices, chosen_cases, read_slices, slice_layers
from nnunet_nacl.report._statistics import Compared, Difference, Order
from nnunet_nacl.report._tables import TABLES, metric_columns, table_of_each, write_table

__all__ = [
    "DICE",
    "FORMATS",
    "LABEL_FREE",
    "PLOTS",
    "TABLES",
    "Column",
    "Compared",
    "Comparison",
    "Difference",
    "Metric",
    "Order",
    "PageParts",
    "Slices",
    "Table",
    "answer",
    "chosen_cases",
    "compare",
    "default_name",
    "is_page",
    "metric_columns",
    "panels_of_each",
    "read_results",
    "read_reviews",
    "read_slices",
    "reliability_panels",
    "slice_layers",
    "table_of_each",
    "tradeoff_panels",
    "write_plot",
    "write_report",
    "write_table",
]
