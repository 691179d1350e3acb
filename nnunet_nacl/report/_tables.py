"""The report's tables, which the page shows and ``nnunet_nacl table`` writes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nnunet_nacl.metrics import (
    BY_LABEL,
    CALIBRATION_METRICS,
    LABEL_FREE,
    PAPER_METRICS,
    Voxels,
    split_scores,
)
from nnunet_nacl.report._choice import Metric, voxels_text
from nnunet_nacl.report._comparison import Comparison, of_each
from nnunet_nacl.report._formats import ARROWS, FORMATS, Cell, Table, column

_CALIBRATED = "if perfectly calibrated"
_EXPECTED = f"{_CALIBRATED.capitalize()}: what the same probabilities would score on labels drawn from them."
_BESIDE = {Metric(f"{name}_expected", one).title for name in PAPER_METRICS for one in BY_LABEL}
"""Heads of columns that stand beside the metric whose values under perfect calibration they are."""


def page_heads(table: Table) -> list[str]:
    """Return the columns' heads on a page: of a value if perfectly calibrated, not the metric beside it again."""
    shown = (_CALIBRATED if head in _BESIDE else head for head in table.columns)
    return [re.sub(" ([↑↓]|perfectly)", "\N{NO-BREAK SPACE}\\1", head) for head in shown]


def metric_columns(
    comparison: Comparison,
    metrics: Sequence[Metric],
    rows: Sequence[str],
    *,
    expected: bool = False,
) -> dict[str, list[Cell]]:
    """Make a column for each metric, of the methods ``rows``.

    With ``expected``, errors over sets that labels choose stand beside their values under perfect calibration.
    """
    columns = {}
    for metric in metrics:
        estimates = comparison.estimates[metric]
        best = comparison.order_by(metric).best
        columns[metric.head] = [
            Cell(
                estimates[name].value,
                estimates[name].interval,
                digits=metric.definition.digits,
                is_bold=name == best,
            )
            for name in rows
        ]
        if expected and metric.voxels in BY_LABEL:
            if_calibrated = replace(metric, name=f"{metric.name}_expected")
            means = [comparison.estimates[if_calibrated][name].value for name in rows]
            if not np.isnan(means).all():
                columns[if_calibrated.title] = column(means)
    return columns


def methods_table(comparison: Comparison) -> Table:
    """Make the table of segmentation, scores and ECE, ordered by the metric that judges calibration."""
    metrics = comparison.choice.leading
    ordered = comparison.order_by(comparison.choice.judging[0]).names
    rows = ordered + [name for name in comparison.names if name not in ordered]
    columns = metric_columns(comparison, metrics, rows, expected=True)
    notes = [f"Cases: {len(comparison.cases)}."]
    if len(columns) > len(metrics):
        notes.append(_EXPECTED)
    voxels = comparison.choice.main
    if voxels in LABEL_FREE:
        chance = (comparison.reliability[voxels][name].by_chance[1] for name in rows)
        columns[f"ECE {voxels} by chance up to"] = column(chance)
        notes.append(
            "By chance up to: ECE that perfect calibration could have on such cases; the interval of an ECE below that "
            "lies too high."
        )
    return Table("Methods", comparison.dataset, " ".join(notes), rows, columns)


def paper_table(
    comparison: Comparison, *, expected: bool = False, rows: Sequence[str] | None = None
) -> Table:
    """Make the table of papers: means over cases of Dice, HD95, ECE and CECE over sets that labels choose."""
    metrics = comparison.choice.segmentation + comparison.choice.paper
    is_pooled = any(
        metric.voxels in metric.definition.pooled_over for metric in comparison.choice.paper
    )
    how = "of all cases pooled" if is_pooled else "means over cases"
    note = f"Cases: {len(comparison.cases)}. ECE and CECE: {how}."
    if expected:
        note += f" {_EXPECTED}"
    rows = list(rows or comparison.names)
    columns = metric_columns(comparison, metrics, rows, expected=expected)
    title = "Segmentation and calibration, as in papers"
    return Table(title, comparison.dataset, note, rows, columns)


def differences_table(comparison: Comparison) -> Table:
    """Make the table of every method minus the baseline: value, interval and Holm-corrected p."""
    baseline, *others = comparison.names
    columns = {
        metric.head: [
            Cell(
                gap.value,
                gap.interval,
                gap.p_holm,
                is_significant=gap.is_significant(),
                digits=metric.definition.digits,
                signed=True,
            )
            for gap in gaps.values()
        ]
        for metric, gaps in comparison.differences.items()
    }
    note = (
        f"Method minus {baseline}. Means: over cases and structures for which both have a value (Dice has none where "
        "neither prediction nor ground truth has the structure); scores and pooled errors: over all cases. "
        "p: Wilcoxon signed-rank test, or for ECE near "
        "or image a t-test with the jackknife's standard error, "
        f"Holm-corrected (number of comparisons: {len(others)})."
    )
    return Table(f"Differences to {baseline}", comparison.dataset, note, others, columns)


def structures_table(comparison: Comparison) -> Table:
    """Make the table of Dice, HD95 and class ECE of each structure."""
    error = comparison.choice.error
    columns = {}
    for metric, values in comparison.by_structure.items():
        title = f"class {metric.head}" if metric == error else metric.head
        for name in comparison.names:
            numbers = column(values[name], digits=metric.definition.digits)
            columns[f"{title.rstrip(ARROWS)} {name}"] = numbers
    pooled = " of all cases together" if error.voxels in error.definition.pooled_over else ""
    note = f"Means over cases. Class ECE: of the structure's own probability, {voxels_text(error.voxels)}{pooled}."
    rows = list(comparison.by_structure[error].index)
    return Table("Structures", comparison.dataset, note, rows, columns, index="structure")


def scores_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Make the table of further metrics: pooled ones, means over cases, and the two parts of NLL and Brier."""
    voxels = voxels or comparison.choice.main
    methods = comparison.reliability[voxels].values()
    columns = {}
    for metric in sorted(CALIBRATION_METRICS.values(), key=lambda one: one.further == "mean"):
        title = metric.titled()
        if metric.further == "mean":
            estimates = comparison.estimates[Metric(metric.name, voxels)].values()
            columns[title] = column(estimate.value for estimate in estimates)
        elif metric.further and any(metric.name in method.pooled for method in methods):
            head = f"pooled {title}" if metric.titled(voxels) != title else title
            values = (method.pooled.get(metric.name, np.nan) for method in methods)
            columns[head] = column(values, signed=metric.signed)
    parts = [split_scores(method.tables.sum()) for method in methods]
    for score in ("NLL", "Brier"):
        for part, arrow in (("calibration", "↓"), ("discrimination", "↑")):
            values = (getattr(of_method[score], part) for of_method in parts)
            columns[f"{score} {part} {arrow}"] = column(values, digits=4)
    note = (
        "MCE and ACE: means over cases; the others: over the voxels of all cases together. But for what lies within "
        "bins, NLL and Brier are calibration (low is good) − discrimination (high is good) + a part that depends on "
        "the voxels alone, so they and ECE may order methods differently. Over near and union, each method has its "
        "own voxels: compare discrimination over the image."
    )
    title = f"Further metrics {voxels_text(voxels)}"
    return Table(title, comparison.dataset, note, comparison.names, columns)


def cases_table(comparison: Comparison) -> Table:
    """Make the table of Dice and ECE of every case and method."""
    columns = {
        f"{metric.name} {name}": column(values[name])
        for name in comparison.names
        for metric, values in comparison.by_case.items()
    }
    note = f"Dice: mean over the structures. ECE: {voxels_text(comparison.choice.main)}."
    return Table("Cases", comparison.dataset, note, comparison.cases, columns, index="case")


MakeTables = Callable[[Sequence[Comparison]], list[Table]]


TABLES: dict[str, MakeTables] = {
    "methods": of_each(methods_table),
    "differences": of_each(differences_table),
    "ece": of_each(paper_table),
    "expected": of_each(partial(paper_table, expected=True)),
    "structures": of_each(structures_table),
    "scores": of_each(scores_table),
    "cases": of_each(cases_table),
}


def table_text(
    comparisons: Sequence[Comparison],
    name: str = "methods",
    *,
    form: str = "markdown",
    intervals: bool = True,
    digits: int | None = None,
    tables: Mapping[str, MakeTables] = TABLES,
) -> str:
    """Return a table of the report.

    Args:
        comparisons: of each data set, as ``compare_all`` returns them; ``Comparison.over`` chooses the voxel set.
        name: one of ``tables``.
        form: ``markdown``, ``latex`` or ``csv``.
        intervals: whether to show intervals and p-values.
        digits: after the decimal point; by default the metric's own. CSV has all.
        tables: those that there are; ``nnunet_nacl.paper.report.TABLES`` has more.
    """
    made = tables[name](comparisons)
    if form == "csv" and len(made) > 1:
        raise ValueError(
            f"format: csv holds one table; got {len(made)} data sets. Give the summaries of one."
        )
    style: dict[str, Any] = {}
    if not intervals:
        style = {"interval": (np.nan, np.nan), "p": np.nan}
    if digits is not None:
        style["digits"] = digits
    texts = []
    for table in made:
        columns = {
            head: [replace(cell, **style) for cell in cells]
            for head, cells in table.columns.items()
        }
        texts.append(FORMATS[form](replace(table, columns=columns)))
    return "\n".join(texts)
