"""The report's plots: which plots show a comparison."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import Voxels
from nnunet_nacl.report._comparison import Comparison, Results, compare_all
from nnunet_nacl.report._metrics import (
    DICE,
    Metric,
    judging_metrics,
    paper_metrics,
    voxels_text,
)
from nnunet_nacl.report._reliability import top_label_curves
from nnunet_nacl.report._statistics import all_rankings
from nnunet_nacl.report._study import Study
from nnunet_nacl.report.plots._methods import (
    radar,
    rank_heatmap,
    reliability_curves,
    tradeoff_scatter,
)
from nnunet_nacl.report.plots._study import (
    study_arrows,
    study_curves,
    study_differences,
    study_radar,
)
from nnunet_nacl.report.plots._style import Panel, draw_panels, save_plot


def write_plot(
    results: Mapping[str, Results], kind: str, file: str | Path, *, voxels: Voxels | None = None
) -> None:
    """Write a plot of the report; a file that exists is replaced.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them.
        kind: ``reliability``, ``tradeoff``, ``radar`` or ``ranks``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``.
        voxels: voxel set; by default near, or the first shared one if near was not evaluated. For ``tradeoff``, by
            default that of the judging metrics; for ``ranks``, the first that labels choose.
    """
    file = check_output(file, overwrite=True)
    if file.suffix.lower() not in {".svg", ".pdf", ".png"}:
        raise ValueError(f"{file}: expected a name that ends with .svg, .pdf or .png.")
    comparisons = compare_all(results, voxels)
    if kind == "ranks":
        panels: list[Panel] = [
            partial(rank_heatmap, ranking) for ranking in all_rankings(comparisons, voxels)
        ]
    else:
        draw = {
            "reliability": reliability_panels,
            "tradeoff": tradeoff_panels,
            "radar": radar_panels,
        }[kind]
        panels = [panel for comparison in comparisons for panel in draw(comparison, voxels)]
    save_plot(draw_panels(panels), file)


def reliability_panels(
    comparison: Comparison, voxels: Voxels | None = None, *, overlaid: bool = False
) -> list[Panel]:
    """A diagram for each method, or one of all of them; with regions, for each region."""
    names = comparison.names
    voxels = voxels or comparison.main
    of_methods = [top_label_curves(comparison, name, voxels) for name in names]
    of_panels = (
        zip(*of_methods, strict=True)
        if overlaid
        else ([curve] for curves in of_methods for curve in curves)
    )
    title = comparison.dataset
    where = voxels_text(voxels)
    return [
        partial(reliability_curves, curves, names=names, title=title, where=where)
        for curves in of_panels
    ]


def case_reliability_panels(comparison: Comparison, case: str) -> list[Panel]:
    """The diagram of a single case, all methods in one; with regions, one for each region."""
    return reliability_panels(comparison.of_case(case), overlaid=True)


def tradeoff_panels(comparison: Comparison, voxels: Voxels | None = None) -> list[Panel]:
    """Dice against the metrics that judge calibration; over a given voxel set, against ECE and CECE."""
    metrics = (voxels is None and judging_metrics(comparison)) or paper_metrics(comparison, voxels)
    return [partial(tradeoff_scatter, comparison, metric) for metric in metrics]


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
