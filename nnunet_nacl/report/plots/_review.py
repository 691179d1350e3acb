"""Plots of what the confidences are good for: predicted Dice, risk and coverage, volumes."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from nnunet_nacl.report._metrics import number_text
from nnunet_nacl.report._review import JudgedMethod, JudgedMethods
from nnunet_nacl.report.plots._style import INK, axes_or_new, color_of, labelled, wrapped

_MARKERS = ("o", "^", "s", "D")
"""Of the structures; of more, none is told from another."""
_MANY = 2000
"""From so many points on, they are drawn as pixels, which keeps the page small."""


def dice_scatter(data: JudgedMethod, ax: Axes | None = None, *, color: str = "#0072B2", least: float = 0) -> Axes:
    """True against predicted Dice, from ``least`` on. Below the dashed line a method promises too much."""
    ax = axes_or_new(ax)
    ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    _points(ax, data, data.predicted_dice, data.dice, color)
    ends = (least - 0.01, 1.01)
    title = f"{wrapped(data.name, 40)}\nMAE {number_text(data.judgement.dice_error)}"
    ax.set(xlim=ends, ylim=ends, xlabel="predicted Dice", ylabel="true Dice", title=title)
    return ax


def risk_coverage_curves(data: JudgedMethods, ax: Axes | None = None) -> Axes:
    """Mean of 1 − Dice of what is kept, the highest predicted Dice first, against the share that is kept."""
    ax = axes_or_new(ax)
    for one in data.methods:
        curve, color = one.risk_coverage, color_of(data.names, one.name)
        label = f"{labelled(one.name)} ({number_text(one.judgement.aurc)})"
        marker = "o" if curve.risk.size == 1 else ""
        ax.plot(curve.coverage, curve.risk, color=color, linewidth=1.3, marker=marker, label=label)
    ax.set(xlim=(0, 1.01), xlabel="coverage", ylabel="risk (mean of 1 − Dice)", title="risk and coverage")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=7.5, title="method (AURC)")
    return ax


def volume_differences(
    data: JudgedMethod, ax: Axes | None = None, *, color: str = "#0072B2", frame: tuple[float, float] | None = None
) -> Axes:
    """Expected less true volume against the mean of both, with bias and 95 % limits of agreement.

    Args:
        data: a method.
        ax: where to draw; by default a new figure.
        color: of the points.
        frame: the largest volume and the largest difference that the axes have to hold, in ml.

    References:
        Bland & Altman, The Lancet 1986.
    """
    ax = axes_or_new(ax)
    volumes, held = data.volumes, data.judgement.interval_coverage
    ax.axhline(0, color=INK, linewidth=0.5, alpha=0.5)
    ax.axhline(volumes.bias_ml, color=color, linewidth=1.3)
    for end in volumes.limits_ml:
        ax.axhline(end, color=color, linewidth=1, linestyle="--")
    _points(ax, data, data.mean_ml, data.difference_ml, color)
    title = f"{wrapped(data.name, 40)}\nbias {number_text(volumes.bias_ml, signed=True)} ml"
    title += "" if held is None else f", interval held {held:.1%}"
    ax.set(xlabel="mean of expected and true volume (ml)", ylabel="expected − true volume (ml)", title=title)
    if frame is not None and min(frame) > 0:
        ax.set(xlim=(0, 1.05 * frame[0]), ylim=(-1.1 * frame[1], 1.1 * frame[1]))
    return ax


def _points(ax: Axes, data: JudgedMethod, x: NDArray[np.float64], y: NDArray[np.float64], color: str) -> None:
    """A point for each structure of each case; of a few structures, each has a marker of its own."""
    structures = data.structures
    told_apart = 1 < len(structures) <= len(_MARKERS)
    of_row = np.array([structures.index(row.structure) if told_apart else 0 for row in data.rows])
    for number, structure in enumerate(structures if told_apart else [""]):
        chosen = of_row == number
        ax.plot(
            x[chosen],
            y[chosen],
            color=color,
            marker=_MARKERS[number],
            markersize=3.5,
            alpha=0.6,
            markeredgewidth=0,
            linestyle="none",
            label=labelled(structure),
            rasterized=len(data.rows) > _MANY,
        )
    if told_apart:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=7.5)
