"""Plots of a study: its metrics as radar, curves, differences or arrows, as in Murugesan et al., MedIA 2025."""

import math
from collections.abc import Callable, Collection
from functools import partial
from itertools import combinations, product, zip_longest
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from nnunet_nacl.metrics import Estimate
from nnunet_nacl.paper.report._figures import LINE, polar_axes
from nnunet_nacl.paper.studies import FigureKind, Method, Study
from nnunet_nacl.report import DICE, Comparison, Metric
from nnunet_nacl.report.panels import (
    INK,
    Panel,
    draw_point,
    labelled,
    legend_below,
    reach,
    style_of,
    wrapped,
)
from nnunet_nacl.typing import Floats


def study_radar(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> None:
    """Draw a metric on an axis for each group, a line for the first value of each, and so on: the paper's figure 6."""
    estimates = comparison.estimates[metric]
    compared = study.compared(estimates)
    groups = list(dict.fromkeys(method.group for method in compared))
    ax, angles = polar_axes(ax, [wrapped(group, 14) for group in groups])
    # The first values of all groups, the second ones, and so on; None where a group has fewer
    lines = list(zip_longest(*(study.groups[group] for group in groups)))
    names = [f"HP{number}" for number in range(1, 1 + len(lines))]  # the paper's
    for name, line in zip(names, lines, strict=True):
        shown = [method for method in line if method in compared]
        if not shown:
            continue
        values = [estimates[one.name].value if one in shown else math.nan for one in line]
        listed = ", ".join(f"{method.group} {method.label}" for method in shown)
        label = wrapped(f"{name}: {listed}", 44, 6)
        ax.plot(angles, [*values, values[0]], label=label, **style_of(names, name), **LINE)
    better = "in"
    lowest = 0.0
    if metric.definition.higher_is_better:  # Dice, whose differences are small
        better = "out"
        worst = np.nan_to_num([estimates[method.name].value for method in compared], nan=1).min()
        lowest = max(math.floor(10 * worst - 0.5) / 10, 0)
    ax.set_ylim(bottom=lowest)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.set_title(f"{metric.title} (better: {better})", pad=14)
    legend_below(ax, 0.1, ncols=1)


def study_curves(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> None:
    """Draw a metric against the setting, a color for each group, with 95 % intervals; no line joins names."""
    estimates = comparison.estimates[metric]
    methods = study.compared(estimates)
    is_named = any(isinstance(method.value, str) for method in study.methods)
    if not is_named:
        methods.sort(key=attrgetter("value"))
    labels = {method.value: method.label for method in methods}
    places: dict[Any, Any] = dict(
        zip(labels, range(len(labels)) if is_named else labels, strict=True)
    )
    groups = list(study.groups)
    # Beside each other at a value, so that none hides another
    step = 0.3 * float(min(np.diff(list(places.values())), default=1)) / len(groups)
    middle = (len(groups) - 1) / 2
    for number, group in enumerate(groups):
        own = [method for method in methods if method.group == group]
        if not own:
            continue
        shown = [estimates[method.name] for method in own]
        ax.errorbar(
            [places[method.value] + step * (number - middle) for method in own],
            [estimate.value for estimate in shown],
            yerr=np.hstack([reach(estimate) for estimate in shown]),
            label=labelled(group),
            linestyle="none" if is_named else "-",
            elinewidth=0.8,
            **style_of(groups, group),
            **LINE,
        )
    slant: Any = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if is_named else {}
    ticks = [wrapped(label, 12) for label in labels.values()]
    ax.set_xticks(list(places.values()), ticks, **slant)
    ax.margins(0.12)
    title = f"{metric.title} (better: {'up' if metric.definition.higher_is_better else 'down'})"
    ax.set(xlabel=wrapped(study.setting, 40), title=title)
    legend_below(ax, 0.36 if is_named else 0.17, ncols=2)


def study_differences(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> None:
    """Draw (first − second) / first in % at each value, in the color of the better one: the paper's figure 7."""
    estimates = comparison.estimates[metric]
    groups = list(study.groups)
    pairs = compared_pairs(study, estimates)
    # A positive difference: the second value is lower
    left, right = groups[::-1] if metric.definition.higher_is_better else groups
    for row, (first, second) in enumerate(pairs):
        relative = relative_difference(estimates[first.name], estimates[second.name])
        if math.isnan(relative.value):
            continue
        color = style_of(groups, right if relative.value > 0 else left)["color"]
        ax.barh(row, relative.value, 0.6, color=color, alpha=0.85)
        interval = reach(relative)
        ax.errorbar(relative.value, row, xerr=interval, color=INK, linewidth=0.8, capsize=2)
    ax.axvline(0, color=INK, linewidth=0.8)
    widest = max(map(abs, ax.get_xlim()))
    ax.set_xlim(-widest, widest)
    ax.set_yticks(range(len(pairs)), [wrapped(first.label, 12) for first, _ in pairs])
    ax.set_ylim(len(pairs) - 0.4, -0.6)
    better = f"← {wrapped(left, 16, 1)} better    {wrapped(right, 16, 1)} better →"
    ax.set(xlabel=f"relative difference (%)\n{better}", ylabel=wrapped(study.setting))
    ax.set_title(metric.title)


def relative_difference(first: Estimate, second: Estimate) -> Estimate:
    """Compute (first − second) / first in %, over the cases and structures that both have."""
    difference = first.minus(second)
    base = first
    if first.values is not None and difference.values is not None:
        shared = np.where(np.isnan(difference.values), np.nan, first.values)
        base = Estimate.of_means(shared, first.patients)

    def percent(weights: Floats) -> Floats:
        values = base.resampled(weights)
        return 100 * difference.resampled(weights) / np.where(values == 0, np.nan, values)

    return Estimate(percent, first.patients, difference.is_known)


def study_arrows(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> None:
    """Draw Dice against error: arrows from each group's first value (cross) to its second (circle), as in figure 3."""
    errors = comparison.estimates[metric]
    dices = comparison.estimates[DICE]
    for first, second in compared_pairs(study, errors):
        tail = (errors[first.name].value, dices[first.name].value)
        head = (errors[second.name].value, dices[second.name].value)
        if np.isnan([*tail, *head]).any():
            continue
        color = style_of(list(study.groups), first.group)["color"]
        label = labelled(f"{first.group}: {first.label} → {second.label}")
        draw_point(ax, errors[first.name], dices[first.name], color=color, marker="x")
        draw_point(
            ax, errors[second.name], dices[second.name], color=color, marker="o", label=label
        )
        arrow = {"arrowstyle": "-|>", "color": color, "shrinkA": 4, "shrinkB": 4}
        ax.annotate("", head, tail, arrowprops=arrow)
    ax.margins(0.15)
    ax.set(xlabel=f"{metric.axis} (better: left)", ylabel="Dice (better: up)")
    legend_below(ax, ncols=1)


FIGURES: dict[FigureKind, Callable[[Comparison, Study, Metric, Axes], None]] = {
    "radar": study_radar,
    "differences": study_differences,
    "curves": study_curves,
    "arrows": study_arrows,
}


def compared_pairs(study: Study, names: Collection[str]) -> list[tuple[Method, Method]]:
    """Return the pairs of methods that the study's figure compares, as far as they are among ``names``."""
    methods = study.compared(names)
    if study.figure == "differences":
        baseline = study.methods[0].group
        return [
            (first, second)
            for first, second in product(methods, methods)
            if first.group == baseline != second.group and first.value == second.value
        ]
    pairs = combinations(methods, 2)
    return [pair for pair in pairs if study.figure != "arrows" or pair[0].group == pair[1].group]


def study_figure(comparison: Comparison, study: Study) -> tuple[FigureKind | None, list[Panel]]:
    """Return the kind of a study's plots, and these, one for each metric.

    There are none if the study has no figure, or no two of its methods can be compared.
    """
    kind = study.figure
    if kind is None or not compared_pairs(study, comparison.names):
        return None, []
    # A radar of two axes is a line
    if kind == "radar" and len({one.group for one in study.compared(comparison.names)}) < 3:
        kind = "curves"
    metrics = comparison.choice.judging + comparison.choice.paper
    if kind != "arrows":  # which have Dice on their other axis
        metrics = [DICE, *metrics]
    return kind, [partial(FIGURES[kind], comparison, study, metric) for metric in metrics]
