"""A slice of a case: image, reference, what each method predicts, and how sure it is of it."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from nnunet_nacl.report._slices import CaseSlice
from nnunet_nacl.report.figures._style import axes_or_new, fitted

LOWEST_CONFIDENCE = 0.3
_LABEL_COLORS = ("#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#F0E442", "#D55E00", "#0072B2")


def show_reference(data: CaseSlice, ax: Axes | None = None) -> Axes:
    """The reference's labels in color over the image.

    Args:
        data: a slice.
        ax: where to draw; by default a new figure.
    """
    return _show_labels(data, data.reference, "reference", ax)


def show_segmentation(data: CaseSlice, method: str, ax: Axes | None = None) -> Axes:
    """A method's labels in color over the image; an empty frame if they are missing.

    Args:
        data: a slice.
        method: whose.
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
        method: whose.
        ax: where to draw; by default a new figure.
    """
    ax = _frame("", ax)
    if method in data.confidences:
        ax.imshow(
            data.confidences[method],
            cmap="cividis",
            vmin=LOWEST_CONFIDENCE,
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
    ax.set_title(fitted(title, 18))
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def _say_missing(ax: Axes) -> None:
    ax.text(0.5, 0.5, "not found", ha="center", va="center", transform=ax.transAxes)
