"""Segmentation against calibration, as a scatter plot and as the paper's radar plot."""

from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes

from nnunet_nacl.report._tradeoff import Tradeoff
from nnunet_nacl.report.figures._style import INK, axes_or_new, color_of, fitted, marker_of


def tradeoff_scatter(data: Tradeoff, ax: Axes | None = None) -> Axes:
    """Dice against the calibration error, with 95 % intervals; the best corner is at the upper left.

    Args:
        data: methods; those without a figure are left out.
        ax: where to draw; by default a new figure.
    """
    ax = axes_or_new(ax)
    points = zip(data.names, data.error, data.error_intervals, data.dice, data.dice_intervals, strict=True)
    for name, error, error_ends, dice, dice_ends in points:
        if np.isnan(error) or np.isnan(dice):
            continue
        color = color_of(data.names, name)
        ax.errorbar(
            error,
            dice,
            xerr=arms(error, error_ends),
            yerr=arms(dice, dice_ends),
            color=color,
            marker=marker_of(data.names, name),
            markersize=7,
            linewidth=0.8,
            linestyle="none",
            label=f"\u200b{fitted(name)}",  # one that starts with _ is left out
        )
    ax.margins(0.12)
    ax.set(xlabel=f"{data.error_name} (better: left)", ylabel="Dice (better: up)", title=fitted(data.dataset, 40))
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8)
    return ax


def arms(value: float, ends: tuple[float, float]) -> list[list[float]] | None:
    """Error bars from an interval; none if that is NaN."""
    # A percentile interval need not hold its figure; arms may not be negative.
    return None if np.isnan(ends[0]) else [[max(value - ends[0], 0)], [max(ends[1] - value, 0)]]


def radar(data: Tradeoff, ax: Axes | None = None) -> Axes:
    """Dice (outer) and calibration error (inner) of each method: the wider the ring between them, the better.

    Args:
        data: methods; a figure that is not defined leaves a gap.
        ax: polar axes to draw on; by default a new figure.

    References:
        Murugesan et al., Medical Image Analysis 2024, figure "Compromise between calibration and discriminative
        performance".
    """
    ax = axes_or_new(ax, projection="polar")
    angles = np.linspace(0, 2 * np.pi, len(data.names), endpoint=False)
    closed = np.append(angles, angles[:1])
    lines = (("Dice", data.dice, "#0072B2", "o"), (data.error_name, data.error, "#A0522D", "s"))
    for label, values, color, marker in lines:
        ax.plot(closed, [*values, *values[:1]], color=color, marker=marker, markersize=4, linewidth=1.3, label=label)
    if len(data.names) > 2:
        ax.fill_between(
            closed, [*data.error, *data.error[:1]], [*data.dice, *data.dice[:1]], color="#0072B2", alpha=0.12
        )
    polar = cast("PolarAxes", ax)
    polar.set_theta_offset(np.pi / 2)
    polar.set_theta_direction(-1)
    polar.set_rlabel_position(180 / max(len(data.names), 1))
    ax.set_xticks(angles, [fitted(name) for name in data.names])
    ax.set_ylim(0, 1)
    ax.set_yticks([0.25, 0.5, 0.75, 1])
    ax.tick_params(axis="y", labelsize=7)
    ax.grid(color=INK, alpha=0.25, linewidth=0.6)
    ax.set_title(fitted(data.dataset, 40), pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return ax
