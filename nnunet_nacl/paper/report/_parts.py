"""What the paper adds to the report: tables, plots, and parts of the page."""

from collections.abc import Sequence
from functools import partial

from nnunet_nacl import report
from nnunet_nacl.paper.report._figures import radar_panels, rank_heatmap, study_panels
from nnunet_nacl.paper.report._published import (
    published_data_set,
    published_method,
    published_table,
)
from nnunet_nacl.paper.report._ranks import (
    SCHEMES,
    all_rankings,
    rank_by_scores,
    rank_methods,
    rank_table,
)
from nnunet_nacl.paper.report._variants import Study
from nnunet_nacl.report import Comparison, PageParts, Table, panels_of_each, table_of_each
from nnunet_nacl.report.plots import Panel
from nnunet_nacl.typing import Record


def _rank_tables(comparisons: Sequence[Comparison], scheme: str | None = None) -> list[Table]:
    """Of the paper's metrics by a scheme, or of those that judge methods."""
    if scheme is not None:
        return [rank_table(rank_methods(comparisons, scheme), comparisons)]
    ranking = rank_by_scores(comparisons)
    if ranking is None:
        raise ValueError(
            "ranks need the voxel sets near and image, which some summaries lack: evaluate again."
        )
    return [rank_table(ranking, comparisons)]


def _rank_panels(comparisons: Sequence[Comparison]) -> list[Panel]:
    return [partial(rank_heatmap, ranking) for ranking in all_rankings(comparisons)]


TABLES = report.TABLES | {
    "published": table_of_each(published_table),
    "ranks": _rank_tables,
    **{scheme: partial(_rank_tables, scheme=scheme) for scheme in SCHEMES},
}
"""The report's tables and the paper's, for ``write_table``."""
PLOTS = report.PLOTS | {"radar": panels_of_each(radar_panels), "ranks": _rank_panels}
"""The report's plots and the paper's, for ``write_plot``."""


def page_parts(study: Study | None = None) -> PageParts:
    """For ``write_report``; of a study, its plots begin each data set's section."""
    return PageParts(
        "nnunet_nacl.paper.report", "paper.html.j2", partial(_of_data_set, study=study), _of_all
    )


def _of_data_set(comparison: Comparison, study: Study | None) -> Record:
    several = len(comparison.names) > 2
    return {
        "study": study,
        "study_panels": study_panels(comparison, study) if study else [],
        "radar": radar_panels(comparison) if several else [],
        "rankings": _rankings([comparison]) if several else [],
    }


def _of_all(comparisons: Sequence[Comparison]) -> Record:
    published = [
        published_table(comparison)
        for comparison in comparisons
        if published_data_set(comparison.dataset) and any(map(published_method, comparison.names))
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
    return {"rankings": _rankings(alike), "radar": radar if len(names) > 2 else []}


def _rankings(comparisons: Sequence[Comparison]) -> list[Record]:
    """Ranks by the judging metrics and by the paper's metrics, over one or several data sets."""
    return [
        {
            "table": rank_table(ranking, comparisons),
            "panel": partial(rank_heatmap, ranking),
        }
        for ranking in all_rankings(comparisons)
    ]
