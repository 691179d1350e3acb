"""Plots of the logits of several methods, side by side."""

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nnunet_nacl.report.plots import plot_style, style_of
from nnunet_nacl.trainers import MAX_LOGIT_EDGES

_COLUMNS = 4
_LEAST_SHARE = 1e-3
"""Bins that hold less of every epoch, at the ends of the scale, are not shown."""


def _panels(
    number: int, width: float, height: float, labels: tuple[str, str]
) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels with the same y axis."""
    columns = min(number, _COLUMNS)
    rows = math.ceil(number / columns)
    figure = Figure(figsize=(width * columns + 0.8, height * rows + 1.2), layout="constrained")
    panels = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for axes in panels[number:]:
        axes.remove()
    figure.supxlabel(labels[0])
    figure.supylabel(labels[1])
    return figure, panels[:number]


def draw_mean_logits(means: Mapping[str, pd.DataFrame]) -> Figure:
    """Mean absolute logits: a panel for each true class, a group of bars for each logit, a bar for each method.

    Args:
        means: method -> what ``mean_logits`` returns, over the same cases.

    Raises:
        ValueError: methods of different classes or voxels.
    """
    names = list(means)
    first = means[names[0]]
    index = ["true_class", "logit"]
    same = [*index, "voxels"]
    for name, other in means.items():
        if not other[same].equals(first[same]):
            raise ValueError(
                f"{names[0]} and {name} differ in their classes, or show different cases."
            )
    true_classes = first["true_class"].unique()
    bars = pd.DataFrame(
        {name: frame.set_index(index)["mean_absolute"] for name, frame in means.items()}
    )
    colors = [style_of(names, name)["color"] for name in names]
    with plot_style():
        figure, panels = _panels(len(true_classes), 3.1, 2.6, ("logit of", "mean |logit|"))
        for true_class, axes in zip(true_classes, panels, strict=True):
            bars.loc[true_class].plot.bar(
                ax=axes, color=colors, width=0.84, legend=False, rot=30, xlabel=""
            )
            axes.set_title(f"true: {true_class}")
        handles = [container[0] for container in panels[0].containers]
        figure.legend(
            handles, names, loc="outside upper center", ncols=min(len(names), 2 * _COLUMNS)
        )
    return figure


def draw_max_logits(histories: Mapping[str, pd.DataFrame]) -> Figure:
    """The maximum logit over the epochs: a panel for each method, the share of an epoch's voxels as color.

    The color scale is that of the square root, so that wide distributions can be seen beside narrow ones. The line is
    the median.

    Args:
        histories: method -> what ``max_logit_history`` returns.
    """
    bins = list(MAX_LOGIT_EDGES[:-1])
    kept = pd.concat(histories)
    numbers = kept.index.get_level_values(1)
    epochs = range(numbers.min(), numbers.max() + 1)
    shares = kept[bins].div(kept[bins].sum(axis=1), axis=0)
    held = shares.max()
    held = held[held >= _LEAST_SHARE]
    norm = PowerNorm(0.5, 0, held.max())
    with plot_style():
        figure, panels = _panels(len(histories), 2.7, 2.7, ("epoch", "maximum logit"))
        for (name, history), axes in zip(histories.items(), panels, strict=True):
            extent = (epochs[0] - 0.5, epochs[-1] + 0.5, MAX_LOGIT_EDGES[0], MAX_LOGIT_EDGES[-1])
            axes.imshow(
                shares.loc[name].reindex(epochs).T,
                "Blues",
                norm,
                extent=extent,
                origin="lower",
                aspect="auto",
                interpolation="nearest",
            )
            marker = "." if len(epochs) < 30 else ""
            axes.plot(
                history["max_logit_p50"].reindex(epochs),
                color="#D55E00",
                linewidth=1.3,
                marker=marker,
            )
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_title(name)
        panels[0].set(ylim=(held.index.min(), held.index.max() + 1))
        figure.colorbar(panels[0].images[0], ax=panels, label="share of voxels")
    return figure
