"""The report's tables: what the page shows and ``nnunet_nacl table`` writes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from nnunet_nacl.files import printable
from nnunet_nacl.metrics import BY_LABEL, CALIBRATION_METRICS, LABEL_FREE, Voxels
from nnunet_nacl.report._comparison import Comparison, View, of_each
from nnunet_nacl.report._formats import FORMATS, Column, Table
from nnunet_nacl.report._matching import Comparable, comparisons_of
from nnunet_nacl.report._metrics import DICE, Metric, voxels_text
from nnunet_nacl.report._reviews import Reviews
from nnunet_nacl.report._statistics import LEVEL
from nnunet_nacl.use import JUDGEMENT_LABELS


class _Reviewed(NamedTuple):
    """A column of the table of reviews: a field of ``Judgement``, and how it is shown."""

    name: str
    arrow: str = ""
    signed: bool = False
    needs_fit: bool = False


_REVIEWED = (
    _Reviewed("dice_error", arrow="↓"),
    _Reviewed("dice_bias", signed=True),
    _Reviewed("spearman", arrow="↑"),
    _Reviewed("aurc", arrow="↓"),
    _Reviewed("excess_aurc", arrow="↓"),
    _Reviewed("volume_bias_share", signed=True),
    _Reviewed("interval_coverage", needs_fit=True),
    _Reviewed("interval_width_ml", needs_fit=True),
)
_BOLD = "Bold: significantly better than all others on these cases."
_BY_CHANCE = (
    "By chance up to: ECE that perfect calibration could have on such cases; the interval of an ECE below that lies "
    "too high."
)
_EXPECTED = (
    "If perfectly calibrated: what the same probabilities would score on labels drawn from them."
)


def metric_columns(
    comparison: Comparison,
    metrics: Sequence[Metric],
    *,
    rows: Sequence[str] | None = None,
    expected: bool = False,
) -> list[Column]:
    """Metrics of all methods, in the order ``rows``.

    expected: beside the paper's metrics their values under perfect calibration, if known.
    """
    rows = rows or comparison.names
    columns = []
    for metric in metrics:
        compared = comparison.by_metric[metric]
        estimates = [compared.estimates[name] for name in rows]
        columns.append(
            Column(
                title=metric.title_with_unit,
                values=[estimate.value for estimate in estimates],
                intervals=[estimate.interval for estimate in estimates],
                digits=metric.definition.digits,
                arrow=metric.arrow,
                best=compared.order.best,
            )
        )
        if expected and metric.voxels in BY_LABEL:
            if_calibrated = replace(metric, name=f"{metric.name}_expected")
            means = [comparison.by_metric[if_calibrated].estimates[name].value for name in rows]
            if not np.isnan(means).all():
                columns.append(Column(if_calibrated.title, means))
    return columns


def methods_table(view: View) -> Table:
    """Segmentation, scores and ECE, ordered by the metric that judges calibration."""
    comparison = view.comparison
    judging = view.judging_metrics
    metrics = view.leading_metrics
    ordered = comparison.by_metric[(judging or metrics)[0]].order.names
    rows = ordered + [name for name in comparison.names if name not in ordered]
    columns = metric_columns(comparison, metrics, rows=rows, expected=True)
    notes = [f"Cases: {len(comparison.cases)}."]
    if len(columns) > len(metrics):
        notes.append(_EXPECTED)
    judged = view.judging_set
    if judged is not None and judged in LABEL_FREE:
        chance = [comparison.reliability[judged][name].by_chance[1] for name in rows]
        columns.append(Column(f"ECE {judged} by chance up to", chance))
        notes.append(_BY_CHANCE)
    return Table("Methods", comparison.dataset, " ".join([*notes, _BOLD]), rows, columns)


def paper_table(view: View, *, expected: bool = False) -> Table:
    """A table for a paper: Dice, HD95, ECE and CECE over the voxel sets that labels choose, means over cases."""
    comparison = view.comparison
    metrics = comparison.segmentation_metrics + view.paper_metrics
    is_pooled = any(metric.is_pooled for metric in view.paper_metrics)
    how = "of all cases pooled" if is_pooled else "means over cases"
    note = f"Cases: {len(comparison.cases)}. ECE and CECE: {how}. {_BOLD}"
    if expected:
        note += f" {_EXPECTED}"
    columns = metric_columns(comparison, metrics, expected=expected)
    title = "Segmentation and calibration, as in papers"
    return Table(title, comparison.dataset, note, comparison.names, columns)


def differences_table(view: View) -> Table:
    """Every method minus the baseline: mean, interval and Holm-corrected p."""
    comparison = view.comparison
    if len(comparison.names) < 2:
        raise ValueError(f"differences need two methods; got only {comparison.baseline}.")
    columns = []
    others = comparison.names[1:]
    for metric in dict.fromkeys(view.leading_metrics + view.paper_metrics):
        gaps = comparison.by_metric[metric].differences.values()
        columns.append(
            Column(
                title=metric.title_with_unit,
                values=[gap.value for gap in gaps],
                intervals=[gap.interval for gap in gaps],
                p=[gap.p_holm for gap in gaps],
                digits=metric.definition.digits,
                signed=True,
                arrow=metric.arrow,
            )
        )
    note = (
        f"Method minus {comparison.baseline}, over cases and structures for which both have a value (Dice has none "
        "where neither prediction nor ground truth has the structure). p: Wilcoxon signed-rank test, or for ECE near "
        f"or image a paired bootstrap test, Holm-corrected (number of comparisons: {len(others)}); * below {LEVEL:g}."
    )
    title = f"Differences to {comparison.baseline}"
    return Table(title, comparison.dataset, note, others, columns)


def structures_table(view: View) -> Table:
    """Dice, HD95 and class ECE of each structure."""
    comparison = view.comparison
    voxels = view.main
    columns = []
    error = Metric("ECE", voxels)
    for metric in [*comparison.segmentation_metrics, error]:
        title = f"class {metric.title}" if metric.voxels else metric.title_with_unit
        digits = metric.definition.digits
        for name, values in comparison.of_structures(metric).items():
            columns.append(Column(f"{title} {name}", values, digits=digits, arrow=metric.arrow))
    pooled = " of all cases together" if error.is_pooled else ""
    note = f"Means over cases. Class ECE: of the structure's own probability, {voxels_text(voxels)}{pooled}."
    rows = comparison.structures
    return Table("Structures", comparison.dataset, note, rows, columns, index="structure")


def scores_table(view: View) -> Table:
    """ECE and CECE of all cases pooled, NLL and Brier split in two, and further calibration metrics."""
    comparison = view.comparison
    voxels = view.main
    methods = comparison.reliability[voxels].values()
    columns = []
    for metric in CALIBRATION_METRICS.values():
        if metric.further == "pooled" and any(metric.name in method.pooled for method in methods):
            title = metric.titled()
            columns.append(
                Column(
                    title=f"pooled {title}" if metric.titled(voxels) != title else title,
                    values=[method.pooled.get(metric.name, np.nan) for method in methods],
                    signed=metric.signed,
                )
            )
    for metric in CALIBRATION_METRICS.values():
        if metric.further == "mean":
            estimates = comparison.by_metric[Metric(metric.name, voxels)].estimates.values()
            columns.append(Column(metric.titled(), [estimate.value for estimate in estimates]))
    for score in ("NLL", "Brier"):
        for part, arrow in (("calibration", "↓"), ("discrimination", "↑")):
            values = [getattr(method.parts[score], part) for method in methods]
            columns.append(Column(f"{score} {part}", values, digits=4, arrow=arrow))
    note = (
        "MCE and ACE: means over cases; the others: over the voxels of all cases together. But for what lies within "
        "bins, NLL and Brier are calibration (low is good) − discrimination (high is good) + a part that depends on "
        "the voxels alone, so they and ECE may order methods differently. Over near and union, each method has its "
        "own voxels: compare discrimination over the image."
    )
    title = f"Further metrics {voxels_text(voxels)}"
    return Table(title, comparison.dataset, note, comparison.names, columns)


def cases_table(view: View) -> Table:
    """Dice and ECE of every case and method."""
    comparison = view.comparison
    voxels = view.main
    columns = []
    for name in comparison.names:
        for metric in (DICE, Metric("ECE", voxels)):
            values = comparison.values_of(metric)[name]
            columns.append(Column(f"{metric.name} {name}", list(values)))
    note = f"Dice: mean over the structures. ECE: {voxels_text(voxels)}."
    return Table("Cases", comparison.dataset, note, comparison.cases, columns, index="case")


def review_table(reviews: Reviews) -> Table:
    """The Dice to expect, expected volumes and intervals of each method, judged by the ground truth."""
    frame = pd.DataFrame(map(vars, reviews.judgements.values()))
    columns = []
    for shown in _REVIEWED:
        values = frame[shown.name].astype(float)
        if shown.needs_fit and values.isna().all():
            continue
        title = JUDGEMENT_LABELS[shown.name]
        columns.append(Column(title, list(values), signed=shown.signed, arrow=shown.arrow))
    note = (
        f"All structures of {len(reviews.cases)} cases together. AURC: area under the risk–coverage curve. Volume "
        "(share): the sum of the expected volumes over that of the true ones, minus 1. Interval: the fitted one."
    )
    title = "What the confidences are good for"
    return Table(title, "", note, list(reviews.judgements), columns)


MakeTables = Callable[[Sequence[View]], list[Table]]


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
    results: Comparable,
    name: str = "methods",
    *,
    form: str = "markdown",
    voxels: Voxels | None = None,
    intervals: bool = True,
    digits: int | None = None,
    tables: Mapping[str, MakeTables] = TABLES,
) -> str:
    """A table of the report.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them, or comparisons of ``compare_all``.
        name: one of ``tables``.
        form: ``markdown``, ``latex`` or ``csv``.
        voxels: voxel set of ECE and CECE; by default the table's own.
        intervals: whether to show intervals and p-values.
        digits: after the decimal point; by default the metric's own. CSV has all.
        tables: those that there are; ``nnunet_nacl.paper.report.TABLES`` has more.
    """
    if name not in tables:
        raise ValueError(f"table: expected one of {', '.join(tables)}; got {name}.")
    if form not in FORMATS:
        raise ValueError(f"format: expected one of {', '.join(FORMATS)}; got {form}.")
    made = tables[name]([View(one, voxels) for one in comparisons_of(results)])
    if form == "csv" and len(made) > 1:
        raise ValueError(
            f"format: csv holds one table; got {len(made)} data sets. Give the summaries of one."
        )
    shown = [replace(table, intervals=intervals, digits=digits) for table in made]
    return printable("\n".join(map(FORMATS[form], shown)))
