"""The report's plots: which of them show a comparison."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from nnunet_nacl.files import check_output
from nnunet_nacl.report._comparison import Comparison, Results, compare_all
from nnunet_nacl.report._metrics import DICE, Metric, judging_metrics, paper_metrics
from nnunet_nacl.report._reliability import class_curve, class_errors, top_label_curves
from nnunet_nacl.report._review import Reviews
from nnunet_nacl.report._statistics import all_rankings
from nnunet_nacl.report._study import Study
from nnunet_nacl.report.plots._methods import radar, rank_heatmap, rank_stability, reliability_curves, tradeoff_scatter
from nnunet_nacl.report.plots._review import dice_scatter, risk_coverage_curves, volume_differences
from nnunet_nacl.report.plots._study import study_arrows, study_curves, study_differences, study_radar
from nnunet_nacl.report.plots._style import Panel, draw_panels, save_plot

MAX_CLASSES = 12


def write_plot(results: Mapping[str, Results], kind: str, file: str | Path, *, voxels: str | None = None) -> None:
    """Write a plot of the report; a file that exists is replaced.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        kind: ``reliability``, ``classes`` (reliability of the classes that any method is worst calibrated in),
            ``tradeoff``, ``radar`` or ``ranks``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``.
        voxels: voxel set; by default near, or the first shared one if near was not evaluated. For ``tradeoff``, by
            default what calibration is judged by; for ``ranks``, that of the paper's ranking, by default the first that
            labels choose.

    Raises:
        OSError: the file cannot be written.
        ValueError: no such kind, voxel set or ending, or nothing to compare.
    """
    file = check_output(file, overwrite=True)
    if file.suffix.lower() not in {".svg", ".pdf", ".png"}:
        raise ValueError(f"{file}: expected a name that ends with .svg, .pdf or .png.")
    if kind not in [*_KINDS, "ranks"]:
        raise ValueError(f"kind: expected one of {', '.join(_KINDS)}, ranks; got {kind}.")
    comparisons = compare_all(results)
    for comparison in comparisons:
        comparison.check_voxels(voxels or comparison.main)
    if kind == "ranks":
        rankings = all_rankings(comparisons, voxels)
        panels: list[Panel] = [partial(draw, one) for one in rankings for draw in (rank_heatmap, rank_stability)]
    else:
        panels = [panel for one in comparisons for panel in _KINDS[kind](one, voxels)]
    save_plot(draw_panels(panels, columns=2 if kind == "ranks" else 3), file)


def reliability_panels(comparison: Comparison, voxels: str | None = None) -> list[Panel]:
    """A diagram for each method; with regions, for each region."""
    names, voxels = comparison.names, voxels or comparison.main
    curves = [one for name in names for one in top_label_curves(comparison, name, voxels)]
    return [partial(reliability_curves, [one], names=names, shares=True) for one in curves]


def overlaid_panels(comparison: Comparison, voxels: str) -> list[Panel]:
    """The curves of all methods in one diagram; with regions, in one for each region."""
    of_methods = [top_label_curves(comparison, name, voxels) for name in comparison.names]
    return [partial(reliability_curves, curves, shares=True) for curves in zip(*of_methods, strict=True)]


def class_panels(comparison: Comparison, voxels: str | None = None, *, legend: bool = True) -> list[Panel]:
    """The curves of all methods for each of the classes that any method is worst calibrated in."""
    voxels = voxels or comparison.main
    errors = np.array([class_errors(method, voxels) for method in comparison.methods])
    worst = np.argsort(-np.nan_to_num(errors, nan=-1).max(0), kind="stable")[:MAX_CLASSES]
    classes = [comparison.classes[row] for row in sorted(worst)]
    if voxels == "foreground" and not comparison.has_regions and "background" in classes:
        classes.remove("background")  # no voxel there is background
    curves = [[class_curve(comparison, name, voxels, one) for name in comparison.names] for one in classes]
    return [partial(reliability_curves, one, legend=legend) for one in curves]


def tradeoff_panels(comparison: Comparison, voxels: str | None = None, *, legend: bool = True) -> list[Panel]:
    """Dice against what calibration is judged by; over a given voxel set, against ECE and CECE."""
    metrics = judging_metrics(comparison) if voxels is None else []
    metrics = metrics or paper_metrics(comparison, voxels)
    return [partial(tradeoff_scatter, comparison, one, legend=legend) for one in metrics]


def radar_panels(comparison: Comparison, voxels: str | None = None) -> list[Panel]:
    """The paper's radar plot."""
    return [partial(radar, comparison, Metric("ECE", voxels or comparison.main))]


_KINDS: dict[str, Callable[[Comparison, str | None], list[Panel]]] = {
    "reliability": reliability_panels,
    "classes": class_panels,
    "tradeoff": tradeoff_panels,
    "radar": radar_panels,
}


def review_panels(reviews: Reviews) -> list[Panel]:
    """Predicted against true Dice of each method, risk–coverage curves, volumes of each method."""
    names = list(reviews.judgements)
    dice, volumes = ([partial(draw, reviews, one) for one in names] for draw in (dice_scatter, volume_differences))
    return [*dice, partial(risk_coverage_curves, reviews), *volumes]


def study_panels(comparison: Comparison, study: Study) -> list[Panel]:
    """A study's plots, one for each metric; none if no two of its variants can be compared."""
    there = study.compared(comparison)
    if len(there) < 2 or (study.plot in {"differences", "arrows"} and not study.pairs(comparison)):
        return []
    metrics = [DICE, *judging_metrics(comparison), *paper_metrics(comparison)]
    # A radar of two axes is a line.
    is_radar = study.plot == "radar" and len({one.group for one in there}) > 2
    if is_radar:
        metrics = [one for one in metrics if one.name != "CECE"]
    if study.plot == "arrows":
        metrics.remove(DICE)
    draws = {"differences": study_differences, "arrows": study_arrows}
    draw = study_radar if is_radar else draws.get(study.plot, study_curves)
    return [partial(draw, comparison, study, one) for one in metrics]
