"""A slice of a case: image, ground truth, what each method predicts, and how sure it is of it."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nnunet_nacl.report._metrics import number_text
from nnunet_nacl.report._pictures import LABEL_COLORS, LOWEST_CONFIDENCE, CaseSlice
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report.plots._methods import reliability_curves
from nnunet_nacl.report.plots._style import plot_style, wrapped


def draw_case_slice(data: CaseSlice, curves: Mapping[str, Reliability]) -> Figure:
    """Image and ground truth, and for each method its segmentation, confidence and reliability in this case.

    Args:
        data: the slice.
        curves: method -> reliability curve of the case.
    """
    names = list(curves)
    with plot_style():
        figure = Figure(figsize=(1.75 * len(names) + 2.4, 5.6), layout="constrained")
        grid = figure.subplots(3, len(names) + 1, squeeze=False)
        for ax in grid[:2].flat:
            ax.axis("off")
        _show_labels(data, data.ground_truth, grid[0, 0], "ground truth")
        _show_gray(data, grid[1, 0])
        grid[1, 0].set_title("image")
        grid[2, 0].remove()
        for (name, curve), (labels, confidence, reliability) in zip(curves.items(), grid[:, 1:].T, strict=True):
            _show_labels(data, data.segmentations.get(name), labels, name)
            if name in data.confidences:
                shown = confidence.imshow(
                    data.confidences[name], cmap="cividis", vmin=LOWEST_CONFIDENCE, vmax=1, aspect=data.aspect
                )
                if name == names[-1]:
                    figure.colorbar(shown, ax=confidence, label="confidence", extend="min")
            reliability_curves([curve], reliability, names=names, legend=False)
            title = f"{wrapped(curve.what, 18)}\nECE {number_text(curve.error)}".strip()
            reliability.set(title=title, box_aspect=1, xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    return figure


def _show_labels(data: CaseSlice, labels: NDArray[np.integer] | None, ax: Axes, title: str) -> None:
    """Labels in color over the image; without labels a word in their place."""
    ax.set_title(wrapped(title, 18))
    if labels is None:
        ax.text(0.5, 0.5, "not found", ha="center", va="center", transform=ax.transAxes)
        return
    has_image = _show_gray(data, ax)
    colors = np.array([to_rgb(color) for color in LABEL_COLORS])[(labels - 1) % len(LABEL_COLORS)]
    opacity = np.where(labels > 0, 0.65, 0.0) if has_image else np.ones(labels.shape)
    ax.imshow(np.dstack([np.where((labels > 0)[..., None], colors, 0.0), opacity]), aspect=data.aspect)


def _show_gray(data: CaseSlice, ax: Axes) -> bool:
    if data.image is None:
        return False
    low, high = np.percentile(data.image, [0.5, 99.5])
    ax.imshow(data.image, cmap="gray", vmin=low, vmax=high, aspect=data.aspect)
    return True
