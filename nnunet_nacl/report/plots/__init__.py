"""Plots of methods: each draws on the axes that it is given."""

from nnunet_nacl.report.plots._methods import reliability_curves
from nnunet_nacl.report.plots._style import color_of, plot_style, save_plot, wrapped

__all__ = ["color_of", "plot_style", "reliability_curves", "save_plot", "wrapped"]
