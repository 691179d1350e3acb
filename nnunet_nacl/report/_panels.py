"""The report's plots: which plots show a comparison."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import Voxels
from nnunet_nacl.report._frame import Comparison, Results, compare_all
from nnunet_nacl.report._metrics import voxels_text
from nnunet_nacl.report.plots._diagrams import reliability_curves, tradeoff_scatter
from nnunet_nacl.report.plots._style import Panel, draw_panels, save_plot

MakePanels = Callable[[Sequence[Comparison]], list[Panel]]


def reliability_panels(comparison: Comparison, *, overlaid: bool = False) -> list[Panel]:
    """A diagram for each method, or one of all of them; with regions, for each region."""
    voxels = comparison.main
    of_methods = [reliability.curves for reliability in comparison.reliability[voxels].values()]
    of_panels = (
        zip(*of_methods, strict=True)
        if overlaid
        else ([curve] for curves in of_methods for curve in curves)
    )
    return [
        partial(
            reliability_curves,
            curves,
            names=comparison.names,
            title=comparison.dataset,
            where=voxels_text(voxels),
        )
        for curves in of_panels
    ]


def tradeoff_panels(comparison: Comparison) -> list[Panel]:
    """Dice against the metrics that judge calibration; over a set that is asked for, against ECE and CECE."""
    judging = [] if comparison.asked else comparison.judging_metrics
    return [
        partial(tradeoff_scatter, comparison, metric)
        for metric in judging or comparison.paper_metrics
    ]


def panels_of_each(draw: Callable[[Comparison], list[Panel]]) -> MakePanels:
    """The panels of all data sets, one after the other."""
    return lambda comparisons: [panel for comparison in comparisons for panel in draw(comparison)]


PLOTS: dict[str, MakePanels] = {
    "reliability": panels_of_each(reliability_panels),
    "tradeoff": panels_of_each(tradeoff_panels),
}


def write_plot(
    results: Mapping[str, Results],
    kind: str,
    file: str | Path,
    *,
    voxels: Voxels | None = None,
    plots: Mapping[str, MakePanels] = PLOTS,
    by_patient: bool | str = False,
) -> None:
    """Write a plot of the report; a file that exists is replaced.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them.
        kind: one of ``plots``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``.
        voxels: voxel set; by default near, or the first shared one if near was not evaluated. For ``tradeoff``, by
            default that of the judging metrics.
        plots: those that there are; ``nnunet_nacl.paper.report.PLOTS`` has more.
        by_patient: which cases are of one patient, see ``compare``.
    """
    if kind not in plots:
        raise ValueError(f"plot: expected one of {', '.join(plots)}; got {kind}.")
    file = check_output(file, overwrite=True)
    if file.suffix.lower() not in {".svg", ".pdf", ".png"}:
        raise ValueError(f"{file}: expected a name that ends with .svg, .pdf or .png.")
    panels = plots[kind](compare_all(results, voxels, by_patient=by_patient))
    save_plot(draw_panels(panels), file)
