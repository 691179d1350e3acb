"""How plots look, how several stand side by side, and how they are saved."""

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.files import whole_file

Panel = Callable[..., None]
"""Draws on the axes that it is called with, as ``ax``."""
INK = "#1b1c1d"
"""The color of text and axes; in a page it becomes the color of the page's text, dark or light."""

# Okabe and Ito's colors, which color-blind readers can tell apart, changed where the contrast with a light or dark page
# was below 3 : 1.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#2F9BD6", "#B87F00", "#706A00", "#808080")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
_COLUMNS = 3
_SIZE = 3.4  # of a panel, in inches
_numbers = count()  # of plots
_PARAMETERS: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # a method may be called a$b$c
    "svg.fonttype": "none",
    "svg.hashsalt": "nnunet_nacl",  # so that the same plot is the same file
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    ),
}


def method_color(names: Sequence[str], name: str) -> str:
    """Color of a method, by its position among all names."""
    return COLORS[names.index(name) % len(COLORS)]


def style_of(names: Sequence[str], name: str) -> dict[str, Any]:
    """Color and marker of a method, by its position among all names."""
    marker = _MARKERS[names.index(name) % len(_MARKERS)]
    return {"color": method_color(names, name), "marker": marker}


def wrapped(name: str, width: int = 24, lines: int = 3) -> str:
    r"""A name in lines that fit into a plot, broken after ``_``, ``-`` and blanks; a very long one loses its middle.

    >>> wrapped("NACL_weight0p2_gaussian_sigma2_100epochs")
    'NACL_weight0p2_gaussian_\nsigma2_100epochs'
    """
    name = " ".join(name.split())
    if len(name) > width * lines:
        half = width * lines // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    return "\n".join(re.findall(rf".{{1,{width}}}(?:(?<=[_ -])|$)|.{{1,{width}}}", name))


def labelled(name: str) -> str:
    """A name as a legend shows it, though it starts with ``_``."""
    return f"\u200b{wrapped(name)}"


def legend_columns(labels: Sequence[str]) -> int:
    """Two, if all labels are so short that two fit side by side."""
    return 2 if max(map(len, "\n".join(labels).split("\n"))) <= 20 else 1


def legend_below(ax: Axes, gap: float = 0.17, *, of: Axes | None = None, **style: Any) -> None:
    """Put a legend below the axes, of what they or the axes ``of`` show; ``gap`` is a share of their height.

    Without labels there is no legend.
    """
    handles, labels = (of or ax).get_legend_handles_labels()
    if labels:
        style = {"ncols": legend_columns(labels), "fontsize": 8, **style}
        ax.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -gap), **style)


def plot_style() -> AbstractContextManager[None]:
    """Within this context, plots have our style. Outside, a notebook's own style stays."""
    return matplotlib.rc_context(_PARAMETERS)


def draw_panels(panels: Sequence[Panel]) -> Figure:
    """Draw panels in rows of three, each as high as its legend needs."""
    columns = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    with plot_style():
        figure = Figure(layout="constrained")
        below = 0.0
        for number, panel in enumerate(panels, start=1):
            drawn = len(figure.axes)
            panel(ax=figure.add_subplot(rows, columns, number))
            legends = [ax.get_legend() for ax in figure.axes[drawn:]]
            labels = [
                text.get_text() for legend in legends if legend for text in legend.get_texts()
            ]
            height = 0.8 * (len(legends) - 1)
            if figure.axes[drawn].name == "polar":
                height += 0.27  # names around the circle
            if labels:
                lines = "\n".join(labels).split("\n")
                height += 0.17 * len(lines) / legend_columns(labels) + 0.3
            below = max(below, height)
        figure.set_size_inches(_SIZE * columns, (_SIZE + below) * rows)
    return figure


def save_plot(figure: Figure, file: Path) -> None:
    """Write a figure, completely or not at all, in the format that the file's ending says."""
    with plot_style(), whole_file(file) as partial:
        figure.savefig(partial, dpi=200)


def described(figure: Figure) -> str:
    """What titles, axes and legends say, for screen readers: legends have the numbers."""
    said = []
    for ax in figure.axes:
        said += [ax.get_title(), " against ".join(filter(None, (ax.get_ylabel(), ax.get_xlabel())))]
        if (legend := ax.get_legend()) is not None:
            said += [text.get_text() for text in (legend.get_title(), *legend.get_texts())]
    return ". ".join(" ".join(text.replace("\u200b", "").split()) for text in said if text)


def to_svg(figure: Figure) -> str:
    """An ``<svg>`` element in a page's colors and fonts, whose ids no other has."""
    prefix = f"f{next(_numbers)}-"
    stream = io.StringIO()
    with plot_style(), warnings.catch_warnings():
        # The browser has its own fonts
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format="svg", transparent=True, dpi=110, metadata={"Date": None})
    text = stream.getvalue().partition("</metadata>")[2]
    # Texts between tags stay as they are
    text = re.sub(r"<[^>]*>", lambda tag: _adapted(tag[0], prefix), text)
    width, height = figure.get_size_inches()
    return (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {72 * width:g} {72 * height:g}" role="img" '
        f'aria-label="{escape(described(figure))}" style="max-width:{width * 1.25:.1f}in">{text}'
    )


def _adapted(tag: str, prefix: str) -> str:
    """A tag with the page's color, hundredths of a point, and ids of its own."""
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag.replace(INK, "currentColor"))
    tag = re.sub(
        r"font(-family)?: [^;\"]*",
        lambda font: font[0].split("'")[0] + "system-ui, sans-serif",
        tag,
    )
    return re.sub(r'( id="|url\(#|href="#)', rf"\1{prefix}", tag)
