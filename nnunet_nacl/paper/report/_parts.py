"""The paper's additions to the report: tables, plots, and parts of the page."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from nnunet_nacl import report
from nnunet_nacl.paper.report._figures import radar_panels, rank_heatmap, study_figure
from nnunet_nacl.paper.report._published import (
    published_data_set,
    published_methods,
    published_table,
)
from nnunet_nacl.paper.report._ranks import (
    MEAN_CASE_RANK,
    SUM_RANK,
    all_rankings,
    rank_by_scores,
    rank_methods,
)
from nnunet_nacl.paper.studies import Study
from nnunet_nacl.report import Comparison, PageParts, Table, of_each
from nnunet_nacl.report.plots import Panel
from nnunet_nacl.typing import ByName


def _ranks(comparisons: Sequence[Comparison]) -> list[tuple[Table, Panel]]:
    """Rank over one or several data sets; return each ranking as a table and a heat map."""
    return [(table, partial(rank_heatmap, table)) for table in all_rankings(comparisons)]


TABLES = report.TABLES | {
    "published": of_each(published_table),
    "ranks": rank_by_scores,
    SUM_RANK: lambda comparisons: [rank_methods(comparisons, SUM_RANK)],
    MEAN_CASE_RANK: lambda comparisons: [rank_methods(comparisons, MEAN_CASE_RANK)],
}
"""The report's tables and the paper's, for ``table_text``."""
PLOTS = report.PLOTS | {
    "radar": of_each(radar_panels),
    "ranks": lambda comparisons: [[heatmap for _, heatmap in _ranks(comparisons)]],
}
"""The report's plots and the paper's, for ``write_plot``."""


def page_parts(study: Study | None = None) -> PageParts:
    """Make the paper's parts of a page for ``write_report``; a study's plots begin each data set's section."""
    of_data_set = partial(_of_data_set, study=study)
    of_all = partial(_of_all, study=study)
    return PageParts("paper/report/templates/paper.html.j2", of_data_set, of_all)


def _of_data_set(comparison: Comparison, study: Study | None) -> ByName:
    """Make the additions to a data set's section: a study's plots, and radar and ranks of three methods or more."""
    several = len(comparison.names) > 2
    additions: ByName = {
        "study": None,
        "radar": radar_panels(comparison) if several else [],
        "rankings": _ranks([comparison]) if several else [],
    }
    if study is not None and study.figure is not None:
        kind, panels = study_figure(comparison, study)
        additions |= {"study": study, "figure": kind, "panels": panels}
    return additions


def _of_all(comparisons: Sequence[Comparison], study: Study | None) -> ByName:
    """Make the additions to the page: rankings over several data sets, a radar plot of each, published tables."""
    published = [
        published_table(comparison, study)
        for comparison in comparisons
        if published_data_set(comparison.dataset)
        and any(published_methods(comparison, study).values())
    ]
    additions: ByName = {"rankings": [], "radar": [], "published": published}
    names = set.intersection(*(set(comparison.names) for comparison in comparisons))
    if len(comparisons) > 1 and len(names) > 1:
        shared = [
            replace(one, results={name: own for name, own in one.results.items() if name in names})
            for one in comparisons
        ]
        additions["rankings"] = _ranks(shared)
        if len(names) > 2:
            additions["radar"] = [panel for one in shared for panel in radar_panels(one)]
    return additions
