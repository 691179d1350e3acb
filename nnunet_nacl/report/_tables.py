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
from nnunet_nacl.report import _metrics
from nnunet_nacl.report._comparison import POOLED, Comparison, Results, compare_all
from nnunet_nacl.report._metrics import DICE, Metric, number_text, voxels_text
from nnunet_nacl.report._published import (
    DATA_SETS,
    published_data_set,
    published_method,
    published_value,
)
from nnunet_nacl.report._reliability import error_by_chance, split_scores
from nnunet_nacl.report._review import Reviews
from nnunet_nacl.report._statistics import (
    LEVEL,
    SCHEMES,
    Ranking,
    differences,
    order_by,
    rank_by_scores,
    rank_methods,
)
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


def _columns(
    comparison: Comparison, metrics: Sequence[Metric], *, expected: bool = False
) -> list[Column]:
    """Metrics of all methods; expected: beside the paper's metrics their values under perfect calibration, if known."""
    columns = []
    for metric in metrics:
        estimates = [metric.of(method) for method in comparison.methods]
        order = order_by(comparison, metric)
        columns.append(
            Column(
                title=_with_unit(metric),
                values=[estimate.value for estimate in estimates],
                intervals=[estimate.interval for estimate in estimates],
                digits=metric.definition.digits,
                arrow=metric.arrow,
                best=order.names[0] if len(order.leaders) == 1 and order.behind else None,
            )
        )
        if expected and metric.voxels and metric.voxels not in POOLED:
            by_model = replace(metric, name=f"{metric.name}_expected")
            means = [by_model.of(method).value for method in comparison.methods]
            if not np.isnan(means).all():
                columns.append(Column(by_model.title, means))
    return columns


def _with_unit(metric: Metric) -> str:
    unit = metric.definition.unit
    return f"{metric.title} ({unit})" if unit else metric.title


def methods_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Segmentation, scores and ECE, ordered by the metric that judges calibration."""
    judging = _metrics.judging_metrics(comparison, voxels)
    metrics = _metrics.leading_metrics(comparison, voxels)
    order = order_by(comparison, (judging or metrics)[0]).names
    order += [name for name in comparison.names if name not in order]
    comparison = replace(comparison, methods=[comparison[name] for name in order])
    columns = _columns(comparison, metrics, expected=not judging)
    if judging and (error := judging[-1].voxels) in POOLED:
        chance = [error_by_chance(comparison, name, error)[1] for name in comparison.names]
        columns.append(Column(f"ECE {error} by chance up to", chance))
    note = (
        f"Cases: {len(comparison.cases)}. By chance up to: ECE that perfect calibration could have on such cases; the "
        "interval of an ECE below that lies too high. "
        f"{_BOLD}"
    )
    return Table("Methods", comparison.dataset, note, comparison.names, columns)


def paper_table(
    comparison: Comparison, voxels: Voxels | None = None, *, expected: bool = False
) -> Table:
    """A table for a paper: Dice, HD95, ECE and CECE over the voxel sets that labels choose, means over cases."""
    metrics = _metrics.segmentation_metrics(comparison) + _metrics.paper_metrics(comparison, voxels)
    how = "of all cases pooled" if voxels in POOLED else "means over cases"
    note = f"Cases: {len(comparison.cases)}. ECE and CECE: {how}. {_BOLD}"
    if expected:
        note += " If perfectly calibrated: what the same probabilities would score on labels drawn from them."
    columns = _columns(comparison, metrics, expected=expected)
    title = "Segmentation and calibration, as in papers"
    return Table(title, comparison.dataset, note, comparison.names, columns)


def published_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Our means over cases, beside the paper's published values: for the data set, or the mean of its six."""
    theirs = [published_method(name) for name in comparison.names]
    dataset = published_data_set(comparison.dataset)
    voxels = voxels or "foreground"
    metrics = [DICE]
    if comparison.has_surface:
        metrics.append(Metric("HD95_voxels"))
    if voxels in comparison.voxels:
        metrics += _metrics.paper_metrics(comparison, voxels)
    columns = _columns(comparison, metrics)
    for metric, unit, arrow, digits in (("DSC", "", "↑", 3), ("HD", " (pixels)", "↓", 2), ("ECE", "", "↓", 3),
                                        ("CECE", "", "↓", 3)):  # fmt: skip
        values = [published_value(method, metric, dataset) for method in theirs]
        columns.append(Column(f"the paper's {metric}{unit}", values, digits=digits, arrow=arrow))
    what = (
        f"those on {dataset}"
        if dataset
        else f"means of its data sets, {', '.join(DATA_SETS)}, not of this one"
    )
    note = (
        "The paper's columns are not our results but published values (Murugesan et al., Medical Image Analysis "
        f"2025, tables 1 to 4): {what}. They come from other splits, networks and lengths of training (of BraTS, "
        "from regions combined from classes): compare the order of the methods, not the values."
    )
    return Table("Beside the paper", comparison.dataset, note, comparison.names, columns)


def differences_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """Every method minus the baseline: mean, interval and Holm-corrected p."""
    if len(comparison.methods) < 2:
        raise ValueError(f"differences need two methods; got only {comparison.baseline}.")
    columns = []
    others = [name for name in comparison.names if name != comparison.baseline]
    leading = _metrics.leading_metrics(comparison, voxels)
    for metric in dict.fromkeys(leading + _metrics.paper_metrics(comparison, voxels)):
        gaps = differences(comparison, metric).values()
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
    for metric in _metrics.segmentation_metrics(comparison):
        for method in comparison.methods:
            means = list(mean_of_known(metric.values(method).T))
            title = f"{metric.title} {method.name}"
            columns.append(
                Column(title, means, digits=metric.definition.digits, arrow=metric.arrow)
            )
    for method in comparison.methods:
        counts = method.bins(voxels, "classwise")
        errors = expected_calibration_error(counts.sum()[None] if voxels in POOLED else counts)
        means = list(mean_of_known(errors.T)[-len(comparison.structures) :])
        columns.append(Column(f"class ECE {voxels} {method.name}", means, arrow="↓"))
    pooled = " of all cases together" if voxels in POOLED else ""
    note = f"Means over cases. Class ECE: of the structure's own probability, {voxels_text(voxels)}{pooled}."
    rows = comparison.structures
    return Table("Structures", comparison.dataset, note, rows, columns, index="structure")


def scores_table(comparison: Comparison, voxels: Voxels | None = None) -> Table:
    """ECE and CECE of all cases pooled, NLL and Brier split in two, and further calibration metrics."""
    voxels = voxels or comparison.main
    pooled = [method.result.pooled(voxels) for method in comparison.methods]
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
            means = [method.result.mean(voxels, metric.name) for method in comparison.methods]
            columns.append(Column(metric.titled(), means))
    splits = [
        split_scores(method.classwise(voxels).sum(), comparison.activation)
        for method in comparison.methods
    ]
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
    columns = [
        Column(f"{metric.name} {method.name}", list(mean_of_known(metric.values(method))))
        for method in comparison.methods
        for metric in (DICE, Metric("ECE", voxels))
    ]
    note = f"Dice: mean over the structures. ECE: {voxels_text(voxels)}."
    return Table("Cases", comparison.dataset, note, comparison.cases, columns, index="case")


def rank_table(ranking: Ranking, comparisons: Sequence[Comparison]) -> Table:
    """A ranking, and how often a method comes first when cases are resampled."""
    digits = 1 if ranking.scheme == "sum-rank" else 2
    columns = [
        Column(title, list(values), digits=digits) for title, values in ranking.ranks.items()
    ]
    columns.append(Column("first in resamples (%)", list(100 * ranking.first), digits=0))
    *metrics, _ = ranking.ranks.columns
    title = f"{ranking.scheme.capitalize()} by {', '.join(metrics)}"
    note = (
        "Low is good. Sum-rank: ranks by the value of each metric, added up. Mean-case-rank: ranks in each case, "
        "averaged. First in resamples: how often a method is first when cases are resampled; ties share the count."
    )
    datasets = ", ".join(comparison.dataset for comparison in comparisons if comparison.dataset)
    return Table(title, datasets, note, list(ranking.ranks.index), columns)


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


TABLES: dict[str, Callable[[Comparison, Voxels | None], Table]] = {
    "methods": methods_table,
    "differences": differences_table,
    "ece": paper_table,
    "expected": partial(paper_table, expected=True),
    "published": published_table,
    "structures": structures_table,
    "scores": scores_table,
    "cases": cases_table,
}


def write_table(
    results: Mapping[str, Results],
    name: str = "methods",
    *,
    form: str = "markdown",
    voxels: Voxels | None = None,
    intervals: bool = True,
    digits: int | None = None,
) -> str:
    """Return a table of the report as text.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them.
        name: one of ``TABLES`` or, over all data sets, ``ranks``, ``sum-rank`` or ``mean-case-rank``.
        form: ``markdown``, ``latex`` or ``csv``.
        voxels: voxel set of ECE and CECE; by default the table's own.
        intervals: whether to show intervals and p-values.
        digits: after the decimal point; by default the metric's own. CSV has all.
    """
    if name not in (known := [*TABLES, "ranks", *SCHEMES]):
        raise ValueError(f"table: expected one of {', '.join(known)}; got {name}.")
    comparisons = compare_all(results, voxels)
    if name in TABLES:
        tables = [TABLES[name](comparison, voxels) for comparison in comparisons]
    else:
        ranking = (
            rank_methods(comparisons, name, voxels)
            if name in SCHEMES
            else rank_by_scores(comparisons, voxels)
        )
        if ranking is None:
            raise ValueError(
                "ranks need the voxel sets near and image, which some summaries lack: evaluate again."
            )
        tables = [rank_table(ranking, comparisons)]
    if form == "csv" and len(tables) > 1:
        raise ValueError(
            f"format: csv holds one table; got {len(tables)} data sets. Give the summaries of one."
        )
    shown = [replace(table, intervals=intervals, digits=digits) for table in tables]
    return printable("\n".join(map(FORMATS[form], shown)))
