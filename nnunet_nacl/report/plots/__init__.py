"""Plots of methods: each draws on the axes that it is given."""

from nnunet_nacl.report.plots._diagrams import draw_point, reach
from nnunet_nacl.report.plots._style import (
    INK,
    Panel,
    draw_panels,
    labelled,
    legend_below,
    method_color,
    plot_style,
    save_plot,
    style_of,
    to_svg,
    wrapped,
)

__all__ = [
    "INK",
    "Panel",
    "draw_panels",
    "draw_point",
    "labelled",
    "legend_below",
    "method_color",
    "plot_style",
    "reach",
    "save_plot",
    "style_of",
    "to_svg",
    "wrapped",
]
