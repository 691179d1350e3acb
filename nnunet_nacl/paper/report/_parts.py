"""The paper's additions to the report: tables, plots, and what its part of the page shows."""

from collections.abc import Sequence
from dataclasses import replace

from nnunet_nacl import report
from nnunet_nacl.paper.report._figures import heatmap_panel, radar_panels
from nnunet_nacl.paper.report._published import published_data_set, published_table, their_names
from nnunet_nacl.paper.report._ranks import rank_by_judging, rank_by_paper, rankings
from nnunet_nacl.paper.report._study_figures import study_figure
from nnunet_nacl.paper.studies import Study
from nnunet_nacl.report import Comparison, PageParts, Table, of_each

TABLES = report.TABLES | {
    "published": of_each(published_table),
    "ranks": rank_by_judging,
    "sum-rank": lambda comparisons: [rank_by_paper(comparisons, "sum-rank")],
    "mean-case-rank": lambda comparisons: [rank_by_paper(comparisons, "mean-case-rank")],
}
"""The report's tables and the paper's, for ``table_text``."""
PLOTS = report.PLOTS | {
    "radar": lambda comparisons: [radar_panels(comparisons)],
    "ranks": lambda comparisons: [list(map(heatmap_panel, rankings(comparisons)))],
}
"""The report's plots and the paper's, for ``write_plot``."""


def page_parts(study: Study | None = None) -> PageParts:
    """Make the paper's parts of a page for ``write_report``; a study's plots begin each data set's section."""

    def published_tables(comparisons: Sequence[Comparison]) -> list[Table]:
        """Make the table of each data set of the paper that was compared with methods of the paper."""
        return [
            published_table(comparison, study)
            for comparison in comparisons
            if published_data_set(comparison.dataset)
            and any(their_names(comparison, study).values())
        ]

    content = {
        "study": study if study and study.figure else None,
        "study_figure": study_figure,
        "radar_panels": radar_panels,
        "rankings": rankings,
        "heatmap": heatmap_panel,
        "shared_methods": shared_methods,
        "published_tables": published_tables,
    }
    return PageParts("paper/report/templates/paper.html.j2", content)


def shared_methods(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Reduce several data sets to the methods that all of them have; none if there are fewer than two."""
    names = set.intersection(*(set(comparison.names) for comparison in comparisons))
    if len(comparisons) < 2 or len(names) < 2:
        return []
    return [
        replace(one, results={name: own for name, own in one.results.items() if name in names})
        for one in comparisons
    ]
