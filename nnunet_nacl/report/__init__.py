"""From the summaries of methods to a page, tables and plots that compare them.

>>> from nnunet_nacl.report import read_results, write_report  # in a notebook
"""

from nnunet_nacl.report._comparison import Comparison, compare
from nnunet_nacl.report._metrics import (
    DICE,
    Metric,
    case_means,
    compared_metrics,
    judging_metrics,
    per_foreground,
    pooled_gaps,
)
from nnunet_nacl.report._page import answer, is_page, write_report
from nnunet_nacl.report._panels import reliability_panels, study_panels, tradeoff_panels, write_plot
from nnunet_nacl.report._pictures import (
    Slices,
    chosen_cases,
    confidence_colors,
    legend,
    read_slices,
    slice_layers,
)
from nnunet_nacl.report._published import published, published_value
from nnunet_nacl.report._reliability import (
    Verdict,
    error_by_chance,
    judge,
    split_scores,
    top_label_curves,
)
from nnunet_nacl.report._results import default_name, read_results
from nnunet_nacl.report._review import Reviews, read_reviews
from nnunet_nacl.report._statistics import (
    Difference,
    all_rankings,
    differences,
    holm,
    mean_case_rank,
    order_by,
    rank_by_scores,
    rank_methods,
    ranks,
)
from nnunet_nacl.report._study import Study, Variant
from nnunet_nacl.report._tables import (
    FORMATS,
    TABLES,
    Column,
    Table,
    differences_table,
    methods_table,
    paper_table,
    published_table,
    review_table,
    scores_table,
    structures_table,
    to_csv,
    to_latex,
    to_markdown,
    write_table,
)

__all__ = [
    "DICE",
    "FORMATS",
    "TABLES",
    "Column",
    "Comparison",
    "Difference",
    "Metric",
    "Reviews",
    "Slices",
    "Study",
    "Table",
    "Variant",
    "Verdict",
    "all_rankings",
    "answer",
    "case_means",
    "chosen_cases",
    "compare",
    "compared_metrics",
    "confidence_colors",
    "default_name",
    "differences",
    "differences_table",
    "error_by_chance",
    "holm",
    "is_page",
    "judge",
    "judging_metrics",
    "legend",
    "mean_case_rank",
    "methods_table",
    "order_by",
    "paper_table",
    "per_foreground",
    "pooled_gaps",
    "published",
    "published_table",
    "published_value",
    "rank_by_scores",
    "rank_methods",
    "ranks",
    "read_results",
    "read_reviews",
    "read_slices",
    "reliability_panels",
    "review_table",
    "scores_table",
    "slice_layers",
    "split_scores",
    "structures_table",
    "study_panels",
    "to_csv",
    "to_latex",
    "to_markdown",
    "top_label_curves",
    "tradeoff_panels",
    "write_plot",
    "write_report",
    "write_table",
]
