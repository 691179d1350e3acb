"""Heat maps of rankings."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from nnunet_nacl.report._ranking import Ranking
from nnunet_nacl.report.figures._style import axes_or_new, fitted

_COLORS = "cividis"


def rank_heatmap(data: Ranking, ax: Axes | None = None) -> Axes:
    """Ranks of the methods by metric and overall, the best method on top; dark is good.

    Args:
        data: a ranking.
        ax: where to draw; by default a new figure.
    """
    order = np.argsort(data.overall, kind="stable")
    values = np.column_stack([data.by_metric, data.overall])[order]
    spread = values.max(0) - values.min(0)
    shade = (values - values.min(0)) / np.where(spread > 0, spread, 1)
    digits = 0 if np.allclose(values, values.round()) else 1 if data.scheme == "sum-rank" else 2
    texts = [[f"{value:.{digits}f}" for value in row] for row in values]
    ax = _heat_map(shade, texts, [data.methods[row] for row in order], [*data.metrics, "overall"], ax)
    ax.axvline(len(data.metrics), color="white", linewidth=3)
    ax.set_title(data.scheme)
    return ax


def rank_stability(data: Ranking, ax: Axes | None = None) -> Axes:
    """How often each method has each place when the cases are drawn anew, in per cent; dark is often.

    Args:
        data: a ranking.
        ax: where to draw; by default a new figure.
    """
    order = np.argsort(data.overall, kind="stable")
    values = data.stability[order]
    texts = [[f"{100 * value:.0f}" for value in row] for row in values]
    places = [str(place) for place in range(1, len(data.methods) + 1)]
    ax = _heat_map(1 - values, texts, [data.methods[row] for row in order], places, ax)
    ax.set(title=f"{data.scheme}: % of resamples", xlabel="place")
    return ax


def _heat_map(
    shade: NDArray[np.float64], texts: list[list[str]], rows: list[str], columns: list[str], ax: Axes | None
) -> Axes:
    """Cells shaded by values from 0 to 1, with a text in each."""
    ax = axes_or_new(ax)
    # Not imshow: cells that are paths stay sharp and small in an SVG file.
    ax.pcolormesh(shade, cmap=_COLORS, vmin=0, vmax=1, edgecolors="white", linewidth=1)
    colors: Any = matplotlib.colormaps[_COLORS]
    for (row, column), value in np.ndenumerate(shade):
        ax.text(
            column + 0.5,
            row + 0.5,
            texts[row][column],
            ha="center",
            va="center",
            fontsize=8,
            color="#ffffff" if _luminance(colors(value)[:3]) < 0.179 else "#000000",  # whichever has more contrast
        )
    ax.invert_yaxis()
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=35 if max(map(len, columns)) > 3 else 0, ha="right")
    ax.set_yticks(np.arange(len(rows)) + 0.5, [fitted(row) for row in rows])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _luminance(color: tuple[float, float, float]) -> float:
    """WCAG's relative luminance of an sRGB color."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
