"""The report's plots: which panels show a comparison, and what each shows in words."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.report._comparison import Comparison, compare_all, notes_on
from nnunet_nacl.report._confidences import JudgedMethods
from nnunet_nacl.report._metrics import (
    DICE,
    POOLED,
    Metric,
    judging_metrics,
    number_text,
    place,
    study_metrics,
    tradeoff,
)
from nnunet_nacl.report._reliability import Reliability, class_curve, class_errors, top_label_curves
from nnunet_nacl.report._shared import Results
from nnunet_nacl.report._slices import check_images, chosen_cases, read_slice
from nnunet_nacl.report._statistics import SCHEMES, Ranking, rank_by_scores, rank_methods, ranked_voxels
from nnunet_nacl.report._study import (
    Study,
    describe_arrows,
    drawn_study,
    relative_differences,
    split_variants,
    study_caption,
    study_pairs,
    study_scores,
)
from nnunet_nacl.report.plots._case import draw_case_slice
from nnunet_nacl.report.plots._confidences import dice_scatter, risk_coverage_curves, volume_differences
from nnunet_nacl.report.plots._methods import (
    radar,
    rank_heatmap,
    rank_stability,
    reliability_curves,
    reliability_diagram,
    tradeoff_scatter,
)
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
PLOTS = ("reliability", "classes", "tradeoff", "radar", "ranks", "case")


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
        file: ends with ``.svg``, ``.pdf`` or ``.png``. It is written completely or not at all.
        baseline: the method that the others are compared with.
        voxels: voxel set; by default near, or the first shared one if near was not evaluated. For ``tradeoff``, by
            default what calibration is judged by; for ``ranks``, that of the paper's ranking, by default the first that
            labels choose.
        classes: names of classes, for ``classes``; by default those that any method is worst calibrated in.
        case: its name, for ``case``; by default the one of median ECE.
        images: folder of the images, for ``case``.
        overwrite: replace a file that is no plot of ours, too.
        show: called with what the reader must know of the comparison, such as that the bins of methods were joined.
        ignore_geometry: take files as they are, though their spacing, origin or direction differ, for ``case``.

    Raises:
        FileNotFoundError: ``images`` is no folder.
        OSError: the file cannot be written, there is one that is no plot of ours, or a case's files cannot be read.
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
    panels: list[Panel]
    if kind == "case":
        save_plot(_case_plot(pairs, case, images, ignore_geometry=ignore_geometry), file, overwrite=overwrite)
        return
    if kind == "reliability":
        panels = [panel for pair in pairs for panel in reliability_panels(*pair)]
    elif kind == "classes":
        panels = [panel for pair in pairs for panel in class_panels(*pair, classes)]
    elif kind == "tradeoff":
        panels = [panel for comparison in comparisons for panel in tradeoff_panels(comparison, voxels)]
    elif kind == "radar":
        panels = [panel for pair in pairs for panel in radar_panels(*pair)]
    elif kind == "ranks":
        paper = ranked_voxels(comparisons) if voxels is None else voxels
        panels = [*score_rank_panels(comparisons), *paper_rank_panels(comparisons, paper)]
    else:
        raise ValueError(f"kind: expected {', '.join(PLOTS[:-1])} or {PLOTS[-1]}; got {kind}.")
    save_plot(draw_panels(panels, columns=2 if kind == "ranks" else 3), file, overwrite=overwrite)


def _case_plot(
    pairs: Sequence[tuple[Comparison, str]], case: str | None, images: str | Path | None, *, ignore_geometry: bool
) -> Figure:
    for comparison, voxels in pairs:
        roles = chosen_cases(comparison, voxels)
        name = roles.get("median", next(iter(roles.values()), None)) if case is None else case
        if name is not None and name in comparison.cases:
            return draw_case(comparison, name, voxels, images=images, ignore_geometry=ignore_geometry)[0]
    raise ValueError(f"case: expected one that all methods share; got {case}.")


def reliability_panels(comparison: Comparison, voxels: str) -> list[Panel]:
    """A diagram for each method; with regions, for each of the first few regions."""
    panels: list[Panel] = []
    for name in comparison.names:
        color = color_of(comparison.names, name)
        curves = top_label_curves(comparison, name, voxels)[:MAX_REGIONS]
        panels += [_panel(reliability_diagram, one, one.describe(voxels), color=color) for one in curves]
    return panels


def overlaid_panels(comparison: Comparison, voxels: str) -> list[Panel]:
    """The curves of all methods in one diagram; with regions, in one for each of the first few regions."""
    of_methods = [top_label_curves(comparison, name, voxels)[:MAX_REGIONS] for name in comparison.names]
    panels = []
    for curves in zip(*of_methods, strict=True):
        text = " ".join(curve.describe(voxels) for curve in curves)
        panels.append(_panel(reliability_curves, curves, text))
    return panels


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
        panels.append(_panel(reliability_curves, curves, _describe_classes(curves, voxels), legend=legend))
    return panels


def _describe_classes(curves: Sequence[Reliability], voxels: str) -> str:
    errors = "; ".join(f"{curve.name}: {number_text(curve.error)}" for curve in curves)
    return f"Reliability curves of the probability of {curves[0].what} {place(voxels)}. Pooled ECE: {errors}."


def worst_classes(comparison: Comparison, voxels: str) -> list[str]:
    """The classes with the largest error of any method, ``MAX_CLASSES`` at most, in the data set's order."""
    errors = [class_errors(comparison, name, voxels) for name in comparison.names]
    largest = {one: max((e[one] for e in errors if not math.isnan(e[one])), default=-1.0) for one in comparison.classes}
    chosen = set(sorted(largest, key=lambda one: largest[one], reverse=True)[:MAX_CLASSES])
    return [one for one in comparison.classes if one in chosen]


def tradeoff_panels(comparison: Comparison, voxels: str | None = None, *, legend: bool = True) -> list[Panel]:
    """Dice against what calibration is judged by; over a given voxel set, against ECE and CECE."""
    judging = judging_metrics(comparison) or study_metrics(comparison)
    metrics = judging if voxels is None else [Metric(name, voxels) for name in ("ECE", "CECE")]
    panels = []
    for metric in metrics:
        data = tradeoff(comparison, metric.name, voxels=metric.voxels)
        panels.append(_panel(tradeoff_scatter, data, data.describe("Scatter plot"), legend=legend))
    return panels


def radar_panels(comparison: Comparison, voxels: str) -> list[Panel]:
    """The paper's radar plot."""
    data = tradeoff(comparison, "ECE", voxels=voxels)
    return [Panel(partial(radar, data), data.describe("Radar plot"), polar=True)]


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
    return [_panel(rank_heatmap, ranking, ranking.describe()), stability_panel(ranking)]


def stability_panel(ranking: Ranking) -> Panel:
    """How often each method takes each place when the cases are drawn anew."""
    return _panel(rank_stability, ranking, f"Places in bootstrap resamples. {ranking.describe()}")


def confidence_panels(judged: JudgedMethods) -> list[Panel]:
    """Predicted against true Dice of each method, risk–coverage curves, volumes of each method."""
    colors = [color_of(judged.names, method.name) for method in judged.methods]
    methods = list(zip(judged.methods, colors, strict=True))
    least, frame = judged.least_dice, judged.volume_frame
    return [
        *(_panel(dice_scatter, one, one.describe_dice(), color=color, least=least) for one, color in methods),
        _panel(risk_coverage_curves, judged, judged.describe_risks()),
        *(_panel(volume_differences, one, one.describe_volumes(), color=color, frame=frame) for one, color in methods),
    ]


def study_panels(comparison: Comparison, study: Study) -> list[Panel]:
    """A study's plots, one for each metric; none if too few of its variants are compared."""
    study = drawn_study(study, comparison)
    metrics = study_metrics(comparison)
    if study.plot in {"differences", "arrows"}:
        pairs = study_pairs(comparison, study)
        if not pairs:
            return []
        if study.plot == "arrows":
            panels = []
            for metric in metrics:
                data = tradeoff(comparison, metric.name, voxels=metric.voxels)
                draw = partial(study_arrows, data, pairs, list(study.groups))
                panels.append(Panel(draw, describe_arrows(data, pairs)))
            return panels
        bars = [relative_differences(comparison, study, metric) for metric in [DICE, *metrics]]
        return [_panel(study_differences, one, one.describe()) for one in bars]
    if len(split_variants(study, comparison)[0]) < 2:
        return []
    if study.plot == "radar":
        drawn = [metric for metric in metrics if metric.name != "CECE"]
        scores = [study_scores(comparison, study, metric) for metric in [DICE, *drawn]]
        return [Panel(partial(study_radar, one), one.describe("Radar plot"), polar=True) for one in scores]
    scores = [study_scores(comparison, study, metric) for metric in [DICE, *metrics]]
    return [_panel(study_curves, one, one.describe("Curves")) for one in scores]


def draw_study(comparison: Comparison, study: Study) -> Figure:
    """Draw a study's plots in one figure, to save or show it.

    Args:
        comparison: methods, as :func:`compare` gives them.
        study: what is compared; variants whose methods are missing are left out.

    Raises:
        ValueError: too few of its variants are compared.
    """
    panels = study_panels(comparison, study)
    if not panels:
        raise ValueError(f"{study.title}: {study_caption(comparison, study, drawn=False)}")
    figure = draw_panels(panels, size=4)
    with plot_style():
        figure.suptitle(wrapped(f"{study.title}, {comparison.dataset}" if comparison.dataset else study.title, 60))
    return figure


def draw_case(
    comparison: Comparison,
    case: str,
    voxels: str,
    *,
    images: str | Path | None = None,
    ignore_geometry: bool = False,
) -> tuple[Figure, str, list[str]]:
    """Draw the slice of a case as every method sees it, and the case's reliability curves.

    Args:
        comparison: methods.
        case: its name.
        voxels: voxel set of the curves.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        ignore_geometry: take files as they are, though their spacing, origin or direction differ.

    Returns:
        The figure, what it shows in words, and what could not be read, with the reason.

    Raises:
        OSError: the ground truth cannot be read.
        ValueError: the same, or no such case.
    """
    data = read_slice(comparison, case, images=images, ignore_geometry=ignore_geometry)
    # With regions, the curve of the first one, which mostly holds the others.
    curves = {name: top_label_curves(comparison, name, voxels, case=case)[0] for name in comparison.names}
    errors = {name: curve.error for name, curve in curves.items()}
    return draw_case_slice(data, curves), data.describe(errors), data.missing


def _panel(draw: Callable[..., Axes], data: Any, description: str, **options: Any) -> Panel:
    return Panel(partial(draw, data, **options), description)
