"""Figures of several panels, and figures as files."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.files import check_file, whole_file
from nnunet_nacl.report._reliability import Reliability
from nnunet_nacl.report._slices import CaseSlice
from nnunet_nacl.report.figures._reliability import reliability_curves
from nnunet_nacl.report.figures._slices import show_confidence, show_image, show_reference, show_segmentation
from nnunet_nacl.report.figures._style import color_of, figure_style, fitted

_ENDINGS = (".svg", ".pdf", ".png")
_COLUMNS = 5  # methods beside each other in a case's figure


@dataclass(frozen=True)
class Panel:
    """A drawing that fills one axes.

    Attributes:
        draw: draws on the axes that it is given.
        description: what it shows, in words.
        polar: whether it wants polar axes.
    """

    draw: Callable[[Axes], object]
    description: str
    polar: bool = False


def grid_figure(panels: Sequence[Panel], *, columns: int = 3, size: float = 3.4) -> Figure:
    """A figure of panels in rows of ``columns``, each ``size`` inches wide."""
    with figure_style():
        columns = min(columns, len(panels))
        rows = math.ceil(len(panels) / columns)
        figure = Figure(figsize=(size * columns, size * 1.15 * rows))
        if len(panels) > 1:  # a single one is cropped to what is drawn when it is saved, which is all that it needs
            figure.set_layout_engine("constrained")
        for number, panel in enumerate(panels, start=1):
            panel.draw(figure.add_subplot(rows, columns, number, projection="polar" if panel.polar else None))
    return figure


def case_figure(data: CaseSlice, curves: Mapping[str, Reliability]) -> Figure:
    """Image and reference, and for each method its segmentation, confidence and reliability in this case.

    Args:
        data: the slice.
        curves: method -> reliability curve of the case.
    """
    names = list(curves)
    blocks = [names[start : start + _COLUMNS] for start in range(0, len(names), _COLUMNS)]
    columns = 1 + min(len(names), _COLUMNS)
    with figure_style():
        figure = Figure(figsize=(1.75 * columns + 0.6, 5.6 * len(blocks)), layout="constrained")
        grid = figure.add_gridspec(3 * len(blocks), columns + 1, width_ratios=[1] * columns + [0.06])
        shown = []
        for block, members in enumerate(blocks):
            top = 3 * block
            if block == 0:
                show_reference(data, figure.add_subplot(grid[0, 0]))
                show_image(data, figure.add_subplot(grid[1, 0]))
            for column, name in enumerate(members, start=1):
                show_segmentation(data, name, figure.add_subplot(grid[top, column]))
                axes = show_confidence(data, name, figure.add_subplot(grid[top + 1, column]))
                if axes.images:
                    shown.append(axes)
                axes = figure.add_subplot(grid[top + 2, column])
                _small_curve(curves[name], color_of(names, name), axes)
                if column > 1:
                    axes.set(ylabel="")
        if shown:
            bar = figure.add_subplot(grid[1, columns])
            figure.colorbar(shown[-1].images[0], cax=bar, label="confidence", extend="min")
    return figure


def _small_curve(curve: Reliability, color: str, axes: Axes) -> None:
    reliability_curves([curve], axes)
    axes.lines[-1].set_color(color)
    legend = axes.get_legend()
    if legend is not None:
        legend.remove()
    what = f"{fitted(curve.what, 18)}\n" if curve.what else ""
    error = "not defined" if math.isnan(curve.error) else f"{curve.error:.3f}"
    axes.set(title=f"{what}ECE {error}", box_aspect=1, xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))


def check_figure_file(file: str | Path) -> Path:
    """Return the path of a figure that may be written.

    Raises:
        OSError: it is a folder, or its folder does not exist.
        ValueError: its ending is none of ``.svg``, ``.pdf`` and ``.png``.
    """
    file = check_file(file)
    if file.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{file}: expected a name that ends with .svg, .pdf or .png.")
    return file


def write_figure(figure: Figure, file: Path, *, dpi: int = 200) -> None:
    """Write a figure, whole or not at all, in the format that its ending says."""
    with figure_style(), whole_file(file) as partial:
        figure.savefig(partial, format=file.suffix[1:].lower(), dpi=dpi, bbox_inches="tight")
