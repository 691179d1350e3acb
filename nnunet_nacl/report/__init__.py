"""From summaries to a page, tables and figures.

>>> from nnunet_nacl.report import compare, reliability_diagram, top_label_curves  # in a notebook
"""

from nnunet_nacl.report._comparison import Comparison, Method, compare, compare_all
from nnunet_nacl.report._inputs import read_results
from nnunet_nacl.report._outputs import plot, write_table
from nnunet_nacl.report._page import write_report
from nnunet_nacl.report._panels import study_figure
from nnunet_nacl.report._ranking import SCHEMES, Ranking, rank_by_scores, rank_methods
from nnunet_nacl.report._reliability import Reliability, class_curve, top_label_curves
from nnunet_nacl.report._significance import Difference, differences, holm, wilcoxon_signed_rank
from nnunet_nacl.report._slices import CaseSlice, read_slice
from nnunet_nacl.report._study import Study, Variant
from nnunet_nacl.report._tradeoff import Tradeoff, tradeoff
from nnunet_nacl.report._verdict import verdict
from nnunet_nacl.report.figures._ranks import rank_heatmap, rank_stability
from nnunet_nacl.report.figures._reliability import reliability_curves, reliability_diagram
from nnunet_nacl.report.figures._slices import show_confidence, show_image, show_reference, show_segmentation
from nnunet_nacl.report.figures._style import figure_style
from nnunet_nacl.report.figures._tradeoff import radar, tradeoff_scatter

__all__ = [
    "SCHEMES",
    "CaseSlice",
    "Comparison",
    "Difference",
    "Method",
    "Ranking",
    "Reliability",
    "Study",
    "Tradeoff",
    "Variant",
    "class_curve",
    "compare",
    "compare_all",
    "differences",
    "figure_style",
    "holm",
    "plot",
    "radar",
    "rank_by_scores",
    "rank_heatmap",
    "rank_methods",
    "rank_stability",
    "read_results",
    "read_slice",
    "reliability_curves",
    "reliability_diagram",
    "show_confidence",
    "show_image",
    "show_reference",
    "show_segmentation",
    "study_figure",
    "top_label_curves",
    "tradeoff",
    "tradeoff_scatter",
    "verdict",
    "wilcoxon_signed_rank",
    "write_report",
    "write_table",
]
