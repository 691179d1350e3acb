"""Plots that compare methods: reliability, segmentation against calibration, and ranks."""

from collections.abc import Sequence
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes
from numpy.typing import NDArray

from nnunet_nacl.report._metrics import Tradeoff, number_text
from nnunet_nacl.report._reliability import FAINT, Reliability
from nnunet_nacl.report._statistics import Ranking
from nnunet_nacl.report.plots._style import INK, axes_or_new, color_of, hover, marker_of, wrapped

_RANKS, _SHARES = "Greys_r", "Blues"
_FAINT = 0.3  # opacity of bins that hold hardly any voxels


def reliability_diagram(data: Reliability, ax: Axes | None = None, *, color: str = "#0072B2") -> Axes:
    """Accuracy of each confidence bin, with its bootstrap band over cases, and below it the bin's share of the voxels.

    Points are at a bin's mean confidence. The dashed line is where a perfectly calibrated model would lie: the
    diagonal, or, in voxel sets chosen by their label, a curve. Below this line a model is over-confident.

    Args:
        data: a curve.
        ax: where to draw; by default a new figure.
        color: of bars and curve.
    """
    ax = axes_or_new(ax)
    filled = data.share > 0
    left, widths = data.edges[:-1], np.diff(data.edges)
    bars = ax.bar(
        left[filled], data.accuracy[filled], widths[filled], align="edge", color=color, alpha=0.2, label="accuracy"
    )
    for bar, faint in zip(bars, data.is_faint[filled], strict=True):
        bar.set_alpha(0.2 * _FAINT if faint else 0.2)
    ax.fill_between(
        data.confidence[filled], data.low[filled], data.high[filled], color=color, alpha=0.35, linewidth=0, label="band"
    )
    _perfect(data, ax, INK)
    _curve(data, ax, color=color, marker="o", label="curve")
    title = "\n".join([wrapped(text, 40) for text in (data.name, data.what) if text])
    error = f"pooled ECE {number_text(data.error)}"
    if not np.isnan(data.expected_error):
        error += f"\n(if perfectly calibrated {number_text(data.expected_error)})"
    ax.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy", title=f"{title}\n{error}")
    ax.tick_params(labelbottom=False)
    shares = ax.inset_axes((0, -0.34, 1, 0.26))
    for bar, first, last, share in zip(
        shares.bar(left, data.share, widths, align="edge", color=color, label="share"),
        left,
        data.edges[1:],
        data.share,
        strict=True,
    ):
        hover(bar, [f"confidence {first:.2f} to {last:.2f}: {_percent(share)} of the voxels"])
    shares.set(xlim=(0, 1), ylim=(0, 1), yticks=(0, 1), xlabel="confidence", ylabel="share of\nvoxels")
    return ax


def reliability_curves(
    data: Sequence[Reliability], ax: Axes | None = None, *, names: Sequence[str] | None = None, legend: bool = True
) -> Axes:
    """The curves of several methods in one diagram; dashed lines: where they would lie if perfectly calibrated.

    Args:
        data: one curve for each method, all of the same class, or of the same case.
        ax: where to draw; by default a new figure.
        names: of all methods, by whose order colors and markers are chosen; by default those of the curves.
        legend: whether to name the methods.
    """
    ax = axes_or_new(ax)
    names = [curve.name for curve in data] if names is None else names
    if any(curve.expected_accuracy is None for curve in data):
        ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    for curve in data:
        color = color_of(names, curve.name)
        if curve.expected_accuracy is not None:
            _perfect(curve, ax, color if len(data) > 1 else INK)
        solid = ~curve.is_faint
        ax.fill_between(
            curve.confidence[solid], curve.low[solid], curve.high[solid], color=color, alpha=0.15, linewidth=0
        )
        label = f"\u200b{wrapped(curve.name)} ({number_text(curve.error)})"  # no legend for names that start with _
        _curve(curve, ax, color=color, marker=marker_of(names, curve.name), label=label)
    of_class = bool(data[0].what)
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1.02),
        xlabel="probability given to the class" if of_class else "confidence",
        ylabel="share of voxels of that class" if of_class else "accuracy",
        title=wrapped(data[0].what, 40),
    )
    if legend:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=7.5, title="method (pooled ECE)")
    return ax


def _perfect(data: Reliability, ax: Axes, color: str) -> None:
    """The line that a perfectly calibrated model lies on."""
    x, y = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    if data.expected_confidence is not None and data.expected_accuracy is not None:
        known = ~np.isnan(data.expected_accuracy)
        x, y = data.expected_confidence[known], data.expected_accuracy[known]
    ax.plot(x, y, color=color, linestyle="--", linewidth=0.8, label="_perfect")


def _curve(data: Reliability, ax: Axes, *, color: str, marker: str, label: str) -> None:
    """A curve whose points have their values to hover over; faint where a bin holds hardly any voxels."""
    filled = data.share > 0
    faint = data.is_faint[filled]
    confidence, accuracy = data.confidence[filled], data.accuracy[filled]
    texts = [
        f"{data.name}: {100 * sure:.1f} % sure, right in {100 * right:.1f} %; {_percent(share)} of the voxels"
        for sure, right, share in zip(confidence, accuracy, data.share[filled], strict=True)
    ]
    style: Any = {"color": color, "marker": marker, "markersize": 3.5, "linewidth": 1.2}
    everywhere, *_ = ax.plot(confidence, accuracy, alpha=_FAINT, markevery=faint, label="_everywhere", **style)
    hover(everywhere, [text for text, one in zip(texts, faint, strict=True) if one])
    solid, *_ = ax.plot(confidence, np.where(faint, np.nan, accuracy), label=label, **style)
    hover(solid, [text for text, one in zip(texts, faint, strict=True) if not one])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= FAINT else f"{100 * share:.2g} %"


def tradeoff_scatter(data: Tradeoff, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Dice against the calibration error, with 95 % intervals; the best corner is at the upper left.

    Args:
        data: methods; those without a value are left out.
        ax: where to draw; by default a new figure.
        legend: whether to name the methods.
    """
    ax = axes_or_new(ax)
    points = zip(data.names, data.error, data.error_intervals, data.dice, data.dice_intervals, strict=True)
    for name, error, error_ends, dice, dice_ends in points:
        if np.isnan(error) or np.isnan(dice):
            continue
        color = color_of(data.names, name)
        drawn = ax.errorbar(
            error,
            dice,
            xerr=arms(error, error_ends),
            yerr=arms(dice, dice_ends),
            color=color,
            marker=marker_of(data.names, name),
            markersize=7,
            linewidth=0.8,
            linestyle="none",
            label=f"\u200b{wrapped(name)}",  # no legend for names that start with _
        )
        hover(drawn.lines[0], [f"{name}: {data.describe_method(name)}"])
    ax.margins(0.12)
    ax.set(xlabel=f"{data.error_name} (better: left)", ylabel="Dice (better: up)", title=wrapped(data.dataset, 40))
    if legend and ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8)
    return ax


def arms(value: float, ends: tuple[float, float]) -> list[list[float]] | None:
    """Error bars from an interval; none if that is NaN."""
    # A percentile interval need not contain the value; error bars may not be negative.
    return None if np.isnan(ends[0]) else [[max(value - ends[0], 0)], [max(ends[1] - value, 0)]]


def radar(data: Tradeoff, ax: Axes | None = None) -> Axes:
    """Dice (outer) and calibration error (inner) of each method: the wider the ring between them, the better.

    Args:
        data: methods; a value that is not defined leaves a gap.
        ax: polar axes to draw on; by default a new figure.

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
        ax.fill_between(
            closed, [*data.error, *data.error[:1]], [*data.dice, *data.dice[:1]], color="#0072B2", alpha=0.12
        )
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
    """Ranks of the methods by metric and overall, the best method on top; the darker the gray, the better.

    Args:
        data: a ranking.
        ax: where to draw; by default a new figure.
    """
    values = np.column_stack([data.by_metric, data.overall])[data.order]
    spread = values.max(0) - values.min(0)
    shade = (values - values.min(0)) / np.where(spread > 0, spread, 1)
    digits = 0 if np.allclose(values, values.round()) else 1 if data.scheme == "sum-rank" else 2
    texts = [[f"{value:.{digits}f}" for value in row] for row in values]
    rows = [data.methods[row] for row in data.order]
    ax = _heat_map(shade, texts, rows, [*data.metrics, "overall"], ax, colors=_RANKS)
    ax.axvline(len(data.metrics), color="white", linewidth=3)
    ax.set_title(data.scheme)
    return ax


def rank_stability(data: Ranking, ax: Axes | None = None) -> Axes:
    """How often each method takes each place when the cases are drawn anew, in per cent; the darker, the more often.

    Args:
        data: a ranking.
        ax: where to draw; by default a new figure.
    """
    values = data.stability[data.order]
    texts = [[f"{100 * value:.0f}" for value in row] for row in values]
    places = [str(place) for place in range(1, len(data.methods) + 1)]
    ax = _heat_map(values, texts, [data.methods[row] for row in data.order], places, ax, colors=_SHARES)
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
        ax.text(
            column + 0.5,
            row + 0.5,
            texts[row][column],
            ha="center",
            va="center",
            fontsize=8,
            color="#ffffff" if _luminance(color_map(value)[:3]) < 0.179 else "#000000",  # whichever has more contrast
        )
    ax.invert_yaxis()
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=35 if max(map(len, columns)) > 3 else 0, ha="right")
    ax.set_yticks(np.arange(len(rows)) + 0.5, [wrapped(row) for row in rows])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _luminance(color: tuple[float, float, float]) -> float:
    """WCAG's relative luminance of an sRGB color."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
