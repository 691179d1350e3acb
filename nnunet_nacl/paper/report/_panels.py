"""Which of the paper's plots show a comparison."""

from collections.abc import Sequence
from functools import partial

from nnunet_nacl import report
from nnunet_nacl.metrics import Voxels
from nnunet_nacl.paper.report._plots import radar, rank_heatmap
from nnunet_nacl.paper.report._ranks import all_rankings
from nnunet_nacl.paper.report._study import Study
from nnunet_nacl.paper.report._study_plots import (
    study_arrows,
    study_curves,
    study_differences,
    study_radar,
)
from nnunet_nacl.report import (
    DICE,
    Comparison,
    DrawAll,
    Metric,
    judging_metrics,
    panels_of_each,
    paper_metrics,
)
from nnunet_nacl.report.plots import Panel


def radar_panels(comparison: Comparison, voxels: Voxels | None = None) -> list[Panel]:
    """The paper's radar plot."""
    return [partial(radar, comparison, Metric("ECE", voxels or comparison.main))]


def study_panels(comparison: Comparison, study: Study) -> list[Panel]:
    """A study's plots, one for each metric; none if no two of its variants can be compared."""
    there = study.compared(comparison)
    if len(there) < 2 or (study.plot in {"differences", "arrows"} and not study.pairs(comparison)):
        return []
    metrics = [DICE, *judging_metrics(comparison), *paper_metrics(comparison)]
    draw = {"differences": study_differences, "arrows": study_arrows}.get(study.plot, study_curves)
    # A radar of two axes is a line
    if study.plot == "radar" and len({variant.group for variant in there}) > 2:
        draw = study_radar
        metrics = [metric for metric in metrics if metric.name != "CECE"]
    if study.plot == "arrows":
        metrics.remove(DICE)
    return [partial(draw, comparison, study, metric) for metric in metrics]


def _rank_panels(comparisons: Sequence[Comparison], voxels: Voxels | None) -> list[Panel]:
    return [partial(rank_heatmap, ranking) for ranking in all_rankings(comparisons, voxels)]


PLOTS: dict[str, DrawAll] = {
    **report.PLOTS,
    "radar": panels_of_each(radar_panels),
    "ranks": _rank_panels,
}
"""The report's plots and the paper's, for ``write_plot``."""
