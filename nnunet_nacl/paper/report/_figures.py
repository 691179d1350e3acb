"""Plots of methods: Dice and calibration as the radar of Murugesan et al., MedIA 2025, and ranks as a heat map."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes

from nnunet_nacl.paper.report._ranks import FIRST
from nnunet_nacl.report import DICE, Comparison, Table
from nnunet_nacl.report.panels import INK, Panel, legend_below, wrapped
from nnunet_nacl.typing import Floats

LINE: Any = {"markersize": 4, "linewidth": 1.3}
"""The style of lines in radars and curves."""
_ROWS_OF_LINES = 5  # of more methods, a name has one line in the ranks


def radar_panels(comparisons: Sequence[Comparison]) -> list[Panel]:
    """Return the radar plot of each data set; its error is over ``choice.main``, in the paper over the foreground."""
    return [partial(radar, comparison) for comparison in comparisons]


def radar(comparison: Comparison, ax: Axes) -> None:
    """Draw Dice (outer) and calibration error (inner) of each method: the wider the ring between them, the better.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 1.
    """
    ax, angles = polar_axes(ax, [wrapped(name, 13, 2) for name in comparison.names])
    metric = comparison.choice.error
    closed = [*comparison.names, comparison.names[0]]
    dice = [comparison.estimates[DICE][name].value for name in closed]
    error = [comparison.estimates[metric][name].value for name in closed]
    ax.plot(angles, dice, color="#0072B2", marker="o", label="Dice", **LINE)
    ax.plot(angles, error, color="#A0522D", marker="s", label=metric.axis, **LINE)
    ax.fill_between(angles, error, dice, color="#0072B2", alpha=0.12)
    ax.set_ylim(0, 1)
    ax.set_yticks([0.25, 0.5, 0.75, 1])
    ax.set_title(wrapped(comparison.dataset, 40), pad=14)
    legend_below(ax, 0.1, fontsize=9)


def polar_axes(ax: Axes, names: Sequence[str]) -> tuple[PolarAxes, Floats]:
    """Put polar axes in the place of the given ones, with the names clockwise from the top.

    Returns them and the angles of the names; the first one again at the end, which closes a line.
    """
    place: Any = ax.get_subplotspec()
    polar = cast("PolarAxes", ax.figure.add_subplot(place, projection="polar"))
    ax.remove()
    angles = np.linspace(0, 2 * np.pi, len(names) + 1)
    polar.set_theta_offset(np.pi / 2)
    polar.set_theta_direction(-1)
    polar.set_rlabel_position(180 / len(names))
    polar.set_xticks(angles[:-1], names)
    alignments: Any = {1: "left", 0: "center", -1: "right"}  # by the side, clockwise
    for label, side in zip(polar.get_xticklabels(), np.sin(angles).round(6), strict=False):
        label.set_horizontalalignment(alignments[np.sign(side)])
    polar.tick_params(labelsize=7)
    polar.grid(color=INK, alpha=0.25, linewidth=0.6)
    return polar, angles


def heatmap_panel(ranking: Table) -> Panel:
    """Return the heat map of a ranking."""
    return partial(rank_heatmap, ranking)


def rank_heatmap(ranking: Table, ax: Axes) -> None:
    """Draw ranks by metric and overall; the darker the gray, the better."""
    ranks = ranking.values().drop(columns=FIRST)
    values = ranks.to_numpy()
    spread = np.ptp(values, axis=0)
    shade = (values - values.min(0)) / np.where(spread > 0, spread, 1)
    # Paths, not imshow: they stay sharp and small in an SVG file. No black, which a dark page would hide.
    ax.pcolormesh(shade, cmap="Greys_r", vmin=-0.35, vmax=1, edgecolors="white", linewidth=1)
    for (row, column), value in np.ndenumerate(values.round(2)):
        color = "#ffffff" if shade[row, column] < 0.2 else "#000000"
        place = (column + 0.5, row + 0.5)
        ax.text(*place, f"{value:g}", ha="center", va="center", fontsize=8, color=color)
    ax.axvline(values.shape[1] - 1, color="white", linewidth=3)
    ax.invert_yaxis()
    ax.set_xticks(np.arange(values.shape[1]) + 0.5, ranks.columns, rotation=35, ha="right")
    lines = 1 if len(ranks) > _ROWS_OF_LINES else 3
    ax.set_yticks(np.arange(len(ranks)) + 0.5, [wrapped(name, lines=lines) for name in ranks.index])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(ranking.title.partition(" by ")[0])
