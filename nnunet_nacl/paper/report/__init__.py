"""The paper's additions to page, tables and plots: published values, ranks, radar plots, studies.

>>> from nnunet_nacl.paper.report import page_parts  # write_report(results, "page.html", parts=page_parts())
"""

from nnunet_nacl.paper.report._figures import radar, rank_heatmap, study_figure
from nnunet_nacl.paper.report._parts import PLOTS, TABLES, page_parts
from nnunet_nacl.paper.report._published import published
from nnunet_nacl.paper.report._ranks import (
    MEAN_CASE_RANK,
    SUM_RANK,
    Ranking,
    Scheme,
    all_rankings,
    rank_methods,
)

__all__ = [
    "MEAN_CASE_RANK",
    "PLOTS",
    "SUM_RANK",
    "TABLES",
    "Ranking",
    "Scheme",
    "all_rankings",
    "page_parts",
    "published",
    "radar",
    "rank_heatmap",
    "rank_methods",
    "study_figure",
]
