"""Plots for notebooks: each is a function of its data and, if you like, the axes to draw on."""

from nnunet_nacl.report.plots._methods import (
    radar,
    rank_heatmap,
    rank_stability,
    reliability_curves,
    tradeoff_scatter,
)
from nnunet_nacl.report.plots._review import dice_scatter, risk_coverage_curves, volume_differences
from nnunet_nacl.report.plots._style import color_of, plot_style, save_plot, wrapped

__all__ = [
    "color_of",
    "dice_scatter",
    "plot_style",
    "radar",
    "rank_heatmap",
    "rank_stability",
    "reliability_curves",
    "risk_coverage_curves",
    "save_plot",
    "tradeoff_scatter",
    "volume_differences",
    "wrapped",
]
