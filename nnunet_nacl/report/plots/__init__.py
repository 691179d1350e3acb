"""Plots of methods: each draws on the axes that it is given."""

from nnunet_nacl.report.plots._methods import (
    dice_scatter,
    radar,
    rank_heatmap,
    tradeoff_scatter,
)
from nnunet_nacl.report.plots._style import (
    INK,
    color_of,
    draw_panels,
    plot_style,
    save_plot,
    to_svg,
)

__all__ = [
    "INK",
    "color_of",
    "dice_scatter",
    "draw_panels",
    "plot_style",
    "radar",
    "rank_heatmap",
    "save_plot",
    "to_svg",
    "tradeoff_scatter",
]
