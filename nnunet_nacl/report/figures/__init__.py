"""The report's figures. Each is a function of its data and the axes to draw on."""

from nnunet_nacl.report.figures._ranks import rank_heatmap, rank_stability
from nnunet_nacl.report.figures._reliability import reliability_curves, reliability_diagram
from nnunet_nacl.report.figures._slices import show_confidence, show_image, show_reference, show_segmentation
from nnunet_nacl.report.figures._style import figure_style
from nnunet_nacl.report.figures._tradeoff import radar, tradeoff_scatter

__all__ = [
    "figure_style",
    "radar",
    "rank_heatmap",
    "rank_stability",
    "reliability_curves",
    "reliability_diagram",
    "show_confidence",
    "show_image",
    "show_reference",
    "show_segmentation",
    "tradeoff_scatter",
]
