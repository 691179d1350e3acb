"""The report's plots: which plots show a comparison."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import Voxels
from nnunet_nacl.report._comparison import View, of_each
from nnunet_nacl.report._matching import Comparable, comparisons_of
from nnunet_nacl.report._metrics import DICE, voxels_text
from nnunet_nacl.report.plots._diagrams import reliability_curves, tradeoff_scatter
from nnunet_nacl.report.plots._style import Panel, draw_panels, save_plot

MakePanels = Callable[[Sequence[View]], list[list[Panel]]]
"""Gives the panels of each data set, or of all together."""


def reliability_panels(
    view: View, *, overlaid: bool = False, title: str | None = None
) -> list[Panel]:
    """A diagram for each method, or one of all of them; with regions, for each region."""
    comparison = view.comparison
    of_methods = [method.curves for method in comparison.reliability[view.main].values()]
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
            title=comparison.dataset if title is None else title,
            where=voxels_text(view.main),
        )
        for curves in of_panels
    ]


def case_panels(view: View, case: str) -> list[Panel]:
    """A diagram of all methods on a single case; with regions, for each region."""
    alone = replace(view, comparison=view.comparison.of_case(case))
    return reliability_panels(alone, overlaid=True, title=case)


def tradeoff_panels(view: View) -> list[Panel]:
    """Dice against the metrics that judge calibration; over a set that is asked for, against ECE and CECE."""
    by_metric = view.comparison.by_metric
    title = view.comparison.dataset
    judging = [] if view.asked else view.judging_metrics
    return [
        partial(tradeoff_scatter, by_metric[DICE], by_metric[metric], title=title)
        for metric in judging or view.paper_metrics
    ]


PLOTS: dict[str, MakePanels] = {
    "reliability": of_each(reliability_panels),
    "tradeoff": of_each(tradeoff_panels),
}


def write_plot(
    results: Comparable,
    kind: str,
    file: str | Path,
    *,
    voxels: Voxels | None = None,
    plots: Mapping[str, MakePanels] = PLOTS,
) -> None:
    """Write a plot of the report; a file that exists is replaced.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them, or comparisons of ``compare_all``.
        kind: one of ``plots``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``.
        voxels: voxel set; by default near, or the first shared one if near was not evaluated. For ``tradeoff``, by
            default that of the judging metrics.
        plots: those that there are; ``nnunet_nacl.paper.report.PLOTS`` has more.
    """
    if kind not in plots:
        raise ValueError(f"plot: expected one of {', '.join(plots)}; got {kind}.")
    file = check_output(file, overwrite=True)
    if file.suffix.lower() not in {".svg", ".pdf", ".png"}:
        raise ValueError(f"{file}: expected a name that ends with .svg, .pdf or .png.")
    made = plots[kind]([View(one, voxels) for one in comparisons_of(results)])
    save_plot(draw_panels([panel for panels in made for panel in panels]), file)
