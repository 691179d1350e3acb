"""Single tables and figures of the report, written to files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.files import check_file, whole_file
from nnunet_nacl.report._comparison import Comparison, compare_all
from nnunet_nacl.report._formats import FORMATS
from nnunet_nacl.report._panels import (
    class_panels,
    draw_case,
    paper_rank_panels,
    radar_panels,
    reliability_panels,
    score_rank_panels,
    tradeoff_panels,
)
from nnunet_nacl.report._ranking import ranked_voxels
from nnunet_nacl.report._slices import chosen_cases
from nnunet_nacl.report._tables import TABLES, Table, ranks_table, score_ranks_table
from nnunet_nacl.report.figures._compose import Panel, check_figure_file, grid_figure, write_figure

Results = Mapping[str, Mapping[str, FolderResult]]


def write_table(
    results: Results,
    name: str = "methods",
    *,
    output: str | Path | None = None,
    form: str = "markdown",
    baseline: str | None = None,
    voxels: str | None = None,
) -> str:
    """Return a table of the report as text, and write it to a file if asked to.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        name: one of ``TABLES``.
        output: the file; appears whole or not at all.
        form: ``markdown``, ``latex`` or ``csv``.
        baseline: the method that the others are held against; by default each data set's first.
        voxels: voxel set of ECE and CECE where the table has a single one; by default near, or the first shared one
            if that was not evaluated, and for the paper's rankings the first that labels choose.

    Raises:
        OSError: the file cannot be written.
        ValueError: no such table, format, baseline or voxel set, or nothing to compare.
    """
    for argument, value, known in (("table", name, TABLES), ("format", form, FORMATS)):
        if value not in known:
            raise ValueError(f"{argument}: expected one of {', '.join(known)}; got {value}.")
    if output is not None:
        check_file(output)
    comparisons = compare_all(results, baseline=baseline)
    tables: list[Table]
    if name in {"sum-rank", "mean-case-rank"}:
        chosen = ranked_voxels(comparisons) if voxels is None else voxels
        tables = [ranks_table(comparisons, name, chosen)]  # type: ignore[arg-type]
    elif name == "ranks":
        tables = [score_ranks_table(comparisons)]
    else:
        tables = [TABLES[name](comparison, _voxels(comparison, voxels)) for comparison in comparisons]
    if form == "csv" and len(tables) > 1:
        raise ValueError(f"format: csv holds one table; got {len(tables)} data sets. Give the summaries of one.")
    text = "\n".join(map(FORMATS[form], tables))
    if output is not None:
        with whole_file(Path(output)) as partial:
            partial.write_text(text, encoding="utf-8")
    return text


def plot(
    results: Results,
    kind: str,
    file: str | Path,
    *,
    baseline: str | None = None,
    voxels: str | None = None,
    classes: Sequence[str] | None = None,
    case: str | None = None,
    images: str | Path | None = None,
) -> None:
    """Write a figure of the report.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        kind: ``reliability``, ``classes``, ``tradeoff``, ``radar``, ``ranks`` or ``case``.
        file: ends with ``.svg``, ``.pdf`` or ``.png``; appears whole or not at all.
        baseline: the method that the others are held against.
        voxels: voxel set; by default near, or the first shared one if that was not evaluated. For ``tradeoff``, by
            default what calibration is judged by; for ``ranks``, that of the paper's ranking, by default the first that
            labels choose.
        classes: names of classes, for ``classes``; by default those that any method is worst calibrated in.
        case: its name, for ``case``; by default the one of median ECE.
        images: folder of the images, for ``case``.

    Raises:
        OSError: the file cannot be written, or a case's files cannot be read.
        ValueError: no such kind, voxel set, class or case, or nothing to compare.
    """
    file = check_figure_file(file)
    comparisons = compare_all(results, baseline=baseline)
    chosen = [_voxels(comparison, voxels) for comparison in comparisons]
    pairs = list(zip(comparisons, chosen, strict=True))
    panels: list[Panel]
    if kind == "case":
        write_figure(_case(comparisons, chosen, case, images), file)
        return
    if kind == "reliability":
        panels = [panel for pair in pairs for panel in reliability_panels(*pair)]
    elif kind == "classes":
        panels = [panel for pair in pairs for panel in class_panels(*pair, classes)]
    elif kind == "tradeoff":
        panels = [panel for comparison, one in pairs for panel in tradeoff_panels(comparison, voxels and one)]
    elif kind == "radar":
        panels = [panel for pair in pairs for panel in radar_panels(*pair)]
    elif kind == "ranks":
        paper = ranked_voxels(comparisons) if voxels is None else voxels
        panels = [*score_rank_panels(comparisons), *paper_rank_panels(comparisons, paper)]
    else:
        raise ValueError(f"kind: expected reliability, classes, tradeoff, radar, ranks or case; got {kind}.")
    write_figure(grid_figure(panels, columns=2 if kind == "ranks" else 3), file)


def _case(
    comparisons: Sequence[Comparison], chosen: Sequence[str], case: str | None, images: str | Path | None
) -> Figure:
    for comparison, voxels in zip(comparisons, chosen, strict=True):
        roles = chosen_cases(comparison, voxels)
        name = roles.get("median", next(iter(roles.values()), None)) if case is None else case
        if name is not None and name in comparison.cases:
            return draw_case(comparison, name, voxels, images=images).figure
    raise ValueError(f"case: expected one that all methods share; got {case}.")


def _voxels(comparison: Comparison, voxels: str | None) -> str:
    if voxels is None:
        return comparison.main
    if voxels not in comparison.voxels:
        raise ValueError(f"voxels: expected one of {', '.join(comparison.voxels)}; got {voxels}.")
    return voxels
