"""From the summaries of methods to a page, tables and plots that compare them.

>>> from nnunet_nacl.report import read_results, write_report  # in a notebook
"""

from nnunet_nacl.report._comparison import Comparison, compare
from nnunet_nacl.report._metrics import DICE, Metric
from nnunet_nacl.report._page import answer, is_page, write_report
from nnunet_nacl.report._panels import reliability_panels, study_panels, tradeoff_panels, write_plot
from nnunet_nacl.report._pictures import Slices, chosen_cases, read_slices, slice_layers
from nnunet_nacl.report._published import published
from nnunet_nacl.report._results import default_name, read_results
from nnunet_nacl.report._review import read_reviews
from nnunet_nacl.report._statistics import (
    Difference,
    all_rankings,
    differences,
    order_by,
    rank_methods,
)
from nnunet_nacl.report._study import Study, Variant
from nnunet_nacl.report._tables import FORMATS, TABLES, Column, Table, write_table

__all__ = [
    "DICE",
    "FORMATS",
    "TABLES",
    "Column",
    "Comparison",
    "Difference",
    "Metric",
    "Slices",
    "Study",
    "Table",
    "Variant",
    "all_rankings",
    "answer",
    "chosen_cases",
    "compare",
    "default_name",
    "differences",
    "is_page",
    "order_by",
    "published",
    "rank_methods",
    "read_results",
    "read_reviews",
    "read_slices",
    "reliability_panels",
    "slice_layers",
    "study_panels",
    "tradeoff_panels",
    "write_plot",
    "write_report",
    "write_table",
]
