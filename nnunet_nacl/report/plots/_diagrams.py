"""Plots that compare methods: reliability, segmentation against calibration, true Dice against that to expect."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from nnunet_nacl.metrics import Estimate
from nnunet_nacl.report._reliability import Curve
from nnunet_nacl.report._reviews import Reviews
from nnunet_nacl.report._statistics import MetricOfMethods
from nnunet_nacl.report._texts import number_text
from nnunet_nacl.report.plots._style import (
    INK,
    labelled,
    legend_below,
    method_color,
    style_of,
    wrapped,
)

_FAINT = 0.3  # opacity of bins that hold hardly any voxels
_MANY = 2000  # from so many points on, they are drawn as pixels, which keeps the page small


def reliability_curves(
    data: Sequence[Curve], ax: Axes, *, names: Sequence[str], title: str, where: str
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
        color = method_color(names, curve.name)
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


def tradeoff_scatter(
    dices: MetricOfMethods, errors: MetricOfMethods, ax: Axes, *, title: str
) -> None:
    """Dice against a calibration metric, with 95 % intervals; the best corner is at the upper left."""
    for name, error in errors.estimates.items():
        dice = dices.estimates[name]
        if not np.isnan(error.value + dice.value):
            style = style_of(list(errors.estimates), name)
            draw_point(ax, error, dice, label=labelled(name), **style)
    ax.margins(0.12)
    ax.locator_params(nbins=5)
    ax.set(
        xlabel=f"{errors.metric.axis} (better: left)",
        ylabel="Dice (better: up)",
        title=wrapped(title, 40),
    )
    legend_below(ax)


def draw_point(ax: Axes, x: Estimate, y: Estimate, **style: Any) -> None:
    """Draw a point with its intervals."""
    style |= {"markersize": 7, "linewidth": 0.8, "linestyle": "none"}
    ax.errorbar(x.value, y.value, reach(y), reach(x), **style)


def reach(estimate: Estimate) -> list[list[float]] | None:
    """How far the interval reaches below and above the value, as Matplotlib takes error bars; None if it is NaN."""
    low, high = estimate.interval
    if np.isnan(low):
        return None
    # A percentile interval need not contain the value; error bars may not be negative.
    return [[max(estimate.value - low, 0)], [max(high - estimate.value, 0)]]


def dice_scatter(reviews: Reviews, method: str, ax: Axes) -> None:
    """True Dice against the Dice to expect, all methods on the same axes.

    Below the dashed line a method overestimates Dice.
    """
    ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    rows = reviews.outcomes[method]
    ax.plot(
        rows.dice_to_expect,
        rows.dice,
        "o",
        color=method_color(reviews.names, method),
        alpha=0.6,
        markersize=3.5,
        markeredgewidth=0,
        rasterized=len(rows) > _MANY,
    )
    lowest = min(own[["dice_to_expect", "dice"]].min().min() for own in reviews.outcomes.values())
    ends = (np.floor(10 * lowest) / 10 - 0.01, 1.01)
    title = f"{wrapped(method, 40)}\nMAE {number_text(reviews.judgements[method].dice_error)}"
    ax.set(xlim=ends, ylim=ends, xlabel="Dice to expect", ylabel="true Dice", title=title)
