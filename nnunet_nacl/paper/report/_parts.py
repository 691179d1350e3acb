"""What the paper adds to the report: tables, plots, and parts of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from nnunet_nacl import report
from nnunet_nacl.paper.report._figures import (
    radar_panels,
    rank_heatmap,
    study_figure,
    study_panels,
)
from nnunet_nacl.paper.report._published import (
    published_data_set,
    published_methods,
    published_table,
)
from nnunet_nacl.paper.report._ranks import (
    MEAN_CASE_RANK,
    SUM_RANK,
    Scheme,
    all_rankings,
    rank_by_scores,
    rank_methods,
)
from nnunet_nacl.paper.studies import Study
from nnunet_nacl.report import Comparison, PageParts, Table, of_each
from nnunet_nacl.report.plots import Panel

_NO_RANKING = "ranks need the voxel sets near and image, which some summaries lack: evaluate again."


def _table_by_scores(comparisons: Sequence[Comparison]) -> list[Table]:
    """Ranks by the metrics that judge methods."""
    ranking = rank_by_scores(comparisons)
    if ranking is None:
        raise ValueError(_NO_RANKING)
    return [ranking.table()]


def _table_by_scheme(comparisons: Sequence[Comparison], scheme: Scheme) -> list[Table]:
    """Ranks by the paper's metrics and one of its schemes."""
    return [rank_methods(comparisons, scheme).table()]


def _heatmaps(comparisons: Sequence[Comparison]) -> list[list[Panel]]:
    rankings = all_rankings(comparisons)
    if not rankings:
        raise ValueError(_NO_RANKING)
    return [[partial(rank_heatmap, ranking) for ranking in rankings]]


TABLES = report.TABLES | {
    "published": of_each(published_table),
    "ranks": _table_by_scores,
    SUM_RANK.name: partial(_table_by_scheme, scheme=SUM_RANK),
    MEAN_CASE_RANK.name: partial(_table_by_scheme, scheme=MEAN_CASE_RANK),
}
"""The report's tables and the paper's, for ``table_text``."""
PLOTS = report.PLOTS | {"radar": of_each(radar_panels), "ranks": _heatmaps}
"""The report's plots and the paper's, for ``write_plot``."""


def page_parts(study: Study | None = None) -> PageParts:
    """The paper's parts of a page, for ``write_report``; a study's plots, if any, begin each data set's section."""
    of_data_set = partial(_of_data_set, study=study)
    of_all = partial(_of_all, study=study)
    return PageParts("paper/report/templates/paper.html.j2", of_data_set, of_all)


ShownRanking = tuple[Table, Panel]
"""A ranking as table and heat map."""


@dataclass(frozen=True)
class ShownStudy:
    """A study's plots, what is said of them, and the methods without results."""

    title: str
    caption: str
    panels: list[Panel]
    missing: list[str]


@dataclass(frozen=True)
class OfDataSet:
    """What the section of a data set shows more: a study's plots; radar and ranks of three methods or more."""

    study: ShownStudy | None
    radar: list[Panel]
    rankings: list[ShownRanking]


@dataclass(frozen=True)
class OfAll:
    """What the page shows more: rankings over several data sets, a radar plot of each, published tables."""

    rankings: list[ShownRanking]
    radar: list[Panel]
    published: list[Table]


def _of_data_set(comparison: Comparison, study: Study | None) -> OfDataSet:
    shown = _shown_study(comparison, study)
    if len(comparison.names) < 3:
        return OfDataSet(shown, radar=[], rankings=[])
    return OfDataSet(shown, radar_panels(comparison), _shown_ranks([comparison]))


def _shown_study(comparison: Comparison, study: Study | None) -> ShownStudy | None:
    """None without a study whose setting is drawn."""
    if study is None or study.figure is None:
        return None
    figure = study_figure(comparison, study)
    caption = "No plot: no two variants here can be compared with each other."
    if figure is not None:
        caption = figure.caption.format(setting=study.setting, groups=list(study.groups))
    missing = [method.name for method in study.methods if method.name not in comparison.names]
    return ShownStudy(study.title, caption, study_panels(comparison, study), missing)


def _of_all(comparisons: Sequence[Comparison], study: Study | None) -> OfAll:
    published = [
        published_table(comparison, study)
        for comparison in comparisons
        if published_data_set(comparison.dataset)
        and any(published_methods(comparison, study).values())
    ]
    names = set.intersection(*(set(comparison.names) for comparison in comparisons))
    voxels = set.intersection(*(set(comparison.voxels) for comparison in comparisons))
    if len(comparisons) < 2 or len(names) < 2 or not voxels:
        return OfAll([], [], published)
    alike = [comparison.of_methods(names) for comparison in comparisons]
    radar = [panel for one in alike for panel in radar_panels(one)] if len(names) > 2 else []
    return OfAll(_shown_ranks(alike), radar, published)


def _shown_ranks(comparisons: Sequence[Comparison]) -> list[ShownRanking]:
    """Ranks by the judging metrics and by the paper's metrics, over one or several data sets."""
    return [
        (ranking.table(), partial(rank_heatmap, ranking)) for ranking in all_rankings(comparisons)
    ]
