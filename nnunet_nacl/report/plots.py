"""The report's plots: reliability diagrams, and Dice against calibration."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import Voxels
from nnunet_nacl.report._choice import DICE, Metric, voxels_text
from nnunet_nacl.report._comparison import Comparison, of_each
from nnunet_nacl.report._formats import number_text
from nnunet_nacl.report._reliability import Curve
from nnunet_nacl.report.panels import (
    INK,
    Panel,
    draw_panels,
    draw_point,
    labelled,
    legend_below,
    save_plot,
    style_of,
    wrapped,
)

_FAINT = 0.3  # opacity of bins that hold hardly any voxels


def reliability_curves(
    names: Sequence[str], curves: Sequence[Curve], voxels: Voxels, title: str, ax: Axes
) -> None:
    """Draw the curves of methods in one diagram, and each bin's share of the voxels below.

    Dashed lines: where the curves would lie if perfectly calibrated.
    """
    whole: Any = ax.get_subplotspec()
    grid = whole.subgridspec(2, 1, height_ratios=(1, 0.27))
    ax.set_subplotspec(grid[0])
    below = ax.figure.add_subplot(grid[1])
    perfect: Any = {"linestyle": "--", "linewidth": 0.8, "label": "_perfect"}
    if any(curve.expected is None for curve in curves):
        ax.plot([0, 1], [0, 1], color=INK, **perfect)
    for curve in curves:
        style: Any = {**style_of(names, curve.name), "markersize": 3.5, "linewidth": 1.2}
        color = style["color"]
        solid = ~curve.is_faint
        if curve.expected is not None:
            x, y = curve.expected
            known = ~np.isnan(y)
            ax.plot(x[known], y[known], color=color if len(curves) > 1 else INK, **perfect)
        x = curve.confidence[solid]
        ax.fill_between(
            x, curve.low[solid], curve.high[solid], color=color, alpha=0.15, linewidth=0
        )
        filled = curve.share > 0
        confidence = curve.confidence[filled]
        accuracy = curve.accuracy[filled]
        faint = curve.is_faint[filled]
        # A mark on the frame, such as one at a confidence of 1, is drawn whole
        style["clip_on"] = False
        ax.plot(confidence, accuracy, alpha=_FAINT, markevery=faint, label="_everywhere", **style)
        label = f"{labelled(curve.name)} ({number_text(curve.error)})"
        ax.plot(confidence, np.where(faint, np.nan, accuracy), label=label, **style)
        below.stairs(curve.share, curve.edges, color=color, fill=len(curves) == 1, linewidth=1.3)
    titles = "\n".join(wrapped(text, 40) for text in (title, curves[0].what) if text)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy", title=titles)
    ax.tick_params(labelbottom=False)
    below.set(
        xlim=(0, 1),
        ylim=(0, 1),
        yticks=(0, 1),
        xlabel=f"confidence, {voxels_text(voxels)}",
        ylabel="share of\nvoxels",
    )
    legend_below(below, 0.6, of=ax, fontsize=7.5, title="method (pooled ECE)")


def tradeoff_scatter(comparison: Comparison, metric: Metric, title: str, ax: Axes) -> None:
    """Draw Dice against a calibration metric, with 95 % intervals; the best corner is at the upper left."""
    dices = comparison.estimates[DICE]
    for name, error in comparison.estimates[metric].items():
        dice = dices[name]
        if not np.isnan(error.value + dice.value):
            style = style_of(comparison.names, name)
            draw_point(ax, error, dice, label=labelled(name), **style)
    ax.margins(0.12)
    ax.locator_params(nbins=5)
    ax.set(
        xlabel=f"{metric.axis} (better: left)",
        ylabel="Dice (better: up)",
        title=wrapped(title, 40),
    )
    legend_below(ax)


def reliability_panels(
    comparison: Comparison,
    voxels: Voxels | None = None,
    *,
    overlaid: bool = False,
    title: str | None = None,
) -> list[Panel]:
    """Return a diagram for each method, or one of all of them; with regions, for each region."""
    voxels = voxels or comparison.choice.main
    of_methods = [method.curves for method in comparison.reliability[voxels].values()]
    alone = ([curve] for curves in of_methods for curve in curves)
    title = comparison.dataset if title is None else title
    return [
        partial(reliability_curves, comparison.names, curves, voxels, title)
        for curves in (zip(*of_methods, strict=True) if overlaid else alone)
    ]


def tradeoff_panels(comparison: Comparison, *, title: str | None = None) -> list[Panel]:
    """Return panels of Dice against the metrics that judge calibration; over a chosen set, against ECE and CECE."""
    title = comparison.dataset if title is None else title
    judging = [] if comparison.chosen_voxels else comparison.choice.judging
    return [
        partial(tradeoff_scatter, comparison, metric, title)
        for metric in judging or comparison.choice.paper
    ]


MakePanels = Callable[[Sequence[Comparison]], list[list[Panel]]]
"""Gives the panels of each data set, or of all together."""
PLOTS: dict[str, MakePanels] = {
    "reliability": of_each(reliability_panels),
    "tradeoff": of_each(tradeoff_panels),
}


def write_plot(
    comparisons: Sequence[Comparison],
    kind: str,
    file: str | Path,
    *,
    plots: Mapping[str, MakePanels] = PLOTS,
) -> None:
    """Write a plot of the report; a file that exists is replaced.

    Args:
        comparisons: of each data set, as ``compare_all`` returns them; ``Comparison.over`` chooses the voxel set.
        kind: one of ``plots``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``.
        plots: those that there are; ``nnunet_nacl.paper.report.PLOTS`` has more.
    """
    file = check_output(file, overwrite=True)
    panels = [panel for of_each_set in plots[kind](comparisons) for panel in of_each_set]
    save_plot(draw_panels(panels), file)
