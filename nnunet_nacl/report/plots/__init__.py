"""Plots for notebooks: each is a function of its data and, if you like, the axes to draw on."""

from nnunet_nacl.report.plots._methods import (
    radar,
    rank_heatmap,
    rank_stability,
    reliability_curves,
    reliability_diagram,
    tradeoff_scatter,
)
from nnunet_nacl.report.plots._style import color_of, plot_style, save_plot, wrapped

__all__ = [
    "color_of",
    "plot_style",
    "radar",
    "rank_heatmap",
    "rank_stability",
    "reliability_curves",
    "reliability_diagram",
    "save_plot",
    "tradeoff_scatter",
    "wrapped",
]
