"""Colors, markers and sizes that all figures share."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes

INK = "#1b1c1d"
"""The color of text and axes; in a page it becomes that of the page's text, dark or light."""

# Okabe and Ito's colors, which color-blind readers can tell apart, without black (unreadable on dark pages) and with
# the yellow darkened (unreadable on white ones). Markers differ too, so that none depends on color alone.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#B3A100", "#8C8C8C")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
_PARAMETERS: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # a method may be called a$b$c
    "svg.fonttype": "none",
    "svg.hashsalt": "nnunet_nacl",  # so that the same figure is the same file
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


def color_of(names: Sequence[str], name: str) -> str:
    """The color of a method, by its place among all."""
    return _COLORS[list(names).index(name) % len(_COLORS)]


def marker_of(names: Sequence[str], name: str) -> str:
    """The marker of a method, by its place among all."""
    return _MARKERS[list(names).index(name) % len(_MARKERS)]


def fitted(name: str, width: int = 24, lines: int = 3) -> str:
    r"""A name in lines that fit into a figure, broken after ``_`` and blanks; of an endless one, beginning and end.

    >>> fitted("NACL_weight0p2_gaussian_sigma2_100epochs")
    'NACL_weight0p2_gaussian_\nsigma2_100epochs'
    """
    name = " ".join(name.split())
    if len(name) > width * lines:
        half = width * lines // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    found = [""]
    for piece in re.split(r"(?<=[_\s-])", name):
        for start in range(0, len(piece), width):
            part = piece[start : start + width]
            if found[-1] and len(found[-1]) + len(part) > width:
                found.append("")
            found[-1] += part
    return "\n".join(found)


@contextmanager
def figure_style() -> Iterator[None]:
    """Within, figures look as ours do. A notebook's own style is left alone outside."""
    with matplotlib.rc_context(_PARAMETERS):
        yield


def axes_or_new(ax: Axes | None, *, projection: str | None = None) -> Axes:
    """The axes given, or those of a new figure, which a notebook shows."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # not before it is needed: it chooses a backend

    return plt.figure(figsize=(3.6, 3.6), layout="constrained").add_subplot(projection=projection)
