"""Plots that compare methods: reliability, segmentation against calibration, ranks, predicted Dice."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes

from nnunet_nacl.metrics import Estimate
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import DICE, Metric, number_text
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._review import Reviews
from nnunet_nacl.report._statistics import Ranking
from nnunet_nacl.report.plots._style import (
    INK,
    color_of,
    labelled,
    legend_below,
    style_of,
    wrapped,
)
from nnunet_nacl.typing import Floats

_FAINT = 0.3  # opacity of bins that hold hardly any voxels
_ROWS_OF_LINES = 5  # of more methods, a name has one line in the ranks
_MANY = 2000  # from so many points on, they are drawn as pixels, which keeps the page small


def reliability_curves(
    data: Sequence[Reliability], ax: Axes, *, names: Sequence[str], title: str, where: str
) -> None:
    """The curves of several methods in one diagram, and each bin's share of the voxels below.

    ``title`` and the region, if any, stand above, ``where`` the voxels lie, below.
    Dashed lines: where the curves would lie if perfectly calibrated. Colors go by the ``names`` of all methods.
    """
    whole: Any = ax.get_subplotspec()
    grid = whole.subgridspec(2, 1, height_ratios=(1, 0.27))
    ax.set_subplotspec(grid[0])
    below = ax.figure.add_subplot(grid[1])
    perfect: Any = {"linestyle": "--", "linewidth": 0.8, "label": "_perfect"}
    if any(curve.expected is None for curve in data):
        ax.plot([0, 1], [0, 1], color=INK, **perfect)
    for curve in data:
        color = color_of(names, curve.name)
        solid = ~curve.is_faint
        if curve.expected is not None:
            x, y = curve.expected
            known = ~np.isnan(y)
            ax.plot(x[known], y[known], color=color if len(data) > 1 else INK, **perfect)
        x = curve.confidence[solid]
        ax.fill_between(
            x, curve.low[solid], curve.high[solid], color=color, alpha=0.15, linewidth=0
        )
        filled = curve.share > 0
        confidence = curve.confidence[filled]
        accuracy = curve.accuracy[filled]
        faint = curve.is_faint[filled]
        style: Any = {**style_of(names, curve.name), "markersize": 3.5, "linewidth": 1.2}
        ax.plot(confidence, accuracy, alpha=_FAINT, markevery=faint, label="_everywhere", **style)
        label = f"{labelled(curve.name)} ({number_text(curve.error)})"
        ax.plot(confidence, np.where(faint, np.nan, accuracy), label=label, **style)
        below.stairs(curve.share, curve.edges, color=color, fill=len(data) == 1, linewidth=1.3)
    titles = "\n".join(wrapped(text, 40) for text in (title, data[0].what) if text)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy", title=titles)
    ax.tick_params(labelbottom=False)
    below.set(
        xlim=(0, 1),
        ylim=(0, 1),
        yticks=(0, 1),
        xlabel=f"confidence, {where}",
        ylabel="share of\nvoxels",
    )
    legend_below(below, 0.6, of=ax, fontsize=7.5, title="method (pooled ECE)")


def tradeoff_scatter(comparison: Comparison, metric: Metric, ax: Axes) -> None:
    """Dice against a calibration metric, with 95 % intervals; the best corner is at the upper left."""
    for method in comparison.methods:
        error = metric.of(method)
        dice = DICE.of(method)
        if not np.isnan(error.value + dice.value):
            draw_point(
                ax,
                error,
                dice,
                label=labelled(method.name),
                **style_of(comparison.names, method.name),
            )
    ax.margins(0.12)
    ax.locator_params(nbins=5)
    ax.set(
        xlabel=f"{metric.axis} (better: left)",
        ylabel="Dice (better: up)",
        title=wrapped(comparison.dataset, 40),
    )
    legend_below(ax)


def draw_point(ax: Axes, x: Estimate, y: Estimate, **style: Any) -> None:
    """A point with its intervals."""
    style |= {"markersize": 7, "linewidth": 0.8, "linestyle": "none"}
    ax.errorbar(x.value, y.value, y.reach, x.reach, **style)


def radar(comparison: Comparison, metric: Metric, ax: Axes) -> None:
    """Dice (outer) and calibration error (inner) of each method: the wider the ring between them, the better.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 1.
    """
    ax, angles = polar_axes(ax, [wrapped(name, 13, 2) for name in comparison.names])
    around = [*comparison.methods, comparison.methods[0]]
    dice = [DICE.of(method).value for method in around]
    error = [metric.of(method).value for method in around]
    style: Any = {"markersize": 4, "linewidth": 1.3}
    ax.plot(angles, dice, color="#0072B2", marker="o", label="Dice", **style)
    ax.plot(angles, error, color="#A0522D", marker="s", label=metric.axis, **style)
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
    polar.set_rlabel_position(180 / max(len(names), 1))
    polar.set_xticks(angles, names)
    alignments: Any = {1: "left", 0: "center", -1: "right"}  # by the side, clockwise
    for label, angle in zip(polar.get_xticklabels(), angles, strict=True):
        label.set_horizontalalignment(alignments[int(np.sign(np.sin(angle).round(6)))])
    polar.tick_params(labelsize=7)
    polar.grid(color=INK, alpha=0.25, linewidth=0.6)
    return polar, np.append(angles, angles[0])


def rank_heatmap(data: Ranking, ax: Axes) -> None:
    """Ranks by metric and overall, the best method on top; the darker the gray, the better."""
    ranks = data.ranks.sort_values("overall", kind="stable")
    values = ranks.to_numpy()
    spread = np.ptp(values, axis=0)
    shade = (values - values.min(0)) / np.where(spread > 0, spread, 1)
    digits = 0 if np.allclose(values, values.round()) else 1 if data.scheme == "sum-rank" else 2
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
    ax.set_title(data.scheme)


def dice_scatter(reviews: Reviews, method: str, ax: Axes) -> None:
    """True against predicted Dice, all methods on the same axes. Below the dashed line a method overestimates Dice."""
    ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    rows = reviews.frame[reviews.frame["method"] == method]
    style: Any = {
        "color": color_of(reviews.names, method),
        "alpha": 0.6,
        "markeredgewidth": 0,
        "markersize": 3.5,
    }
    ax.plot(rows["predicted_dice"], rows["dice"], "o", rasterized=len(rows) > _MANY, **style)
    ends = (np.floor(10 * reviews.frame[["predicted_dice", "dice"]].min().min()) / 10 - 0.01, 1.01)
    title = f"{wrapped(method, 40)}\nMAE {number_text(reviews.judgements[method]['dice_error'])}"
    ax.set(xlim=ends, ylim=ends, xlabel="predicted Dice", ylabel="true Dice", title=title)
