"""Plots of what the confidences are good for: predicted Dice, risk and coverage, volumes."""

import math

import pandas as pd
from matplotlib.axes import Axes

from nnunet_nacl.report._metrics import number_text
from nnunet_nacl.report._review import Reviews
from nnunet_nacl.report.plots._style import INK, color_of, labelled, wrapped
from nnunet_nacl.use import judge_volumes, risk_coverage

_MARKERS = ("o", "^", "s", "D")
"""Of the structures; of more, none is told from another."""
_MANY = 2000
"""From so many points on, they are drawn as pixels, which keeps the page small."""


def dice_scatter(reviews: Reviews, method: str, ax: Axes) -> None:
    """True against predicted Dice, all methods on the same axes. Below the dashed line a method promises too much."""
    ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    _draw_points(reviews, method, reviews.frame["predicted_dice"], reviews.frame["dice"], ax)
    ends = (math.floor(10 * reviews.frame[["predicted_dice", "dice"]].min().min()) / 10 - 0.01, 1.01)
    title = f"{wrapped(method, 40)}\nMAE {number_text(reviews.judgements[method].dice_error)}"
    ax.set(xlim=ends, ylim=ends, xlabel="predicted Dice", ylabel="true Dice", title=title)


def risk_coverage_curves(reviews: Reviews, ax: Axes) -> None:
    """Mean of 1 − Dice of what is kept, the highest predicted Dice first, against the share that is kept."""
    for method, rows in reviews.frame.groupby("method", sort=False):
        curve = risk_coverage(rows["predicted_dice"], 1 - rows["dice"])
        label = f"{labelled(str(method))} ({number_text(reviews.judgements[str(method)].aurc)})"
        marker = "o" if curve.risk.size == 1 else ""
        color = color_of(reviews.names, str(method))
        ax.plot(curve.coverage, curve.risk, color=color, linewidth=1.3, marker=marker, label=label)
    ax.set(xlim=(0, 1.01), xlabel="coverage", ylabel="risk (mean of 1 − Dice)", title="risk and coverage")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=7.5, title="method (AURC)")


def volume_differences(reviews: Reviews, method: str, ax: Axes) -> None:
    """Expected less true volume against the mean of both, with bias and 95 % limits of agreement.

    All methods have the same axes.

    References:
        Bland & Altman, The Lancet 1986.
    """
    expected, true = reviews.frame["expected_ml"], reviews.frame["true_ml"]
    judged = {
        str(name): judge_volumes(rows["expected_ml"], rows["true_ml"]) for name, rows in reviews.frame.groupby("method")
    }
    own, held, color = judged[method], reviews.judgements[method].interval_coverage, color_of(reviews.names, method)
    ax.axhline(0, color=INK, linewidth=0.5, alpha=0.5)
    ax.axhline(own.bias_ml, color=color, linewidth=1.3)
    for end in own.limits_ml:
        ax.axhline(end, color=color, linewidth=1, linestyle="--")
    _draw_points(reviews, method, (expected + true) / 2, expected - true, ax)
    title = f"{wrapped(method, 40)}\nbias {number_text(own.bias_ml, signed=True)} ml"
    title += "" if held is None else f", interval held {held:.1%}"
    ax.set(xlabel="mean of expected and true volume (ml)", ylabel="expected − true volume (ml)", title=title)
    limits = [abs(end) for one in judged.values() for end in one.limits_ml if not math.isnan(end)]
    across, up = ((expected + true) / 2).max(), max([(expected - true).abs().max(), *limits])
    if across > 0 and up > 0:
        ax.set(xlim=(0, 1.05 * across), ylim=(-1.1 * up, 1.1 * up))


def _draw_points(reviews: Reviews, method: str, x: "pd.Series[float]", y: "pd.Series[float]", ax: Axes) -> None:
    """A point for each structure of each case; of a few structures, each has a marker of its own."""
    rows = reviews.frame[reviews.frame["method"] == method]
    structures = rows.groupby("structure", sort=False).groups
    few = len(structures) <= len(_MARKERS)
    for number, (structure, chosen) in enumerate(structures.items()):
        ax.plot(
            x[chosen],
            y[chosen],
            color=color_of(reviews.names, method),
            marker=_MARKERS[number if few else 0],
            markersize=3.5,
            alpha=0.6,
            markeredgewidth=0,
            linestyle="none",
            label=labelled(str(structure)),
            rasterized=len(rows) > _MANY,
        )
    if len(structures) > 1 and few:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=7.5)
