"""Figures of Murugesan et al., MedIA 2025: methods as a radar, those of a study; and ranks as a heat map."""

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import combinations, product, zip_longest
from operator import attrgetter
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes
from matplotlib.ticker import MaxNLocator

from nnunet_nacl.metrics import Estimate
from nnunet_nacl.paper.report._ranks import SUM_RANK, Ranking
from nnunet_nacl.paper.studies import FigureKind, Method, Study
from nnunet_nacl.report import DICE, Comparison, Metric
from nnunet_nacl.report.plots import (
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

DrawStudy = Callable[[Comparison, Study, Metric, Axes], None]
_ROWS_OF_LINES = 5  # of more methods, a name has one line in the ranks
_LINE: Any = {"markersize": 4, "linewidth": 1.3}


def radar(comparison: Comparison, metric: Metric, ax: Axes) -> None:
    """Dice (outer) and calibration error (inner) of each method: the wider the ring between them, the better.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 1.
    """
    ax, angles = polar_axes(ax, [wrapped(name, 13, 2) for name in comparison.names])
    dice, error = (
        [estimate.value for estimate in comparison.estimates[one].values()]
        for one in (DICE, metric)
    )
    # Which closes the lines
    dice.append(dice[0])
    error.append(error[0])
    ax.plot(angles, dice, color="#0072B2", marker="o", label="Dice", **_LINE)
    ax.plot(angles, error, color="#A0522D", marker="s", label=metric.axis, **_LINE)
    ax.fill_between(angles, error, dice, color="#0072B2", alpha=0.12)
    ax.set_ylim(0, 1)
    ax.set_yticks([0.25, 0.5, 0.75, 1])
    ax.set_title(wrapped(comparison.dataset, 40), pad=14)
    legend_below(ax, 0.1, fontsize=9)


def polar_axes(ax: Axes, names: Sequence[str]) -> tuple[PolarAxes, Floats]:
    """Put polar axes in the place of the given ones, with the names clockwise from the top.

    Returns them and the angles of the names; the first angle comes again at the end, which closes a line.
    """
    place: Any = ax.get_subplotspec()
    polar = cast("PolarAxes", ax.figure.add_subplot(place, projection="polar"))
    ax.remove()
    angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
    polar.set_theta_offset(np.pi / 2)
    polar.set_theta_direction(-1)
    polar.set_rlabel_position(180 / len(names))
    polar.set_xticks(angles, names)
    alignments: Any = {1: "left", 0: "center", -1: "right"}  # by the side, clockwise
    for label, angle in zip(polar.get_xticklabels(), angles, strict=True):
        label.set_horizontalalignment(alignments[int(np.sign(np.sin(angle).round(6)))])
    polar.tick_params(labelsize=7)
    polar.grid(color=INK, alpha=0.25, linewidth=0.6)
    return polar, np.append(angles, angles[0])


def rank_heatmap(ranking: Ranking, ax: Axes) -> None:
    """Ranks by metric and overall, the best method on top; the darker the gray, the better."""
    ranks = ranking.ranks.sort_values("overall", kind="stable")
    values = ranks.to_numpy()
    spread = np.ptp(values, axis=0)
    shade = (values - values.min(0)) / np.where(spread > 0, spread, 1)
    digits = 0 if np.allclose(values, values.round()) else 1 if ranking.scheme == SUM_RANK else 2
    # Paths, not imshow: they stay sharp and small in an SVG file.
    ax.pcolormesh(shade, cmap="Greys_r", vmin=0, vmax=1, edgecolors="white", linewidth=1)
    for (row, column), value in np.ndenumerate(values):
        color = "#ffffff" if shade[row, column] < 0.5 else "#000000"
        place = (column + 0.5, row + 0.5)
        text = f"{value:.{digits}f}"
        ax.text(*place, text, ha="center", va="center", fontsize=8, color=color)
    ax.axvline(values.shape[1] - 1, color="white", linewidth=3)
    ax.invert_yaxis()
    ax.set_xticks(np.arange(values.shape[1]) + 0.5, ranks.columns, rotation=35, ha="right")
    lines = 1 if len(ranks) > _ROWS_OF_LINES else 3
    ax.set_yticks(np.arange(len(ranks)) + 0.5, [wrapped(name, lines=lines) for name in ranks.index])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(ranking.scheme)


def study_radar(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> None:
    """Draw a metric on an axis for each group, a line for the first value of each, and so on: the paper's figure 6."""
    estimates = comparison.estimates[metric]
    values = {method: estimates[method.name].value for method in study.compared(estimates)}
    groups = list(dict.fromkeys(method.group for method in values))
    ax, angles = polar_axes(ax, [wrapped(group, 14) for group in groups])
    lines = list(zip_longest(*(study.groups[group] for group in groups)))
    names = [f"HP{number}" for number in range(1, 1 + len(lines))]  # the paper's
    for name, methods in zip(names, lines, strict=True):
        shown = ", ".join(f"{one.group} {one.label}" for one in methods if one in values)
        if shown:
            line = [values.get(method, math.nan) for method in methods]
            label = wrapped(f"{name}: {shown}", 44, 6)
            ax.plot(angles, [*line, line[0]], label=label, **style_of(names, name), **_LINE)
    known = [value for value in values.values() if not math.isnan(value)]
    least, most = min(known, default=0.0), max(known, default=0.0)
    low = 0.0
    high = 1.1 * most or 1.0
    better = "in"
    # Dice, whose differences are small: from the tenth below to the tenth above
    if metric.definition.higher_is_better:
        low = max(math.floor(10 * least - 0.5) / 10, 0)
        high = math.ceil(10 * most) / 10 or 1.0
        better = "out"
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.set_title(f"{metric.title} (better: {better})", pad=14)
    legend_below(ax, 0.1, ncols=1)


def study_curves(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> None:
    """Draw a metric against the setting, a color for each group, with 95 % intervals; no line joins names."""
    groups = list(study.groups)
    estimates = comparison.estimates[metric]
    methods = study.compared(estimates)
    named = any(isinstance(method.value, str) for method in study.methods)
    if not named:
        methods.sort(key=attrgetter("value"))
    places: dict[str, Any] = {method.label: method.value for method in methods}
    if named:
        places = {label: number for number, label in enumerate(places)}
    apart = 0.3 * float(min(np.diff(list(places.values())), default=1.0)) / len(groups)
    for number, group in enumerate(groups):
        own = [method for method in methods if method.group == group]
        if not own:
            continue
        shift = apart * (number - (len(groups) - 1) / 2)
        ax.errorbar(
            [places[method.label] + shift for method in own],
            [estimates[method.name].value for method in own],
            yerr=np.hstack([reach(estimates[method.name]) for method in own]),
            label=labelled(group),
            linestyle="none" if named else "-",
            elinewidth=0.8,
            **style_of(groups, group),
            **_LINE,
        )
    slant: Any = {}
    if named and len(places) > 3:
        slant = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(list(places.values()), [wrapped(label, 12) for label in places], **slant)
    ax.margins(0.12)
    title = f"{metric.title} (better: {'up' if metric.definition.higher_is_better else 'down'})"
    ax.set(xlabel=wrapped(study.setting, 40), title=title)
    legend_below(ax, 0.36 if slant else 0.17, ncols=2)


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


def study_differences(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> None:
    """Draw (first − second) / first in % at each value, in the color of the better one: the paper's figure 7."""
    estimates = comparison.estimates[metric]
    groups = list(study.groups)
    pairs = compared_pairs(study, estimates)
    left, right = groups[::-1] if metric.definition.higher_is_better else groups
    widest = 0.0
    for number, pair in enumerate(pairs):
        relative = relative_difference(*(estimates[method.name] for method in pair))
        percent = relative.value
        if math.isnan(percent):
            continue
        color = style_of(groups, right if percent > 0 else left)["color"]
        ax.barh(number, percent, 0.6, color=color, alpha=0.85)
        ax.errorbar(percent, number, xerr=reach(relative), color=INK, linewidth=0.8, capsize=2)
        widest = max(widest, abs(percent), *np.nan_to_num(np.abs(relative.interval)))
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_xlim(-1.1 * widest or -1, 1.1 * widest or 1)
    ax.set_yticks(range(len(pairs)), [wrapped(first.label, 12) for first, _ in pairs])
    ax.set_ylim(len(pairs) - 0.4, -0.6)
    sides = {
        "left": f"← {wrapped(left, 16)}\nbetter",
        "right": f"{wrapped(right, 16)} →\nbetter",
    }
    for x, (side, text) in enumerate(sides.items()):
        ax.text(x, 1.02, text, transform=ax.transAxes, ha=side, va="bottom", fontsize=8)
    lines = max(text.count("\n") + 1 for text in sides.values())
    ax.set_title(metric.title, pad=12 + 10 * lines)
    ax.set(xlabel="relative difference (%)", ylabel=wrapped(study.setting))


def study_arrows(comparison: Comparison, study: Study, metric: Metric, ax: Axes) -> None:
    """Dice against error: arrows from each group's first value (cross) to its second (circle), as in figure 3."""
    estimates = comparison.estimates[metric]
    dices = comparison.estimates[DICE]
    for pair in compared_pairs(study, estimates):
        x0, x1 = (estimates[method.name] for method in pair)
        y0, y1 = (dices[method.name] for method in pair)
        tail = (x0.value, y0.value)
        head = (x1.value, y1.value)
        if np.isnan([*tail, *head]).any():
            continue
        color = style_of(list(study.groups), pair[0].group)["color"]
        draw_point(ax, x0, y0, color=color, marker="x")
        label = f"{pair[0].group}: {pair[0].label} → {pair[1].label}"
        draw_point(ax, x1, y1, color=color, marker="o", label=labelled(label))
        arrow = {"arrowstyle": "-|>", "color": color, "shrinkA": 4, "shrinkB": 4}
        ax.annotate("", head, tail, arrowprops=arrow)
    ax.margins(0.15)
    ax.set(xlabel=f"{metric.axis} (better: left)", ylabel="Dice (better: up)")
    legend_below(ax, ncols=1)


def radar_panels(comparison: Comparison) -> list[Panel]:
    """Return the paper's radar plot."""
    return [partial(radar, comparison, Metric("ECE", comparison.choice.main))]


FIGURES: dict[FigureKind, tuple[DrawStudy, str, str]] = {
    "radar": (
        study_radar,
        "CECE",
        (
            "Each method has an axis. One line joins the methods' first values (HP1), another their second values"
            " (HP2), and so on; the legend names the values. Where the lines lie close together, the value "
            "matters little. For Dice (whose axis need not begin at 0), further out is better; for ECE, further "
            "in."
        ),
    ),
    "differences": (
        study_differences,
        "",
        (
            "({groups[0]} − {groups[1]}) / {groups[0]}, in %, at each value of {setting} that both have. The "
            "arrows above each plot show on which side each loss is better; bars have the color of the better "
            "loss. Lines: 95 % paired bootstrap intervals."
        ),
    ),
    "curves": (
        study_curves,
        "",
        (
            "Each metric against {setting}, with 95 % bootstrap intervals. Points are shifted a little sideways "
            "so that none hides another. For Dice higher is better, for calibration errors lower."
        ),
    ),
    "arrows": (
        study_arrows,
        DICE.name,
        (
            "Each arrow leads from the first value of {setting} (cross) to the second (circle). The best corner "
            "is the upper left: high Dice, low calibration error. Thin lines: 95 % bootstrap intervals."
        ),
    ),
}
"""Kind of a study's plots -> what draws one, the metric without a plot, the caption of ``{setting}``, ``{groups}``."""


def study_figure(comparison: Comparison, study: Study) -> tuple[str, list[Panel]]:
    """Return the caption of a study's plots, and these, one for each metric.

    There are none if the study has no figure, or no two of its methods can be compared.
    """
    kind = study.figure
    if kind is None or not compared_pairs(study, comparison.names):
        return "No plot: no two variants here can be compared with each other.", []
    # A radar of two axes is a line
    if kind == "radar" and len({one.group for one in study.compared(comparison.names)}) < 3:
        kind = "curves"
    draw, left_out, caption = FIGURES[kind]
    metrics = [DICE, *comparison.choice.judging, *comparison.choice.paper]
    panels: list[Panel] = [
        partial(draw, comparison, study, metric) for metric in metrics if metric.name != left_out
    ]
    return caption.format(setting=study.setting, groups=list(study.groups)), panels
