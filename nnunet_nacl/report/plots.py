"""Plots that compare methods, how several stand side by side, and how they are saved."""

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.files import check_output, whole_file
from nnunet_nacl.metrics import Estimate, Voxels
from nnunet_nacl.report._choice import DICE, Metric, voxels_text
from nnunet_nacl.report._comparison import Comparable, Comparison, comparisons_of, of_each
from nnunet_nacl.report._reliability import Curve
from nnunet_nacl.report._tables import number_text
from nnunet_nacl.typing import Floats

__all__ = [
    "INK",
    "PLOTS",
    "Panel",
    "draw_panels",
    "draw_point",
    "labelled",
    "legend_below",
    "reach",
    "reliability_panels",
    "save_plot",
    "style_of",
    "to_svg",
    "tradeoff_panels",
    "wrapped",
    "write_plot",
]

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
_FAINT = 0.3  # opacity of bins that hold hardly any voxels
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
    """Color and marker of a method, by its position among all names."""
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


def reliability_curves(
    names: Sequence[str], curves: Sequence[Curve], voxels: Voxels, title: str, ax: Axes
) -> None:
    """Curves of methods in one diagram, and each bin's share of the voxels below.

    Dashed lines: where the curves would lie if perfectly calibrated.
    """
    whole: Any = ax.get_subplotspec()
    grid = whole.subgridspec(2, 1, height_ratios=(1, 0.27))
    ax.set_subplotspec(grid[0])
    below = ax.figure.add_subplot(grid[1])
    perfect: Any = {"linestyle": "--", "linewidth": 0.8, "label": "_perfect"}
    if any(curve.expected is None for curve in curves):
        ax.plot([0, 1], [0, 1], color=INK, **perfect)
    for curve in curves:
        style: Any = {**style_of(names, curve.name), "markersize": 3.5, "linewidth": 1.2}
        color = style["color"]
        solid = ~curve.is_faint
        if curve.expected is not None:
            x, y = curve.expected
            known = ~np.isnan(y)
            ax.plot(x[known], y[known], color=color if len(curves) > 1 else INK, **perfect)
        x = curve.confidence[solid]
        ax.fill_between(
            x, curve.low[solid], curve.high[solid], color=color, alpha=0.15, linewidth=0
        )
        filled = curve.share > 0
        confidence = curve.confidence[filled]
        accuracy = curve.accuracy[filled]
        faint = curve.is_faint[filled]
        # A mark on the frame, such as one at a confidence of 1, is drawn whole
        style["clip_on"] = False
        ax.plot(confidence, accuracy, alpha=_FAINT, markevery=faint, label="_everywhere", **style)
        label = f"{labelled(curve.name)} ({number_text(curve.error)})"
        ax.plot(confidence, np.where(faint, np.nan, accuracy), label=label, **style)
        below.stairs(curve.share, curve.edges, color=color, fill=len(curves) == 1, linewidth=1.3)
    titles = "\n".join(wrapped(text, 40) for text in (title, curves[0].what) if text)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy", title=titles)
    ax.tick_params(labelbottom=False)
    below.set(
        xlim=(0, 1),
        ylim=(0, 1),
        yticks=(0, 1),
        xlabel=f"confidence, {voxels_text(voxels)}",
        ylabel="share of\nvoxels",
    )
    legend_below(below, 0.6, of=ax, fontsize=7.5, title="method (pooled ECE)")


def tradeoff_scatter(comparison: Comparison, metric: Metric, title: str, ax: Axes) -> None:
    """Dice against a calibration metric, with 95 % intervals; the best corner is at the upper left."""
    dices = comparison.estimates[DICE]
    for name, error in comparison.estimates[metric].items():
        dice = dices[name]
        if not np.isnan(error.value + dice.value):
            style = style_of(comparison.names, name)
            draw_point(ax, error, dice, label=labelled(name), **style)
    ax.margins(0.12)
    ax.locator_params(nbins=5)
    ax.set(
        xlabel=f"{metric.axis} (better: left)",
        ylabel="Dice (better: up)",
        title=wrapped(title, 40),
    )
    legend_below(ax)


def draw_point(ax: Axes, x: Estimate, y: Estimate, **style: Any) -> None:
    """Draw a point with its intervals."""
    style |= {"markersize": 7, "linewidth": 0.8, "linestyle": "none"}
    ax.errorbar(x.value, y.value, reach(y), reach(x), **style)


def reach(estimate: Estimate) -> Floats:
    """Return how far the interval reaches below and above the value, as Matplotlib's error bars: (2, 1)."""
    low, high = estimate.interval
    # A percentile interval need not contain the value; error bars may not be negative.
    return np.maximum([[estimate.value - low], [high - estimate.value]], 0)


def reliability_panels(
    comparison: Comparison,
    voxels: Voxels | None = None,
    *,
    overlaid: bool = False,
    title: str | None = None,
) -> list[Panel]:
    """Return a diagram for each method, or one of all of them; with regions, for each region."""
    voxels = voxels or comparison.choice.main
    of_methods = [method.curves for method in comparison.reliability[voxels].values()]
    alone = ([curve] for curves in of_methods for curve in curves)
    title = comparison.dataset if title is None else title
    return [
        partial(reliability_curves, comparison.names, curves, voxels, title)
        for curves in (zip(*of_methods, strict=True) if overlaid else alone)
    ]


def tradeoff_panels(comparison: Comparison, *, title: str | None = None) -> list[Panel]:
    """Dice against the metrics that judge calibration; over a set that is asked for, against ECE and CECE."""
    title = comparison.dataset if title is None else title
    judging = [] if comparison.chosen_voxels else comparison.choice.judging
    return [
        partial(tradeoff_scatter, comparison, metric, title)
        for metric in judging or comparison.choice.paper
    ]


MakePanels = Callable[[Sequence[Comparison]], list[list[Panel]]]
"""Gives the panels of each data set, or of all together."""
PLOTS: dict[str, MakePanels] = {
    "reliability": of_each(reliability_panels),
    "tradeoff": of_each(tradeoff_panels),
}


def write_plot(
    results: Comparable,
    kind: str,
    file: str | Path,
    *,
    voxels: Voxels | None = None,
    plots: Mapping[str, MakePanels] = PLOTS,
) -> None:
    """Write a plot of the report; a file that exists is replaced.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them, or comparisons of ``compare_all``.
        kind: one of ``plots``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``.
        voxels: voxel set of all that is drawn. By default that of the metrics of each plot; for ``reliability``, near.
        plots: those that there are; ``nnunet_nacl.paper.report.PLOTS`` has more.
    """
    file = check_output(file, overwrite=True)
    made = plots[kind](comparisons_of(results, voxels))
    save_plot(draw_panels([panel for panels in made for panel in panels]), file)
