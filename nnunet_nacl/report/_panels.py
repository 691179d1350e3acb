"""The report's plots: which plots show a comparison."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import Voxels
from nnunet_nacl.report._frame import Comparison, Results, compare_all
from nnunet_nacl.report._metrics import voxels_text
from nnunet_nacl.report._reliability import top_label_curves
from nnunet_nacl.report.plots._diagrams import reliability_curves, tradeoff_scatter
from nnunet_nacl.report.plots._style import Panel, draw_panels, save_plot

DrawAll = Callable[[Sequence[Comparison], Voxels | None], list[Panel]]


def reliability_panels(
    comparison: Comparison, voxels: Voxels | None = None, *, overlaid: bool = False
) -> list[Panel]:
    """A diagram for each method, or one of all of them; with regions, for each region."""
    names = comparison.names
    voxels = voxels or comparison.main
    of_methods = [top_label_curves(comparison, name, voxels) for name in names]
    of_panels = (
        zip(*of_methods, strict=True)
        if overlaid
        else ([curve] for curves in of_methods for curve in curves)
    )
    title = comparison.dataset
    where = voxels_text(voxels)
    return [
        partial(reliability_curves, curves, names=names, title=title, where=where)
        for curves in of_panels
    ]


def tradeoff_panels(comparison: Comparison, voxels: Voxels | None = None) -> list[Panel]:
    """Dice against the metrics that judge calibration; over a given voxel set, against ECE and CECE."""
    metrics = (voxels is None and comparison.judging_metrics()) or comparison.paper_metrics(voxels)
    return [partial(tradeoff_scatter, comparison, metric) for metric in metrics]


def panels_of_each(draw: Callable[[Comparison, Voxels | None], list[Panel]]) -> DrawAll:
    """The panels of all data sets, one after the other."""
    return lambda comparisons, voxels: [
        panel for comparison in comparisons for panel in draw(comparison, voxels)
    ]


PLOTS: dict[str, DrawAll] = {
    "reliability": panels_of_each(reliability_panels),
    "tradeoff": panels_of_each(tradeoff_panels),
}


def write_plot(
    results: Mapping[str, Results],
    kind: str,
    file: str | Path,
    *,
    voxels: Voxels | None = None,
    plots: Mapping[str, DrawAll] = PLOTS,
) -> None:
    """Write a plot of the report; a file that exists is replaced.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them.
        kind: one of ``plots``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``.
        voxels: voxel set; by default near, or the first shared one if near was not evaluated. For ``tradeoff``, by
            default that of the judging metrics.
        plots: those that there are; ``nnunet_nacl.paper.report.PLOTS`` has more.
    """
    file = check_output(file, overwrite=True)
    if file.suffix.lower() not in {".svg", ".pdf", ".png"}:
        raise ValueError(f"{file}: expected a name that ends with .svg, .pdf or .png.")
    panels = plots[kind](compare_all(results, voxels), voxels)
    save_plot(draw_panels(panels), file)
