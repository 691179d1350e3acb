"""Plots of the logits of several methods, side by side."""

import math
from collections.abc import Mapping, Sequence

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


def draw_mean_logits(means: Mapping[str, LogitMeans]) -> Figure:
    """Mean absolute logits: a panel for each true class, a group of bars for each logit, a bar for each method.

    Args:
        means: method -> means, over the same cases.

    Raises:
        ValueError: methods of different classes or cases.
    """
    first = _check_alike(means)
    columns = _columns(len(first.true_classes), pairs=first.true_classes != first.logits)
    rows = math.ceil(len(first.true_classes) / columns)
    inches = min(max(3.1, 0.75 + 0.12 * len(means) * len(first.logits)), 4.2)
    # A letter of 9 points is about 0.08 inches wide.
    tilted = max(map(len, first.logits)) * len(first.logits) * 0.08 > inches - 0.6
    with plot_style():
        # Tilted names take an inch, and another above an incomplete last row.
        names_inches = tilted * (1 if len(first.true_classes) % columns == 0 else 2)
        figure = Figure(figsize=(inches * columns + 0.4, 1.9 * rows + 1.2 + names_inches), layout="constrained")
        panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
        for axes in panels[len(first.true_classes) :]:
            axes.remove()
        panels = panels[: len(first.true_classes)]
        for row, (true_class, axes) in enumerate(zip(first.true_classes, panels, strict=True)):
            _draw_bars(means, row, axes)
            axes.set_title(f"true: {wrapped(true_class, 30)}")
            if row % columns == 0:
                axes.set_ylabel("mean |logit|")
            if row + columns >= len(first.true_classes):
                axes.set_xlabel("logit of")
                axes.tick_params(labelbottom=True)
        panels[0].set_xlim(-0.55, len(first.logits) - 0.45)
        _label_logits(panels, first.logits, tilted=tilted)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(means), 2 * columns))
    return figure


def _draw_bars(means: Mapping[str, LogitMeans], row: int, axes: Axes) -> None:
    names = list(means)
    width = 0.84 / len(names)
    for number, (name, of_method) in enumerate(means.items()):
        axes.bar(
            np.arange(len(of_method.logits)) + (number - (len(names) - 1) / 2) * width,
            of_method.mean_absolute[row],
            width,
            color=color_of(names, name),
            label=f"\u200b{wrapped(name)}",  # one that starts with _ is left out
        )
    if not any(of_method.voxels[row] for of_method in means.values()):
        axes.text(0.5, 0.5, "no voxel", ha="center", va="center", transform=axes.transAxes)


def _columns(panels: int, *, pairs: bool) -> int:
    """Three or four, whichever leaves fewer places empty; two for regions, whose inside and outside are a pair."""
    return 2 if pairs else min(panels, min((3, 4), key=lambda columns: -panels % columns))


def _label_logits(panels: Sequence[Axes], logits: tuple[str, ...], *, tilted: bool) -> None:
    panels[0].set_xticks(range(len(logits)), [wrapped(name, 18, 1) for name in logits])
    for axes in panels:
        axes.tick_params(axis="x", length=0)
        for label in axes.get_xticklabels() if tilted else ():
            label.set(rotation=40, ha="right", rotation_mode="anchor")


def _check_alike(means: Mapping[str, LogitMeans]) -> LogitMeans:
    name, first = next(iter(means.items()))
    for other, of_other in means.items():
        for what in ("true_classes", "logits", "cases"):
            one, another = getattr(first, what), getattr(of_other, what)
            if one != another:
                raise ValueError(
                    f"{name} and {other} differ in their {what.replace('_', ' ')}: {', '.join(one)} against "
                    f"{', '.join(another)}."
                )
    return first


def draw_max_logits(histories: Mapping[str, MaxLogitHistory]) -> Figure:
    """The maximum logit over the epochs: a panel for each method, the share of an epoch's voxels as color.

    Axes and colors are the same in all panels. The color scale is that of the square root, so that wide distributions
    can be seen beside narrow ones. The line is the median.

    Args:
        histories: method -> history.
    """
    shares = {name: _shares(history) for name, history in histories.items()}
    norm = PowerNorm(0.5, 0, max(float(np.nanmax(share)) for share in shares.values()))
    columns = min(4, len(histories))
    rows = math.ceil(len(histories) / columns)
    with plot_style():
        figure = Figure(figsize=(2.7 * columns + 0.9, 2.7 * rows + 0.3), layout="constrained")
        panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
        for axes in panels[len(histories) :]:
            axes.remove()
        panels = panels[: len(histories)]
        for number, ((name, history), axes) in enumerate(zip(histories.items(), panels, strict=True)):
            _draw_history(history, shares[name], norm, axes)
            axes.set_title(wrapped(name))
            if number % columns == 0:
                axes.set_ylabel("maximum logit")
            if number + columns >= len(histories):
                axes.set_xlabel("epoch")
                axes.tick_params(labelbottom=True)
        panels[0].set_xlim(
            min(history.epochs[0] for history in histories.values()) - 0.5,
            max(history.epochs[-1] for history in histories.values()) + 0.5,
        )
        panels[0].set_ylim(*_range_of_logits(histories, shares))
        figure.colorbar(panels[0].images[0], ax=panels, label="share of voxels")
    return figure


def _draw_history(history: MaxLogitHistory, shares: NDArray[np.float64], norm: PowerNorm, axes: Axes) -> None:
    first, last = int(history.epochs[0]), int(history.epochs[-1])
    axes.imshow(
        shares,
        cmap="Blues",
        norm=norm,
        extent=(first - 0.5, last + 0.5, history.edges[0], history.edges[-1]),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )
    median = np.full(last - first + 1, np.nan)
    median[history.epochs - first] = history.quantiles[:, history.levels.index(50)]
    marker = "." if last - first < 30 else ""
    axes.plot(np.arange(first, last + 1), median, color=_MEDIAN, linewidth=1.3, marker=marker)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _shares(history: MaxLogitHistory) -> NDArray[np.float64]:
    """Shares of an epoch's voxels (B, epochs from the first to the last); NaN for those without an entry."""
    shares = np.full((history.epochs[-1] - history.epochs[0] + 1, history.histograms.shape[1]), np.nan)
    shares[history.epochs - history.epochs[0]] = history.histograms / history.histograms.sum(1, keepdims=True)
    return shares.T


def _range_of_logits(
    histories: Mapping[str, MaxLogitHistory], shares: Mapping[str, NDArray[np.float64]]
) -> tuple[float, float]:
    ends = []
    for name, history in histories.items():
        held = np.flatnonzero(np.nanmax(shares[name], axis=1) >= _LEAST_SHARE)
        ends.append((history.edges[held[0]], history.edges[held[-1] + 1]))
    return min(low for low, _ in ends), max(high for _, high in ends)
