"""Plots of the logits of several methods, side by side."""

from collections.abc import Mapping
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nnunet_nacl.report.panels import draw_panels, legend_below, style_of
from nnunet_nacl.trainers import MAX_LOGIT_EDGES

_LEAST_SHARE = 1e-3
"""Bins that hold less of every epoch, at the ends of the scale, are not shown."""


def draw_mean_logits(means: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw mean absolute logits: a panel for each true class, a group of bars for each logit, a bar for each method.

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
    bars = pd.DataFrame(
        {name: frame.set_index(index)["mean_absolute"] for name, frame in means.items()}
    )
    colors = [style_of(names, name)["color"] for name in names]

    def draw(true_class: str, ax: Axes) -> None:
        bars.loc[true_class].plot.bar(ax=ax, color=colors, width=0.84, legend=False, rot=30)
        ax.set(
            title=f"true: {true_class}",
            xlabel="logit of",
            ylabel="mean |logit|",
            ylim=(0, 1.05 * bars.max(axis=None)),
        )
        legend_below(ax, 0.3)

    return draw_panels([partial(draw, true_class) for true_class in first["true_class"].unique()])


def draw_max_logits(histories: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the maximum logit over the epochs: a panel for each method, the share of an epoch's voxels as color.

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

    def draw(name: str, ax: Axes) -> None:
        image = ax.imshow(
            shares.loc[name].reindex(epochs).T,
            "Blues",
            norm,
            extent=(epochs[0] - 0.5, epochs[-1] + 0.5, MAX_LOGIT_EDGES[0], MAX_LOGIT_EDGES[-1]),
            origin="lower",
            aspect="auto",
            interpolation="nearest",
        )
        median = histories[name]["max_logit_p50"].reindex(epochs)
        marker = "." if len(epochs) < 30 else ""
        ax.plot(median, color="#D55E00", linewidth=1.3, marker=marker)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        limits = (held.index.min(), held.index.max() + 1)
        ax.set(title=name, xlabel="epoch", ylabel="maximum logit", ylim=limits)
        ax.figure.colorbar(image, ax=ax, label="share of voxels")

    return draw_panels([partial(draw, name) for name in histories])
