"""Plots that compare methods: reliability, segmentation against calibration, and ranks."""

from collections.abc import Sequence
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes
from numpy.typing import NDArray

from nnunet_nacl.report._metrics import Tradeoff, number_text
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._statistics import Ranking
from nnunet_nacl.report.plots._style import INK, axes_or_new, color_of, labelled, marker_of, wrapped

_RANKS, _SHARES = "Greys_r", "Blues"
_FAINT = 0.3  # opacity of bins that hold hardly any voxels


def reliability_curves(
    data: Sequence[Reliability],
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    legend: bool = True,
    shares: bool = False,
) -> Axes:
    """The curves of several methods in one diagram; dashed lines: where they would lie if perfectly calibrated.

    Args:
        data: one curve for each method, all of the same class, or of the same case.
        ax: where to draw; by default a new figure.
        names: of all methods, by whose order colors and markers are chosen; by default those of the curves.
        legend: whether to name the methods.
        shares: whether to draw each bin's share of the voxels below.
    """
    ax = axes_or_new(ax)
    names = [curve.name for curve in data] if names is None else names
    if any(curve.expected_accuracy is None for curve in data):
        ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    for curve in data:
        color, solid = color_of(names, curve.name), ~curve.is_faint
        if curve.expected_accuracy is not None:
            _perfect(curve, ax, color if len(data) > 1 else INK)
        x = curve.confidence[solid]
        ax.fill_between(x, curve.low[solid], curve.high[solid], color=color, alpha=0.15, linewidth=0)
        label = f"{labelled(curve.name)} ({number_text(curve.error)})"
        _curve(curve, ax, color=color, marker=marker_of(names, curve.name), label=label)
    x_label, y_label = "probability given to the class", "share of voxels of that class"
    if not data[0].what:
        x_label, y_label = "confidence", "accuracy"
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel=x_label, ylabel=y_label, title=wrapped(data[0].what, 40))
    lowest = _shares(data, ax, [color_of(names, curve.name) for curve in data]) if shares else ax
    if legend:
        style: Any = {"loc": "upper center", "ncols": 2, "fontsize": 7.5, "title": "method (pooled ECE)"}
        lowest.legend(*ax.get_legend_handles_labels(), bbox_to_anchor=(0.5, -0.6 if shares else -0.17), **style)
    return ax


def _shares(data: Sequence[Reliability], ax: Axes, colors: Sequence[str]) -> Axes:
    """Each bin's share of the voxels, under the diagram, which makes room for it."""
    place = ax.get_subplotspec()
    assert place is not None
    grid = place.subgridspec(2, 1, height_ratios=(1, 0.27))
    ax.set_subplotspec(grid[0])
    ax.tick_params(labelbottom=False)
    ax.set_xlabel("")
    below = ax.figure.add_subplot(grid[1])
    for curve, color in zip(data, colors, strict=True):
        below.stairs(curve.share, curve.edges, color=color, fill=len(data) == 1, linewidth=1.3)
    below.set(xlim=(0, 1), ylim=(0, 1), yticks=(0, 1), xlabel="confidence", ylabel="share of\nvoxels")
    return below


def _perfect(data: Reliability, ax: Axes, color: str) -> None:
    """The line that a perfectly calibrated model lies on."""
    x, y = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    if data.expected_confidence is not None and data.expected_accuracy is not None:
        known = ~np.isnan(data.expected_accuracy)
        x, y = data.expected_confidence[known], data.expected_accuracy[known]
    ax.plot(x, y, color=color, linestyle="--", linewidth=0.8, label="_perfect")


def _curve(data: Reliability, ax: Axes, *, color: str, marker: str, label: str) -> None:
    """A curve, faint where a bin holds hardly any voxels."""
    filled = data.share > 0
    confidence, accuracy, faint = data.confidence[filled], data.accuracy[filled], data.is_faint[filled]
    style: Any = {"color": color, "marker": marker, "markersize": 3.5, "linewidth": 1.2}
    ax.plot(confidence, accuracy, alpha=_FAINT, markevery=faint, label="_everywhere", **style)
    ax.plot(confidence, np.where(faint, np.nan, accuracy), label=label, **style)


def tradeoff_scatter(data: Tradeoff, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Dice against the calibration error, with 95 % intervals; the best corner is at the upper left."""
    ax = axes_or_new(ax)
    points = zip(data.names, data.error, data.error_intervals, data.dice, data.dice_intervals, strict=True)
    for name, error, error_ends, dice, dice_ends in points:
        if not np.isnan(error + dice):
            style = {"color": color_of(data.names, name), "marker": marker_of(data.names, name), "label": name}
            draw_point(ax, (error, dice), error_ends, dice_ends, **style)
    ax.margins(0.12)
    ax.set(xlabel=f"{data.error_name} (better: left)", ylabel="Dice (better: up)", title=wrapped(data.dataset, 40))
    if legend and ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8)
    return ax


def draw_point(
    ax: Axes,
    point: tuple[float, float],
    x_ends: tuple[float, float],
    y_ends: tuple[float, float],
    *,
    color: str,
    marker: str,
    label: str | None,
) -> None:
    """A point with its intervals."""
    ax.errorbar(
        *point,
        xerr=arms(point[0], x_ends),
        yerr=arms(point[1], y_ends),
        color=color,
        marker=marker,
        markersize=7,
        linewidth=0.8,
        linestyle="none",
        label=None if label is None else labelled(label),
    )


def arms(value: float, ends: tuple[float, float]) -> list[list[float]] | None:
    """Error bars from an interval; none if that is NaN."""
    # A percentile interval need not contain the value; error bars may not be negative.
    return None if np.isnan(ends[0]) else [[max(value - ends[0], 0)], [max(ends[1] - value, 0)]]


def radar(data: Tradeoff, ax: Axes | None = None) -> Axes:
    """Dice (outer) and calibration error (inner) of each method: the wider the ring between them, the better.

    References:
        Murugesan et al., Medical Image Analysis 2025, figure 1.
    """
    ax = axes_or_new(ax, projection="polar")
    angles = np.linspace(0, 2 * np.pi, len(data.names), endpoint=False)
    closed = np.append(angles, angles[:1])
    lines = (("Dice", data.dice, "#0072B2", "o"), (data.error_name, data.error, "#A0522D", "s"))
    for label, values, color, marker in lines:
        ax.plot(closed, [*values, *values[:1]], color=color, marker=marker, markersize=4, linewidth=1.3, label=label)
    if len(data.names) > 2:
        inner, outer = [*data.error, data.error[0]], [*data.dice, data.dice[0]]
        ax.fill_between(closed, inner, outer, color="#0072B2", alpha=0.12)
    label_polar(ax, angles, [wrapped(name) for name in data.names])
    ax.set_ylim(0, 1)
    ax.set_yticks([0.25, 0.5, 0.75, 1])
    ax.set_title(wrapped(data.dataset, 40), pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return ax


def label_polar(ax: Axes, angles: NDArray[np.float64], names: Sequence[str]) -> None:
    """Name the axes of a radar plot, the first at the top, the others clockwise."""
    polar = cast("PolarAxes", ax)
    polar.set_theta_offset(np.pi / 2)
    polar.set_theta_direction(-1)
    polar.set_rlabel_position(180 / max(len(names), 1))
    ax.set_xticks(angles, names)
    ax.tick_params(axis="y", labelsize=7)
    ax.grid(color=INK, alpha=0.25, linewidth=0.6)


def rank_heatmap(data: Ranking, ax: Axes | None = None) -> Axes:
    """Ranks of the methods by metric and overall, the best method on top; the darker the gray, the better."""
    order = np.argsort(data.overall, kind="stable")
    values = np.column_stack([data.by_metric, data.overall])[order]
    spread = values.max(0) - values.min(0)
    shade = (values - values.min(0)) / np.where(spread > 0, spread, 1)
    digits = 0 if np.allclose(values, values.round()) else 1 if data.scheme == "sum-rank" else 2
    texts = [[f"{value:.{digits}f}" for value in row] for row in values]
    ax = _heat_map(shade, texts, [data.methods[row] for row in order], [*data.metrics, "overall"], ax, colors=_RANKS)
    ax.axvline(len(data.metrics), color="white", linewidth=3)
    ax.set_title(data.scheme)
    return ax


def rank_stability(data: Ranking, ax: Axes | None = None) -> Axes:
    """How often each method takes each place when the cases are drawn anew, in per cent; the darker, the more often."""
    order = np.argsort(data.overall, kind="stable")
    values = data.stability[order]
    texts = [[f"{100 * value:.0f}" for value in row] for row in values]
    places = [str(place) for place in range(1, len(data.methods) + 1)]
    ax = _heat_map(values, texts, [data.methods[row] for row in order], places, ax, colors=_SHARES)
    ax.set(title=f"{data.scheme}: % of resamples", xlabel="place")
    return ax


def _heat_map(
    shade: NDArray[np.float64],
    texts: list[list[str]],
    rows: list[str],
    columns: list[str],
    ax: Axes | None,
    *,
    colors: str,
) -> Axes:
    """Cells shaded by values from 0 to 1, with a text in each."""
    ax = axes_or_new(ax)
    # Not imshow: cells that are paths stay sharp and small in an SVG file.
    ax.pcolormesh(shade, cmap=colors, vmin=0, vmax=1, edgecolors="white", linewidth=1)
    color_map: Any = matplotlib.colormaps[colors]
    for (row, column), value in np.ndenumerate(shade):
        ink = "#ffffff" if luminance(color_map(value)[:3]) < 0.179 else "#000000"  # whichever has more contrast
        ax.text(column + 0.5, row + 0.5, texts[row][column], ha="center", va="center", fontsize=8, color=ink)
    ax.invert_yaxis()
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=35 if max(map(len, columns)) > 3 else 0, ha="right")
    ax.set_yticks(np.arange(len(rows)) + 0.5, [wrapped(row) for row in rows])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def luminance(color: tuple[float, float, float]) -> float:
    """WCAG's relative luminance of an sRGB color."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
