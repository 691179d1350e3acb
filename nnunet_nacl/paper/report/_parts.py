"""What the paper adds to the report: tables, plots, and parts of the page."""

from collections.abc import Sequence
from functools import partial

from nnunet_nacl import report
from nnunet_nacl.paper.report._figures import radar_panels, rank_heatmap, study_panels
from nnunet_nacl.paper.report._published import (
    published_data_set,
    published_methods,
    published_table,
)
from nnunet_nacl.paper.report._ranks import (
    SchemeName,
    all_rankings,
    rank_by_scores,
    rank_methods,
)
from nnunet_nacl.paper.report._variants import StudyPlot
from nnunet_nacl.report import Comparison, PageParts, Table, panels_of_each, table_of_each
from nnunet_nacl.report.plots import Panel
from nnunet_nacl.typing import Record

_NO_RANKING = "ranks need the voxel sets near and image, which some summaries lack: evaluate again."


def _table_by_scores(comparisons: Sequence[Comparison]) -> list[Table]:
    """Ranks by the metrics that judge methods."""
    ranking = rank_by_scores(comparisons)
    if ranking is None:
        raise ValueError(_NO_RANKING)
    return [ranking.table()]


def _table_by_scheme(comparisons: Sequence[Comparison], scheme: SchemeName) -> list[Table]:
    """Ranks by the paper's metrics and one of its schemes."""
    return [rank_methods(comparisons, scheme).table()]


def _heatmaps(comparisons: Sequence[Comparison]) -> list[Panel]:
    rankings = all_rankings(comparisons)
    if not rankings:
        raise ValueError(_NO_RANKING)
    return [partial(rank_heatmap, ranking) for ranking in rankings]


TABLES = report.TABLES | {
    "published": table_of_each(published_table),
    "ranks": _table_by_scores,
    "sum-rank": partial(_table_by_scheme, scheme="sum-rank"),
    "mean-case-rank": partial(_table_by_scheme, scheme="mean-case-rank"),
}
"""The report's tables and the paper's, for ``write_table``."""
PLOTS = report.PLOTS | {"radar": panels_of_each(radar_panels), "ranks": _heatmaps}
"""The report's plots and the paper's, for ``write_plot``."""


def page_parts(study: StudyPlot | None = None) -> PageParts:
    """For ``write_report``; of a study, its plots begin each data set's section."""
    return PageParts(
        "nnunet_nacl.paper.report", "paper.html.j2", partial(_of_data_set, study=study), _of_all
    )


def _of_data_set(comparison: Comparison, study: StudyPlot | None) -> Record:
    several = len(comparison.names) > 2
    return {
        "study": study,
        "study_panels": study_panels(comparison, study) if study else [],
        "radar": radar_panels(comparison) if several else [],
        "rankings": _shown_ranks([comparison]) if several else [],
    }


def _of_all(comparisons: Sequence[Comparison]) -> Record:
    published = [
        published_table(comparison)
        for comparison in comparisons
        if published_data_set(comparison.dataset) and any(published_methods(comparison).values())
    ]
    return {"together": _together(comparisons), "published": published}


def _together(comparisons: Sequence[Comparison]) -> Record | None:
    """Ranks and radar plots over several data sets; None if they share fewer than two methods, or no voxel set."""
    names = set.intersection(*(set(comparison.names) for comparison in comparisons))
    voxels = set.intersection(*(set(comparison.voxels) for comparison in comparisons))
    if len(comparisons) < 2 or len(names) < 2 or not voxels:
        return None
    alike = [comparison.of_methods(names) for comparison in comparisons]
    radar = [panel for comparison in alike for panel in radar_panels(comparison)]
    return {"rankings": _shown_ranks(alike), "radar": radar if len(names) > 2 else []}


def _shown_ranks(comparisons: Sequence[Comparison]) -> list[Record]:
    """Ranks by the judging metrics and by the paper's metrics, over one or several data sets."""
    return [
        {"table": ranking.table(), "panel": partial(rank_heatmap, ranking)}
        for ranking in all_rankings(comparisons)
    ]
