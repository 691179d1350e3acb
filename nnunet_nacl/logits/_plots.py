"""Plots of the logits of several methods, side by side."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from nnunet_nacl.logits._measures import LogitMeans, MaxLogitHistory
from nnunet_nacl.report.plots import color_of, plot_style, wrapped

_MEDIAN = "#D55E00"
_LEAST_SHARE = 1e-3
"""Bins that hold less of every epoch, at the ends of the scale, are not shown."""


def _panels(
    number: int, columns: int, width: float, height: float, labels: tuple[str, str]
) -> tuple[Figure, list[Axes]]:
    """A figure of panels with the same axes, named once a column and a row."""
    rows = math.ceil(number / columns)
    figure = Figure(figsize=(width * columns + 0.8, height * rows + 1.2), layout="constrained")
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axes in panels[number:]:
        axes.remove()
    for place, axes in enumerate(panels[:number]):
        if place % columns == 0:
            axes.set_ylabel(labels[1])
        if place + columns >= number:
            axes.set_xlabel(labels[0])
            axes.tick_params(labelbottom=True)
    return figure, panels[:number]


def draw_mean_logits(means: Mapping[str, LogitMeans]) -> Figure:
    """Mean absolute logits: a panel for each true class, a group of bars for each logit, a bar for each method.

    Args:
        means: method -> means, over the same cases.

    Raises:
        ValueError: methods of different classes or cases.
    """
    first = _check_alike(means)
    number, names = len(first.true_classes), list(means)
    # Of three and four columns, whichever leaves fewer places empty; regions, inside and outside, are pairs.
    pairs = first.true_classes != first.logits
    columns = 2 if pairs else min(number, min((3, 4), key=lambda columns: -number % columns))
    inches = min(max(3.1, 0.75 + 0.12 * len(means) * len(first.logits)), 4.2)
    # A letter of 9 points is about 0.08 inches wide; tilted names take an inch.
    tilted = max(map(len, first.logits)) * len(first.logits) * 0.08 > inches - 0.6
    width = 0.84 / len(names)
    with plot_style():
        figure, panels = _panels(number, columns, inches, 1.9 + tilted, ("logit of", "mean |logit|"))
        for row, (true_class, axes) in enumerate(zip(first.true_classes, panels, strict=True)):
            for place, (name, of_method) in enumerate(means.items()):
                axes.bar(
                    np.arange(len(first.logits)) + (place - (len(names) - 1) / 2) * width,
                    of_method.mean_absolute[row],
                    width,
                    color=color_of(names, name),
                    label=f"\u200b{wrapped(name)}",  # one that starts with _ is left out
                )
            if not any(of_method.voxels[row] for of_method in means.values()):
                axes.text(0.5, 0.5, "no voxel", ha="center", va="center", transform=axes.transAxes)
            axes.set_title(f"true: {wrapped(true_class, 30)}")
            axes.set_xticks(range(len(first.logits)), [wrapped(name, 18, 1) for name in first.logits])
            axes.tick_params(axis="x", length=0)
            for label in axes.get_xticklabels() if tilted else ():
                label.set(rotation=40, ha="right", rotation_mode="anchor")
        panels[0].set_xlim(-0.55, len(first.logits) - 0.45)
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(names), 2 * columns)
        )
    return figure


def _check_alike(means: Mapping[str, LogitMeans]) -> LogitMeans:
    name, first = next(iter(means.items()))
    for other, of_other in means.items():
        for what in ("true_classes", "logits", "cases"):
            one, another = (", ".join(getattr(of, what)) for of in (first, of_other))
            if one != another:
                raise ValueError(
                    f"{name} and {other} differ in their {what.replace('_', ' ')}: {one} against {another}."
                )
    return first


def draw_max_logits(histories: Mapping[str, MaxLogitHistory]) -> Figure:
    """The maximum logit over the epochs: a panel for each method, the share of an epoch's voxels as color.

    The color scale is that of the square root, so that wide distributions can be seen beside narrow ones. The line is
    the median.

    Args:
        histories: method -> history.
    """
    shares = {name: _shares(history) for name, history in histories.items()}
    norm = PowerNorm(0.5, 0, max(float(np.nanmax(share)) for share in shares.values()))
    with plot_style():
        figure, panels = _panels(len(histories), min(4, len(histories)), 2.7, 2.7, ("epoch", "maximum logit"))
        ends = []
        for (name, history), axes in zip(histories.items(), panels, strict=True):
            first, last = int(history.epochs[0]), int(history.epochs[-1])
            extent = (first - 0.5, last + 0.5, history.edges[0], history.edges[-1])
            axes.imshow(
                shares[name], "Blues", norm, extent=extent, origin="lower", aspect="auto", interpolation="nearest"
            )
            median = np.full(last - first + 1, np.nan)
            median[history.epochs - first] = history.quantiles[:, history.levels.index(50)]
            marker = "." if last - first < 30 else ""
            axes.plot(np.arange(first, last + 1), median, color=_MEDIAN, linewidth=1.3, marker=marker)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_title(wrapped(name))
            held = np.flatnonzero(np.nanmax(shares[name], axis=1) >= _LEAST_SHARE)
            ends.append((first - 0.5, last + 0.5, history.edges[held[0]], history.edges[held[-1] + 1]))
        left, right, low, high = zip(*ends, strict=True)
        panels[0].set(xlim=(min(left), max(right)), ylim=(min(low), max(high)))
        figure.colorbar(panels[0].images[0], ax=panels, label="share of voxels")
    return figure


def _shares(history: MaxLogitHistory) -> NDArray[np.float64]:
    """Shares of an epoch's voxels (B, epochs from the first to the last); NaN for those without an entry."""
    shares = np.full((history.epochs[-1] - history.epochs[0] + 1, history.histograms.shape[1]), np.nan)
    shares[history.epochs - history.epochs[0]] = history.histograms / history.histograms.sum(1, keepdims=True)
    return shares.T
