"""The report's tables: what the page shows and ``nnunet_nacl table`` writes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from nnunet_nacl.files import csv_text, printable
from nnunet_nacl.metrics import (
    CALIBRATION_METRICS,
    Interval,
    Voxels,
    expected_calibration_error,
    mean_of_known,
)
from nnunet_nacl.report._frame import Comparison, Results, compare_all
from nnunet_nacl.report._metrics import DICE, LABEL_FREE, Metric, number_text, voxels_text
from nnunet_nacl.report._reliability import error_by_chance, split_scores
from nnunet_nacl.report._reviews import Reviews
from nnunet_nacl.report._statistics import LEVEL, differences, order_of
from nnunet_nacl.typing import Mask

_LATEX = str.maketrans(
    {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$", "–": "--"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
)
_LATEX_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)
_REVIEWED = (
    ("dice_error", "Dice MAE", "↓"), ("dice_bias", "bias", ""), ("spearman", "Spearman", "↑"), ("aurc", "AURC", "↓"),
    ("excess_aurc", "excess AURC", "↓"), ("volume_bias_share", "volume bias (share)", ""),
    ("interval_coverage", "interval held", ""), ("interval_width_ml", "width (ml)", ""),
)  # fmt: skip
_BOLD = "Bold: significantly better than all others on these cases."


@dataclass(frozen=True)
class Column:
    """Numbers, one for each row, NaN where not defined; ``best`` is the row significantly better than all others."""

    title: str
    values: Sequence[float]
    intervals: Sequence[Interval] | None = None
    p: Sequence[float] | None = None
    digits: int = 3
    signed: bool = False
    arrow: str = ""
    best: str | None = None

    def texts(self, *, intervals: bool, digits: int | None) -> list[str]:
        """The text of each number: ``0.812 (0.800 to 0.824)``, or with a test ``−0.010*, p = 0.012``."""
        digits = self.digits if digits is None else digits
        shown = []
        for row, value in enumerate(self.values):
            p = np.nan if self.p is None else self.p[row]
            text = number_text(value, digits, signed=self.signed) + "*" * bool(p < LEVEL)
            if intervals and self.intervals is not None and not np.isnan(self.intervals[row][0]):
                ends = (number_text(end, digits, signed=self.signed) for end in self.intervals[row])
                text += f" ({' to '.join(ends)})"
            shown.append(text if np.isnan(p) or not intervals else f"{text}, {p_text(p)}")
        return shown


@dataclass(frozen=True)
class Table:
    """Numbers by row and column, of one or several data sets; ``index`` says what the rows are.

    ``intervals``: whether intervals and p-values are shown; ``digits``: after the decimal point, by default each
    column's own.
    """

    title: str
    dataset: str
    note: str
    rows: list[str]
    columns: list[Column]
    index: str = "method"
    intervals: bool = True
    digits: int | None = None

    @property
    def heading(self) -> str:
        """The title with the data set."""
        return f"{self.title}: {self.dataset}" if self.dataset else self.title

    @property
    def caption(self) -> str:
        """The note, and what the intervals are, if any is shown."""
        if self.intervals and any(column.intervals is not None for column in self.columns):
            return f"{self.note} In parentheses: 95 % bootstrap intervals."
        return self.note

    def values(self) -> pd.DataFrame:
        """The unrounded numbers; ends of intervals and p-values have columns of their own."""
        found: dict[str, Sequence[float]] = {}
        for column in self.columns:
            found[column.title] = column.values
            if not self.intervals:
                continue
            if column.intervals is not None and not np.isnan(column.intervals).all():
                found[f"{column.title} low"] = [low for low, _ in column.intervals]
                found[f"{column.title} high"] = [high for _, high in column.intervals]
            if column.p is not None and not np.isnan(column.p).all():
                found[f"{column.title} p"] = column.p
        return pd.DataFrame(found, pd.Index(self.rows, name=self.index), dtype=np.float64)

    def shown(self) -> pd.DataFrame:
        """The texts of the cells; titles have their arrows."""
        texts = {
            f"{c.title} {c.arrow}".rstrip(): c.texts(intervals=self.intervals, digits=self.digits)
            for c in self.columns
        }
        return pd.DataFrame(texts, pd.Index(self.rows, name=self.index))

    def bold(self) -> Mask:
        """Which cells are bold."""
        return np.array([[column.best == row for column in self.columns] for row in self.rows])


def p_text(p: float) -> str:
    """``p = 0.012`` or ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def to_markdown(table: Table) -> str:
    """A GitHub Markdown table with its title and note."""
    texts = table.shown().map(_escaped)
    texts = texts.mask(table.bold(), "**" + texts + "**").rename(_escaped).reset_index()
    rows = [
        [_escaped(head) for head in texts.columns],
        ["---"] * len(texts.columns),
        *texts.to_numpy().tolist(),
    ]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"**{_escaped(table.heading)}**\n\n{lines}\n\n{_escaped(table.caption)}\n"


def _escaped(text: str) -> str:
    return re.sub(r"([\\|*_<>`~$\[\]])", r"\\\1", " ".join(text.split()).replace("&", "&amp;"))


def to_latex(table: Table) -> str:
    r"""A LaTeX table for ``\usepackage{booktabs}``."""
    style = table.shown().style.format(escape="latex")
    style = style.format_index(escape="latex", axis=0).format_index(escape="latex", axis=1)
    style = style.apply(lambda _: np.where(table.bold(), "textbf:--rwrap;", ""), axis=None)
    caption = f"{table.heading}. {table.caption}".translate(_LATEX_SPECIAL)
    label = f"tab:{re.sub(r'[^a-z0-9]+', '-', table.heading.lower())}"
    layout = {"position_float": "centering", "column_format": "l" + "c" * len(table.columns)}
    text: str = style.to_latex(hrules=True, caption=caption, label=label, **layout)
    return text.translate(_LATEX)


def to_csv(table: Table) -> str:
    """CSV with unrounded numbers, empty if not defined."""
    texts = table.values().map("{:.10g}".format).replace("nan", "").reset_index()
    return csv_text([texts.columns, *texts.to_numpy()], lineterminator="\n")


FORMATS: dict[str, Callable[[Table], str]] = {
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
}


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
        estimates = comparison.estimates(metric)
        columns.append(
            Column(
                title=_with_unit(metric),
                values=[estimates[name].value for name in rows],
                intervals=[estimates[name].interval for name in rows],
                digits=metric.definition.digits,
                arrow=metric.arrow,
                best=order_of(estimates, higher_is_better=metric.higher_is_better).best,
            )
        )
        if expected and metric.voxels and metric.voxels not in LABEL_FREE:
            by_model = replace(metric, name=f"{metric.name}_expected")
            means = [comparison.estimates(by_model)[name].value for name in rows]
            if not np.isnan(means).all():
                columns.append(Column(by_model.title, means))
    return columns


def _with_unit(metric: Metric) -> str:
    unit = metric.definition.unit
    return f"{metric.title} ({unit})" if unit else metric.title


def methods_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Segmentation, scores and ECE, ordered by the metric that judges calibration."""
    judging = comparison.judging_metrics(voxels)
    metrics = comparison.leading_metrics(voxels)
    leading = (judging or metrics)[0]
    estimates = comparison.estimates(leading)
    rows = order_of(estimates, higher_is_better=leading.higher_is_better).names
    rows += [name for name in comparison.names if name not in rows]
    columns = metric_columns(comparison, metrics, rows=rows, expected=not judging)
    if judging and (error := judging[-1].voxels) in LABEL_FREE:
        chance = [error_by_chance(comparison.tables(name, error).top)[1] for name in rows]
        columns.append(Column(f"ECE {error} by chance up to", chance))
    note = (
        f"Cases: {len(comparison.cases)}. By chance up to: ECE that perfect calibration could have on such cases; the "
        "interval of an ECE below that lies too high. "
        f"{_BOLD}"
    )
    return Table("Methods", comparison.dataset, note, rows, columns)


def paper_table(
    comparison: Comparison, voxels: Voxels | None = None, *, expected: bool = False
) -> Table:
    """A table for a paper: Dice, HD95, ECE and CECE over the voxel sets that labels choose, means over cases."""
    metrics = comparison.segmentation_metrics() + comparison.paper_metrics(voxels)
    how = "of all cases pooled" if voxels in LABEL_FREE else "means over cases"
    note = f"Cases: {len(comparison.cases)}. ECE and CECE: {how}. {_BOLD}"
    if expected:
        note += " If perfectly calibrated: what the same probabilities would score on labels drawn from them."
    columns = metric_columns(comparison, metrics, expected=expected)
    title = "Segmentation and calibration, as in papers"
    return Table(title, comparison.dataset, note, comparison.names, columns)


def differences_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Every method minus the baseline: mean, interval and Holm-corrected p."""
    if len(comparison.names) < 2:
        raise ValueError(f"differences need two methods; got only {comparison.baseline}.")
    columns = []
    others = [name for name in comparison.names if name != comparison.baseline]
    leading = comparison.leading_metrics(voxels)
    for metric in dict.fromkeys(leading + comparison.paper_metrics(voxels)):
        gaps = differences(comparison.estimates(metric), comparison.baseline).values()
        columns.append(
            Column(
                title=metric.title,
                values=[gap.mean for gap in gaps],
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
        f"or image a paired bootstrap test, Holm-corrected (number of comparisons: {len(others)}); * below 0.05."
    )
    title = f"Differences to {comparison.baseline}"
    return Table(title, comparison.dataset, note, others, columns)


def structures_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Dice, HD95 and class ECE of each structure."""
    voxels = voxels or comparison.main
    columns = []
    for metric in comparison.segmentation_metrics():
        values = comparison.of_cases(metric)
        for name in comparison.names:
            means = list(values.loc[name].mean())
            title = f"{metric.title} {name}"
            columns.append(
                Column(title, means, digits=metric.definition.digits, arrow=metric.arrow)
            )
    for name in comparison.names:
        counts = comparison.tables(name, voxels).classwise
        errors = expected_calibration_error(counts.sum()[None] if voxels in LABEL_FREE else counts)
        means = list(mean_of_known(errors.T)[-len(comparison.structures) :])
        columns.append(Column(f"class ECE {voxels} {name}", means, arrow="↓"))
    pooled = " of all cases together" if voxels in LABEL_FREE else ""
    note = f"Means over cases. Class ECE: of the structure's own probability, {voxels_text(voxels)}{pooled}."
    rows = comparison.structures
    return Table("Structures", comparison.dataset, note, rows, columns, index="structure")


def scores_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """ECE and CECE of all cases pooled, NLL and Brier split in two, and further calibration metrics."""
    voxels = voxels or comparison.main
    pooled = [comparison.pooled(name, voxels) for name in comparison.names]
    columns = []
    for metric in CALIBRATION_METRICS.values():
        if metric.further == "pooled" and any(metric.name in values for values in pooled):
            title = metric.titled()
            columns.append(
                Column(
                    title=f"pooled {title}" if metric.titled(voxels) != title else title,
                    values=[values.get(metric.name, np.nan) for values in pooled],
                    signed=metric.name == "over_confidence",
                )
            )
    for metric in CALIBRATION_METRICS.values():
        if metric.further == "mean":
            estimates = comparison.estimates(Metric(metric.name, voxels)).values()
            columns.append(Column(metric.titled(), [estimate.value for estimate in estimates]))
    splits = []
    for name in comparison.names:
        tables = comparison.tables(name, voxels)
        of_classes = tables.classwise[:, : tables.num_classes.max()].sum()
        splits.append(split_scores(of_classes, tables.activation))
    for title in splits[0]:
        arrow = "↓" if "calibration" in title else "↑"
        columns.append(Column(title, [split[title] for split in splits], digits=4, arrow=arrow))
    note = (
        "MCE and ACE: means over cases; the others: over the voxels of all cases together. NLL and Brier are, up to "
        "binning, calibration (low is good) − discrimination (high is good) + a part that depends on the voxels alone, "
        "so they and ECE may order methods differently. Over near and union, each method has its own voxels: compare "
        "discrimination over the image."
    )
    title = f"Further metrics {voxels_text(voxels)}"
    return Table(title, comparison.dataset, note, comparison.names, columns)


def cases_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Dice and ECE of every case and method."""
    voxels = voxels or comparison.main
    columns = []
    for name in comparison.names:
        for metric in (DICE, Metric("ECE", voxels)):
            means = comparison.of_cases(metric).loc[name].mean(axis=1)
            columns.append(Column(f"{metric.name} {name}", list(means)))
    note = f"Dice: mean over the structures. ECE: {voxels_text(voxels)}."
    return Table("Cases", comparison.dataset, note, comparison.cases, columns, index="case")


def review_table(reviews: Reviews) -> Table:
    """Predicted Dice, expected volumes and intervals of each method, judged by the ground truth."""
    frame = pd.DataFrame(reviews.judgements.values())
    columns = [
        Column(title, list(frame[name].astype(float)), signed="bias" in title, arrow=arrow)
        for name, title, arrow in _REVIEWED
        if not name.startswith("interval") or frame[name].notna().any()
    ]
    note = (
        f"All structures of {len(reviews.cases)} cases together. Dice MAE and bias: predicted minus true Dice. AURC: "
        "area under the risk–coverage curve; excess: AURC minus that of the best order. Volume bias: expected over "
        "true volumes, minus 1. Interval held: share of true volumes in their fitted interval."
    )
    title = "What the confidences are good for"
    return Table(title, "", note, list(reviews.judgements), columns)


MakeTables = Callable[[Sequence[Comparison], Voxels | None], list[Table]]


def table_of_each(make: Callable[[Comparison, Voxels | None], Table]) -> MakeTables:
    """A table for each data set."""
    return lambda comparisons, voxels: [make(comparison, voxels) for comparison in comparisons]


TABLES: dict[str, MakeTables] = {
    "methods": table_of_each(methods_table),
    "differences": table_of_each(differences_table),
    "ece": table_of_each(paper_table),
    "expected": table_of_each(partial(paper_table, expected=True)),
    "structures": table_of_each(structures_table),
    "scores": table_of_each(scores_table),
    "cases": table_of_each(cases_table),
}


def write_table(
    results: Mapping[str, Results],
    name: str = "methods",
    *,
    form: str = "markdown",
    voxels: Voxels | None = None,
    intervals: bool = True,
    digits: int | None = None,
    tables: Mapping[str, MakeTables] = TABLES,
) -> str:
    """Return a table of the report as text.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them.
        name: one of ``tables``.
        form: ``markdown``, ``latex`` or ``csv``.
        voxels: voxel set of ECE and CECE; by default the table's own.
        intervals: whether to show intervals and p-values.
        digits: after the decimal point; by default the metric's own. CSV has all.
        tables: those that there are; ``nnunet_nacl.paper.report.TABLES`` has more.
    """
    if name not in tables:
        raise ValueError(f"table: expected one of {', '.join(tables)}; got {name}.")
    made = tables[name](compare_all(results, voxels), voxels)
    if form == "csv" and len(made) > 1:
        raise ValueError(
            f"format: csv holds one table; got {len(made)} data sets. Give the summaries of one."
        )
    shown = [replace(table, intervals=intervals, digits=digits) for table in made]
    return printable("\n".join(map(FORMATS[form], shown)))
