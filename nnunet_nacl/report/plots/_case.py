"""A slice of a case: image, ground truth, what each method predicts, and how sure it is of it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._slices import CaseSlice
from nnunet_nacl.report.plots._methods import reliability_curves
from nnunet_nacl.report.plots._style import axes_or_new, plot_style, wrapped

_COLUMNS = 5  # methods side by side
_LOWEST_CONFIDENCE = 0.3
_LABEL_COLORS = ("#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#F0E442", "#D55E00", "#0072B2")


def draw_case_slice(data: CaseSlice, curves: Mapping[str, Reliability]) -> Figure:
    """Image and ground truth, and for each method its segmentation, confidence and reliability in this case.

    Args:
        data: the slice.
        curves: method -> reliability curve of the case.
    """
    names = list(curves)
    blocks = [names[start : start + _COLUMNS] for start in range(0, len(names), _COLUMNS)]
    columns = 1 + min(len(names), _COLUMNS)
    with plot_style():
        figure = Figure(figsize=(1.75 * columns + 0.6, 5.6 * len(blocks)), layout="constrained")
        grid = figure.add_gridspec(3 * len(blocks), columns + 1, width_ratios=[1] * columns + [0.06])
        shown = []
        for block, members in enumerate(blocks):
            top = 3 * block
            if block == 0:
                show_ground_truth(data, figure.add_subplot(grid[0, 0]))
                show_image(data, figure.add_subplot(grid[1, 0]))
            for column, name in enumerate(members, start=1):
                show_segmentation(data, name, figure.add_subplot(grid[top, column]))
                axes = show_confidence(data, name, figure.add_subplot(grid[top + 1, column]))
                if axes.images:
                    shown.append(axes)
                axes = figure.add_subplot(grid[top + 2, column])
                _small_curve(curves[name], names, axes)
                if column > 1:
                    axes.set(ylabel="")
        if shown:
            bar = figure.add_subplot(grid[1, columns])
            figure.colorbar(shown[-1].images[0], cax=bar, label="confidence", extend="min")
    return figure


def _small_curve(curve: Reliability, names: Sequence[str], axes: Axes) -> None:
    reliability_curves([curve], axes, names=names)
    legend = axes.get_legend()
    if legend is not None:
        legend.remove()
    what = f"{wrapped(curve.what, 18)}\n" if curve.what else ""
    error = "not defined" if math.isnan(curve.error) else f"{curve.error:.3f}"
    axes.set(title=f"{what}ECE {error}", box_aspect=1, xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))


def show_ground_truth(data: CaseSlice, ax: Axes | None = None) -> Axes:
    """The labels of the ground truth in color over the image.

    Args:
        data: a slice.
        ax: where to draw; by default a new figure.
    """
    return _show_labels(data, data.ground_truth, "ground truth", ax)


def show_segmentation(data: CaseSlice, method: str, ax: Axes | None = None) -> Axes:
    """A method's labels in color over the image; an empty frame if they are missing.

    Args:
        data: a slice.
        method: its name.
        ax: where to draw; by default a new figure.
    """
    return _show_labels(data, data.segmentations.get(method), method, ax)


def show_image(data: CaseSlice, ax: Axes | None = None) -> Axes:
    """The image; an empty frame if it is missing.

    Args:
        data: a slice.
        ax: where to draw; by default a new figure.
    """
    ax = _frame("image", ax)
    _show_gray(data, ax)
    return ax


def show_confidence(data: CaseSlice, method: str, ax: Axes | None = None) -> Axes:
    """The highest probability of any class in each voxel, from dark (unsure) to bright (sure).

    Args:
        data: a slice.
        method: its name.
        ax: where to draw; by default a new figure.
    """
    ax = _frame("", ax)
    if method in data.confidences:
        ax.imshow(
            data.confidences[method],
            cmap="cividis",
            vmin=_LOWEST_CONFIDENCE,
            vmax=1,
            aspect=data.aspect,
            interpolation="nearest",
        )
    else:
        _say_missing(ax)
    return ax


def _show_labels(data: CaseSlice, labels: NDArray[np.integer] | None, title: str, ax: Axes | None) -> Axes:
    ax = _frame(title, ax)
    if labels is None:
        _say_missing(ax)
        return ax
    has_image = _show_gray(data, ax)
    colors = np.array([to_rgb(color) for color in _LABEL_COLORS])[(labels - 1) % len(_LABEL_COLORS)]
    opacity = np.where(labels > 0, 0.65 if has_image else 1.0, 0.0 if has_image else 1.0)
    colors = np.where((labels > 0)[..., None], colors, 0.0)
    ax.imshow(np.dstack([colors, opacity]), aspect=data.aspect, interpolation="nearest")
    return ax


def _show_gray(data: CaseSlice, ax: Axes) -> bool:
    if data.image is None:
        return False
    gray: Any = matplotlib.colormaps["gray"]
    low, high = np.percentile(data.image, [0.5, 99.5])
    ax.imshow(data.image, cmap=gray, vmin=low, vmax=high, aspect=data.aspect, interpolation="nearest")
    return True


def _frame(title: str, ax: Axes | None) -> Axes:
    ax = axes_or_new(ax)
    ax.set_title(wrapped(title, 18))
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def _say_missing(ax: Axes) -> None:
    ax.text(0.5, 0.5, "not found", ha="center", va="center", transform=ax.transAxes)
