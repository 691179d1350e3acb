"""Which panels the figures of a comparison have, and what they show in words."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._describe import (
    describe_arrows,
    describe_case,
    describe_classes,
    describe_ranking,
    describe_relative_differences,
    describe_reliability,
    describe_scores,
    describe_tradeoff,
    study_caption,
)
from nnunet_nacl.report._metrics import DICE, POOLED, Metric, judging_metrics, study_metrics
from nnunet_nacl.report._ranking import SCHEMES, Ranking, rank_by_scores, rank_methods
from nnunet_nacl.report._reliability import class_curve, class_errors, top_label_curves
from nnunet_nacl.report._slices import read_slice
from nnunet_nacl.report._study import (
    Study,
    drawn_study,
    relative_differences,
    split_variants,
    study_pairs,
    study_scores,
)
from nnunet_nacl.report._tradeoff import tradeoff
from nnunet_nacl.report.figures._compose import Panel, case_figure, grid_figure
from nnunet_nacl.report.figures._ranks import rank_heatmap, rank_stability
from nnunet_nacl.report.figures._reliability import reliability_curves, reliability_diagram
from nnunet_nacl.report.figures._study import study_arrows, study_curves, study_differences, study_radar
from nnunet_nacl.report.figures._style import color_of, figure_style, fitted
from nnunet_nacl.report.figures._tradeoff import radar, tradeoff_scatter

MAX_CLASSES = 12
MAX_REGIONS = 6  # of each method, in the reliability diagrams


def reliability_panels(comparison: Comparison, voxels: str) -> list[Panel]:
    """A diagram for each method; with regions, for each of the first few regions."""
    panels: list[Panel] = []
    for name in comparison.names:
        color = color_of(comparison.names, name)
        curves = top_label_curves(comparison, name, voxels)[:MAX_REGIONS]
        panels += [_panel(reliability_diagram, one, describe_reliability(one, voxels), color=color) for one in curves]
    return panels


def class_panels(comparison: Comparison, voxels: str, classes: Sequence[str] | None = None) -> list[Panel]:
    """The curves of all methods for each class: by default for those that any method is worst calibrated in."""
    panels = []
    for one in worst_classes(comparison, voxels) if classes is None else classes:
        curves = [class_curve(comparison, name, voxels, one) for name in comparison.names]
        panels.append(_panel(reliability_curves, curves, describe_classes(curves, voxels)))
    return panels


def worst_classes(comparison: Comparison, voxels: str) -> list[str]:
    """The classes with the largest error of any method, ``MAX_CLASSES`` at most, in the data set's order."""
    errors = [class_errors(comparison, name, voxels) for name in comparison.names]
    largest = {one: max((e[one] for e in errors if not math.isnan(e[one])), default=-1.0) for one in comparison.classes}
    chosen = set(sorted(largest, key=lambda one: largest[one], reverse=True)[:MAX_CLASSES])
    return [one for one in comparison.classes if one in chosen]


def tradeoff_panels(comparison: Comparison, voxels: str | None = None) -> list[Panel]:
    """Dice against what calibration is judged by; over a given voxel set, against ECE and CECE."""
    judging = judging_metrics(comparison) or study_metrics(comparison)
    metrics = judging if voxels is None else [Metric(name, voxels) for name in ("ECE", "CECE")]
    panels = []
    for metric in metrics:
        data = tradeoff(comparison, metric.name, voxels=metric.voxels)
        panels.append(_panel(tradeoff_scatter, data, describe_tradeoff(data, "Scatter plot")))
    return panels


def radar_panels(comparison: Comparison, voxels: str) -> list[Panel]:
    """The paper's radar plot."""
    data = tradeoff(comparison, "ECE", voxels=voxels)
    return [Panel(partial(radar, data), describe_tradeoff(data, "Radar plot"), polar=True)]


def score_rank_panels(comparisons: Sequence[Comparison]) -> list[Panel]:
    """A heat map of the ranking by Dice, NLL per foreground voxel and ECE near, and of how stable it is."""
    ranking = rank_by_scores(comparisons)
    return [] if ranking is None else _rank_panels(ranking)


def paper_rank_panels(comparisons: Sequence[Comparison], voxels: str) -> list[Panel]:
    """A heat map of each of the paper's rankings, and of how stable it is."""
    schemes = [scheme for scheme in SCHEMES if scheme == "sum-rank" or voxels not in POOLED]
    rankings = [rank_methods(comparisons, scheme, voxels=voxels) for scheme in schemes]
    return [panel for ranking in rankings for panel in _rank_panels(ranking)]


def _rank_panels(ranking: Ranking) -> list[Panel]:
    text = describe_ranking(ranking)
    return [
        _panel(rank_heatmap, ranking, text),
        _panel(rank_stability, ranking, f"Places in bootstrap resamples. {text}"),
    ]


def study_panels(comparison: Comparison, study: Study) -> list[Panel]:
    """A study's figure, for each metric; none if too few of its variants are compared."""
    study = drawn_study(study, comparison)
    metrics = study_metrics(comparison)
    if study.figure in {"differences", "arrows"}:
        pairs = study_pairs(comparison, study)
        if not pairs:
            return []
        if study.figure == "arrows":
            panels = []
            for metric in metrics:
                data = tradeoff(comparison, metric.name, voxels=metric.voxels)
                draw = partial(study_arrows, data, pairs, list(study.groups))
                panels.append(Panel(draw, describe_arrows(data, pairs)))
            return panels
        found = [relative_differences(comparison, study, metric) for metric in [DICE, *metrics]]
        return [_panel(study_differences, one, describe_relative_differences(one)) for one in found]
    if len(split_variants(study, comparison)[0]) < 2:
        return []
    if study.figure == "radar":
        chosen = [metric for metric in metrics if metric.name != "CECE"]
        scores = [study_scores(comparison, study, metric) for metric in [DICE, *chosen]]
        return [Panel(partial(study_radar, one), describe_scores(one, "Radar plot"), polar=True) for one in scores]
    scores = [study_scores(comparison, study, metric) for metric in [DICE, *metrics]]
    return [_panel(study_curves, one, describe_scores(one, "Curves")) for one in scores]


def study_figure(comparison: Comparison, study: Study) -> Figure:
    """Draw a study's figure, to be saved or shown.

    Args:
        comparison: methods, as :func:`compare` gives them.
        study: what is compared; variants whose methods are missing are left out.

    Raises:
        ValueError: too few of its variants are compared.
    """
    panels = study_panels(comparison, study)
    if not panels:
        raise ValueError(f"{study.title}: {study_caption(comparison, study, drawn=False)}")
    figure = grid_figure(panels, size=4)
    with figure_style():
        figure.suptitle(fitted(f"{study.title}, {comparison.dataset}" if comparison.dataset else study.title, 60))
    return figure


@dataclass(frozen=True)
class DrawnCase:
    """A case's figure.

    Attributes:
        figure: image, reference and methods.
        description: what it shows, in words.
        missing: what could not be shown, with the reason.
    """

    figure: Figure
    description: str
    missing: list[str]


def draw_case(comparison: Comparison, case: str, voxels: str, *, images: str | Path | None = None) -> DrawnCase:
    """Draw the slice of a case as every method sees it, and the case's reliability curves.

    Args:
        comparison: methods.
        case: its name.
        voxels: voxel set of the curves.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.

    Raises:
        OSError: the reference cannot be read.
        ValueError: the same, or no such case.
    """
    data = read_slice(comparison, case, images=images)
    # With regions, the curve of the first one, which mostly holds the others.
    curves = {name: top_label_curves(comparison, name, voxels, case=case)[0] for name in comparison.names}
    errors = {name: curve.error for name, curve in curves.items()}
    return DrawnCase(case_figure(data, curves), describe_case(data, errors), data.missing)


def _panel(draw: Callable[..., Axes], data: Any, description: str, **options: Any) -> Panel:
    return Panel(partial(draw, data, **options), description)
