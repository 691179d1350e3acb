"""The report's plots: which panels show a comparison, and what each shows in words."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.report._comparison import POOLED, Comparison, Results, compare_all, notes_on
from nnunet_nacl.report._metrics import DICE, Metric, judging_metrics, number_text, place, study_metrics, tradeoff
from nnunet_nacl.report._pictures import check_images, chosen_cases, read_slices
from nnunet_nacl.report._reliability import Reliability, class_curve, class_errors, top_label_curves
from nnunet_nacl.report._review import JudgedMethods
from nnunet_nacl.report._statistics import SCHEMES, Ranking, rank_by_scores, rank_methods, ranked_voxels
from nnunet_nacl.report._study import Study, drawn_study, study_pairs
from nnunet_nacl.report.plots._case import draw_case_slice
from nnunet_nacl.report.plots._methods import (
    radar,
    rank_heatmap,
    rank_stability,
    reliability_curves,
    tradeoff_scatter,
)
from nnunet_nacl.report.plots._review import dice_scatter, risk_coverage_curves, volume_differences
from nnunet_nacl.report.plots._study import study_arrows, study_curves, study_differences, study_radar
from nnunet_nacl.report.plots._style import (
    Panel,
    check_plot_file,
    color_of,
    draw_panels,
    plot_style,
    save_plot,
    wrapped,
)

MAX_CLASSES = 12
MAX_REGIONS = 6  # of each method, in the reliability diagrams


def write_plot(
    results: Mapping[str, Results],
    kind: str,
    file: str | Path,
    *,
    baseline: str | None = None,
    voxels: str | None = None,
    classes: Sequence[str] | None = None,
    case: str | None = None,
    images: str | Path | None = None,
    overwrite: bool = False,
    show: Callable[[str], object] = lambda _: None,
    ignore_geometry: bool = False,
) -> None:
    """Write a plot of the report.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        kind: ``reliability``, ``classes``, ``tradeoff``, ``radar``, ``ranks`` or ``case``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``.
        baseline: the method that the others are compared with.
        voxels: voxel set; by default near, or the first shared one if near was not evaluated. For ``tradeoff``, by
            default what calibration is judged by; for ``ranks``, that of the paper's ranking, by default the first that
            labels choose.
        classes: names of classes, for ``classes``; by default those that any method is worst calibrated in.
        case: its name, for ``case``; by default the one of median ECE.
        images: folder of the images, for ``case``.
        overwrite: replace a file that exists.
        show: called with each note on the comparison.
        ignore_geometry: take files as they are, though their spacing, origin or direction differ, for ``case``.

    Raises:
        FileNotFoundError: ``images`` is no folder.
        OSError: the file cannot be written, or exists, or a case's files cannot be read.
        ValueError: no such kind, voxel set, class or case, one that this kind does not look at, or nothing to compare.
    """
    file = check_plot_file(file, overwrite=overwrite)
    for argument, value, looks in (("classes", classes, "classes"), ("case", case, "case"), ("images", images, "case")):
        if value is not None and kind != looks:
            raise ValueError(f"{argument}: only the plot {looks} looks at it; got {value} for {kind}.")
    check_images(images)
    comparisons = compare_all(results, baseline=baseline)
    for note in notes_on(comparisons):
        show(note)
    pairs = [(comparison, voxels or comparison.main) for comparison in comparisons]
    for comparison, shown in pairs:
        comparison.check_voxels(shown)
    of_kind: dict[str, Callable[[], list[Panel]]] = {
        "reliability": lambda: [panel for pair in pairs for panel in reliability_panels(*pair)],
        "classes": lambda: [panel for pair in pairs for panel in class_panels(*pair, classes)],
        "tradeoff": lambda: [panel for one in comparisons for panel in tradeoff_panels(one, voxels)],
        "radar": lambda: [radar_panel(*pair) for pair in pairs],
        "ranks": lambda: rank_panels(comparisons, voxels),
    }
    if kind == "case":
        figure = draw_case(comparisons, voxels, case, images=images, ignore_geometry=ignore_geometry)
    elif kind in of_kind:
        figure = draw_panels(of_kind[kind](), columns=2 if kind == "ranks" else 3)
    else:
        raise ValueError(f"kind: expected {', '.join(of_kind)} or case; got {kind}.")
    save_plot(figure, file, overwrite=overwrite)


def draw_case(
    comparisons: Sequence[Comparison],
    voxels: str | None,
    case: str | None,
    *,
    images: str | Path | None,
    ignore_geometry: bool,
) -> Figure:
    """The fullest slice of a case, by default of the median one, as every method sees it, with reliability curves."""
    for comparison in comparisons:
        shown = voxels or comparison.main
        roles = chosen_cases(comparison, shown)
        name = roles.get("median", next(iter(roles.values()), None)) if case is None else case
        if name is not None and name in comparison.cases:
            (data,) = read_slices(comparison, name, images=images, ignore_geometry=ignore_geometry)
            # With regions, the curve of the first one, which mostly holds the others.
            curves = {one: top_label_curves(comparison, one, shown, case=name)[0] for one in comparison.names}
            return draw_case_slice(data, curves)
    raise ValueError(f"case: expected one that all methods share; got {case}.")


def reliability_panels(comparison: Comparison, voxels: str) -> list[Panel]:
    """A diagram for each method; with regions, for each of the first few regions."""
    curves = [one for name in comparison.names for one in top_label_curves(comparison, name, voxels)[:MAX_REGIONS]]
    return [
        _panel(reliability_curves, [one], _describe([one], voxels), names=comparison.names, shares=True)
        for one in curves
    ]


def overlaid_panels(comparison: Comparison, voxels: str) -> list[Panel]:
    """The curves of all methods in one diagram; with regions, in one for each of the first few regions."""
    of_methods = [top_label_curves(comparison, name, voxels)[:MAX_REGIONS] for name in comparison.names]
    together = list(zip(*of_methods, strict=True))
    return [_panel(reliability_curves, curves, _describe(curves, voxels), shares=True) for curves in together]


def _describe(curves: Sequence[Reliability], voxels: str) -> str:
    errors = "; ".join(f"{curve.name}: {number_text(curve.error)}" for curve in curves)
    return f"Reliability diagram {place(voxels)} {curves[0].what}. Pooled ECE: {errors}."


def class_panels(
    comparison: Comparison, voxels: str, classes: Sequence[str] | None = None, *, legend: bool = True
) -> list[Panel]:
    """The curves of all methods for each class: by default for those that any method is worst calibrated in."""
    if classes is None:
        classes = worst_classes(comparison, voxels)
        if voxels == "foreground" and not comparison.has_regions:
            classes = [one for one in classes if one != "background"]  # no voxel there is background
    panels = []
    for one in classes:
        curves = [class_curve(comparison, name, voxels, one) for name in comparison.names]
        panels.append(_panel(reliability_curves, curves, _describe(curves, voxels), legend=legend))
    return panels


def worst_classes(comparison: Comparison, voxels: str) -> list[str]:
    """The classes with the largest error of any method, ``MAX_CLASSES`` at most, in the data set's order."""
    errors = [class_errors(comparison, name, voxels) for name in comparison.names]
    largest = {one: max((e[one] for e in errors if not math.isnan(e[one])), default=-1.0) for one in comparison.classes}
    chosen = set(sorted(largest, key=lambda one: largest[one], reverse=True)[:MAX_CLASSES])
    return [one for one in comparison.classes if one in chosen]


def tradeoff_panels(comparison: Comparison, voxels: str | None = None, *, legend: bool = True) -> list[Panel]:
    """Dice against what calibration is judged by; over a given voxel set, against ECE and CECE."""
    metrics = judging_metrics(comparison) or study_metrics(comparison)
    metrics = metrics if voxels is None else [Metric(name, voxels) for name in ("ECE", "CECE")]
    panels = []
    for metric in metrics:
        data = tradeoff(comparison, metric.name, voxels=metric.voxels)
        panels.append(_panel(tradeoff_scatter, data, f"Scatter plot of Dice against {data.error_name}.", legend=legend))
    return panels


def radar_panel(comparison: Comparison, voxels: str) -> Panel:
    """The paper's radar plot."""
    data = tradeoff(comparison, "ECE", voxels=voxels)
    return Panel(partial(radar, data), f"Radar plot of Dice and {data.error_name}.", polar=True)


def rank_panels(comparisons: Sequence[Comparison], voxels: str | None) -> list[Panel]:
    """A heat map of each ranking, and of how stable it is: by what methods are judged by, and the paper's two."""
    paper = ranked_voxels(comparisons) if voxels is None else voxels
    schemes = [scheme for scheme in SCHEMES if scheme == "sum-rank" or paper not in POOLED]
    by_scores = rank_by_scores(comparisons)
    rankings = [by_scores] if by_scores else []
    rankings += [rank_methods(comparisons, scheme, voxels=paper) for scheme in schemes]
    return [
        panel
        for one in rankings
        for panel in (_panel(rank_heatmap, one, f"Ranks by {', '.join(one.metrics)}."), stability_panel(one))
    ]


def stability_panel(ranking: Ranking) -> Panel:
    """How often each method takes each place when the cases are drawn anew."""
    return _panel(rank_stability, ranking, f"How often each method takes each place, by {', '.join(ranking.metrics)}.")


def judged_panels(judged: JudgedMethods) -> list[Panel]:
    """Predicted against true Dice of each method, risk–coverage curves, volumes of each method."""
    colors = [color_of(judged.names, method.name) for method in judged.methods]
    methods = list(zip(judged.methods, colors, strict=True))
    least, frame = judged.least_dice, judged.volume_frame
    dice, volume = "True against predicted Dice of {}.", "Expected less true volume of {} against the mean of both."
    return [
        *(_panel(dice_scatter, one, dice.format(one.name), color=color, least=least) for one, color in methods),
        _panel(risk_coverage_curves, judged, "Risk–coverage curves: risk 1 − Dice, the highest predicted Dice first."),
        *(_panel(volume_differences, one, volume.format(one.name), color=color, frame=frame) for one, color in methods),
    ]


def study_panels(comparison: Comparison, study: Study) -> list[Panel]:
    """A study's plots, one for each metric; none if too few of its variants are compared."""
    study = drawn_study(study, comparison)
    metrics = study_metrics(comparison)
    if len(study.compared(comparison)) < 2:
        return []
    if study.plot in {"differences", "arrows"}:
        pairs = study_pairs(comparison, study)
        draw_pairs, shown = (study_arrows, metrics) if study.plot == "arrows" else (study_differences, [DICE, *metrics])
        return [
            Panel(partial(draw_pairs, comparison, study, one, pairs), _of_study(one, study)) for one in shown if pairs
        ]
    is_radar = study.plot == "radar"
    draw, shown = (study_radar, [one for one in metrics if one.name != "CECE"]) if is_radar else (study_curves, metrics)
    return [
        Panel(partial(draw, comparison, study, one), _of_study(one, study), polar=is_radar) for one in [DICE, *shown]
    ]


def _of_study(metric: Metric, study: Study) -> str:
    return f"{study.plot.capitalize()} of {metric.axis} by {study.setting}."


def draw_study(comparison: Comparison, study: Study) -> Figure:
    """Draw a study's plots in one figure, to save or show it; variants whose methods are missing are left out.

    Raises:
        ValueError: too few of its variants are compared.
    """
    panels = study_panels(comparison, study)
    if not panels:
        raise ValueError(f"{study.title}: no two variants here can be compared with each other.")
    figure = draw_panels(panels, size=4)
    with plot_style():
        figure.suptitle(wrapped(f"{study.title}, {comparison.dataset}" if comparison.dataset else study.title, 60))
    return figure


def _panel(draw: Callable[..., Axes], data: Any, description: str, **options: Any) -> Panel:
    return Panel(partial(draw, data, **options), description)
