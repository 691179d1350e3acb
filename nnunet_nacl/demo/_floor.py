"""The demo's picture: each method beside the true posterior, which no model can be better than."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.report import compare, top_label_curves
from nnunet_nacl.report.plots import color_of, plot_style, reliability_curves, save_plot


def draw_floor(methods: Mapping[str, FolderResult], truth: FolderResult, file: Path, *, name: str) -> None:
    """Reliability near the structures, and NLL per foreground voxel with that of the true posterior as the floor.

    Args:
        methods: name -> result.
        truth: of the true posterior.
        file: the picture, PNG, SVG or PDF; replaced if it is one of ours.
        name: what to call the true posterior.
    """
    comparison = compare({**methods, name: truth})
    scores = {one.name: one.result.pooled("image")["NLL_per_foreground"] for one in comparison.methods}
    floor = scores.pop(name)
    with plot_style():
        figure = Figure(figsize=(7.6, 3.6), layout="constrained")
        curves, bars = figure.subplots(1, 2, width_ratios=(3, 2))
        reliability_curves([top_label_curves(comparison, one, "near")[0] for one in comparison.names], curves)
        curves.set_title("Reliability near the structures")
        bars.bar(list(scores), list(scores.values()), color=[color_of(comparison.names, one) for one in scores])
        bars.axhline(floor, color=color_of(comparison.names, name), linestyle="--")
        bars.set(
            ylabel="NLL per foreground voxel",
            title=f"Dashed: {floor:.3f}, that of the\n{name}, the lowest to expect",
        )
        save_plot(figure, file)
