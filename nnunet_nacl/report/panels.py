"""Panels: their style, how several stand side by side in a figure, and the figure as a file or in a page."""

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.files import whole_file
from nnunet_nacl.metrics import Estimate
from nnunet_nacl.typing import Floats

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
_STYLE: Any = {
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


def style_of(names: Sequence[str], name: str) -> dict[str, Any]:
    """Return color and marker of a method, by its position among all names."""
    number = names.index(name)
    return {"color": COLORS[number % len(COLORS)], "marker": _MARKERS[number % len(_MARKERS)]}


def wrapped(name: str, width: int = 24, lines: int = 3) -> str:
    r"""Break a name into lines that fit into a plot, after ``_``, ``-`` and blanks; a very long one loses its middle.

    >>> wrapped("NACL_weight0p2_gaussian_sigma2_100epochs")
    'NACL_weight0p2_gaussian_\nsigma2_100epochs'
    """
    name = " ".join(name.split())
    if len(name) > width * lines:
        half = width * lines // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    return "\n".join(re.findall(rf".{{1,{width}}}(?:(?<=[_ -])|$)|.{{1,{width}}}", name))


def labelled(name: str) -> str:
    """Return a name as a legend shows it, though it starts with ``_``."""
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


def draw_panels(panels: Sequence[Panel]) -> Figure:
    """Draw panels in rows of three, all as high as the one that needs most room."""
    columns = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(layout="constrained")
        below = 0.0
        for number, panel in enumerate(panels, start=1):
            num_before = len(figure.axes)
            panel(ax=figure.add_subplot(rows, columns, number))
            below = max(below, _height_below(figure.axes[num_before:]))
        figure.set_size_inches(_SIZE * columns, (_SIZE + below) * rows)
    return figure


def _height_below(panel: Sequence[Axes]) -> float:
    """Return the height in inches of what a panel has below its square: further axes, names around it, a legend."""
    height = 0.8 * (len(panel) - 1)
    if panel[0].name == "polar":
        height += 0.27
    legends = [legend for ax in panel if (legend := ax.get_legend())]
    labels = [text.get_text() for legend in legends for text in legend.get_texts()]
    if labels:
        lines = "\n".join(labels).split("\n")
        height += 0.17 * len(lines) / legend_columns(labels) + 0.3
    return height


def save_plot(figure: Figure, file: Path) -> None:
    """Write a figure, completely or not at all, in the format that the file's ending says."""
    with matplotlib.rc_context(_STYLE), whole_file(file) as partial:
        figure.savefig(partial, dpi=200)


def to_svg(figure: Figure) -> str:
    """Return an ``<svg>`` element in a page's colors and fonts, whose ids no other has.

    Its label for screen readers joins titles, axes and legends, which have the numbers.
    """
    prefix = f"f{next(_numbers)}-"
    stream = io.StringIO()
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The browser has its own fonts
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format="svg", transparent=True, dpi=110, metadata={"Date": None})

    def adapted(match: re.Match[str]) -> str:
        """Return a tag with the page's color and font, hundredths of a point, and ids of its own."""
        tag = re.sub(r"(\.\d\d)\d+", r"\1", match[0].replace(INK, "currentColor"))
        font = r"(font(?:-family)?: [^;\"']*)[^;\"]*"
        tag = re.sub(font, r"\1system-ui, sans-serif", tag)
        return re.sub(r'( id="|url\(#|href="#)', rf"\1{prefix}", tag)

    # Texts between tags stay as they are
    drawn = re.sub(r"<[^>]*>", adapted, stream.getvalue().partition("</metadata>")[2])
    texts = []
    for ax in figure.axes:
        axes = (ax.get_ylabel(), ax.get_xlabel())
        texts += [ax.get_title(), " against ".join(filter(None, axes))]
        if (legend := ax.get_legend()) is not None:
            texts += [text.get_text() for text in (legend.get_title(), *legend.get_texts())]
    label = ". ".join(" ".join(text.replace("\u200b", "").split()) for text in texts if text)
    width, height = figure.get_size_inches()
    return (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {72 * width:g} {72 * height:g}" role="img" '
        f'aria-label="{escape(label)}" style="max-width:{width * 1.25:.1f}in">{drawn}'
    )


def draw_point(ax: Axes, x: Estimate, y: Estimate, **style: Any) -> None:
    """Draw a point with its intervals."""
    style |= {"markersize": 7, "linewidth": 0.8, "linestyle": "none"}
    ax.errorbar(x.value, y.value, reach(y), reach(x), **style)


def reach(estimate: Estimate) -> Floats:
    """Return how far the interval reaches below and above the value, as Matplotlib's error bars: (2, 1)."""
    low, high = estimate.interval
    # A percentile interval need not contain the value; error bars may not be negative.
    return np.maximum([[estimate.value - low], [high - estimate.value]], 0)
