"""Plots of methods: each draws on the axes that it is given."""

from nnunet_nacl.report.plots._style import color_of, plot_style, save_plot

__all__ = ["color_of", "plot_style", "save_plot"]
