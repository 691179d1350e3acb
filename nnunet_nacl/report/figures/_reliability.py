"""Reliability diagrams."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report.figures._style import INK, axes_or_new, color_of, fitted, marker_of


def reliability_diagram(data: Reliability, ax: Axes | None = None, *, color: str = "#0072B2") -> Axes:
    """Accuracy of each confidence bin, with its bootstrap band over cases, and below it the bin's share of the voxels.

    Points are at a bin's mean confidence. On the dashed line a model is right as often as it says: that is the
    diagonal, or, in voxel sets chosen by their label, the curve expected of a perfectly calibrated model. Below it a
    model is over-confident.

    Args:
        data: a curve.
        ax: where to draw; by default a new figure.
        color: of bars and curve.
    """
    ax = axes_or_new(ax)
    filled = data.share > 0
    left, widths = data.edges[:-1], np.diff(data.edges)
    ax.bar(left[filled], data.accuracy[filled], widths[filled], align="edge", color=color, alpha=0.2, label="accuracy")
    ax.fill_between(
        data.confidence[filled], data.low[filled], data.high[filled], color=color, alpha=0.35, linewidth=0, label="band"
    )
    _perfect(data, ax, INK)
    ax.plot(data.confidence[filled], data.accuracy[filled], color=color, marker="o", markersize=3.5, label="curve")
    title = "\n".join([fitted(text, 40) for text in (data.name, data.what) if text])
    error = f"pooled ECE {_figure(data.error)}"
    if not np.isnan(data.expected_error):
        error += f"\n(if perfectly calibrated {_figure(data.expected_error)})"
    ax.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy", title=f"{title}\n{error}")
    ax.tick_params(labelbottom=False)
    shares = ax.inset_axes((0, -0.34, 1, 0.26))
    shares.bar(left, data.share, widths, align="edge", color=color, label="share")
    shares.set(xlim=(0, 1), ylim=(0, 1), yticks=(0, 1), xlabel="confidence", ylabel="share of\nvoxels")
    return ax


def reliability_curves(data: Sequence[Reliability], ax: Axes | None = None) -> Axes:
    """The curves of several methods in one diagram; dashed, where they would lie if perfectly calibrated.

    Args:
        data: one curve a method, all of one class, or of one case.
        ax: where to draw; by default a new figure.
    """
    ax = axes_or_new(ax)
    names = [curve.name for curve in data]
    if any(curve.expected_accuracy is None for curve in data):
        ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    for curve in data:
        filled = curve.share > 0
        color = color_of(names, curve.name)
        if curve.expected_accuracy is not None:
            _perfect(curve, ax, color if len(data) > 1 else INK)
        ax.fill_between(
            curve.confidence[filled], curve.low[filled], curve.high[filled], color=color, alpha=0.15, linewidth=0
        )
        ax.plot(
            curve.confidence[filled],
            curve.accuracy[filled],
            color=color,
            marker=marker_of(names, curve.name),
            markersize=3.5,
            linewidth=1.2,
            label=f"\u200b{fitted(curve.name)} ({_figure(curve.error)})",  # one that starts with _ is left out
        )
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy", title=fitted(data[0].what, 40))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=7.5, title="method (pooled ECE)")
    return ax


def _perfect(data: Reliability, ax: Axes, color: str) -> None:
    """The line that a perfectly calibrated model lies on."""
    x, y = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    if data.expected_confidence is not None and data.expected_accuracy is not None:
        known = ~np.isnan(data.expected_accuracy)
        x, y = data.expected_confidence[known], data.expected_accuracy[known]
    ax.plot(x, y, color=color, linestyle="--", linewidth=0.8, label="_perfect")


def _figure(value: float) -> str:
    return "not defined" if np.isnan(value) else f"{value:.3f}"
