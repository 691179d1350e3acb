"""The report's tables: what the page shows and ``nnunet_nacl table`` writes, as Markdown, LaTeX and CSV."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from nnunet_nacl.files import csv_text
from nnunet_nacl.metrics import (
    BY_LABEL,
    CALIBRATION_METRICS,
    LABEL_FREE,
    PAPER_METRICS,
    Interval,
    Voxels,
)
from nnunet_nacl.report._choice import Metric, voxels_text
from nnunet_nacl.report._comparison import Comparable, Comparison, comparisons_of, of_each
from nnunet_nacl.report._statistics import LEVEL

ALL_OTHERS = "all others that find each structure"
_BOLD = f"Bold: significantly better, on these cases, than {ALL_OTHERS}."
_STAR = f"*: p is below {LEVEL:g}, and value, interval and test point in one direction."
_INTERVALS = "In parentheses: 95 % bootstrap intervals."
_CALIBRATED = "if perfectly calibrated"
_EXPECTED = f"{_CALIBRATED.capitalize()}: what the same probabilities would score on labels drawn from them."
_BESIDE = {Metric(f"{name}_expected", one).title for name in PAPER_METRICS for one in BY_LABEL}
"""Heads of columns that stand beside the metric whose values under perfect calibration they are."""
_ARROWS = " ↑↓"
_LATEX = str.maketrans(
    {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$", "–": "--"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {character: f"\\{character}" for character in "&%$#_{}"}
)


def number_text(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """Format a number with a true minus sign; a signed number has no sign if it is 0; – if it is not defined.

    >>> number_text(-0.0004, signed=True), number_text(-0.0006, signed=True), number_text(float("nan"))
    ('0.000', '−0.001', '–')
    """
    if np.isnan(value):
        return "–"
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return (text if float(text) else text.lstrip("+-")).replace("-", "−")


def p_text(p: float) -> str:
    """``p = 0.012`` or ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


@dataclass(frozen=True)
class Cell:
    """A number, NaN where not defined, with its interval and p-value, if any.

    ``is_significant`` as ``Difference.is_significant``: a low p alone can belong to a test that contradicts the number.
    """

    number: float
    interval: Interval = (np.nan, np.nan)
    p: float = np.nan
    digits: int = 3
    signed: bool = False
    is_significant: bool = False
    is_bold: bool = False

    @property
    def value(self) -> str:
        """The rounded number, with a star if it is significant."""
        text = number_text(self.number, self.digits, signed=self.signed)
        return f"{text}*" if self.is_significant else text

    @property
    def details(self) -> str:
        """``(0.800 to 0.824), p = 0.012``, as far as they are known."""
        found = []
        if not np.isnan(self.interval[0]):
            ends = (number_text(end, self.digits, signed=self.signed) for end in self.interval)
            found.append(f"({' to '.join(ends)})")
        if not np.isnan(self.p):
            found.append(p_text(self.p))
        return ", ".join(found)

    def __str__(self) -> str:
        return f"{self.value} {self.details}".rstrip()


def exact(number: float) -> str:
    """Format the unrounded number; empty if it is not defined."""
    return "" if np.isnan(number) else f"{number:.10g}"


@dataclass(frozen=True)
class Table:
    """Cells by the columns' heads, of one or several data sets; ``index`` says what the rows are."""

    title: str
    dataset: str
    note: str
    rows: list[str]
    columns: dict[str, list[Cell]]
    index: str = "method"

    @property
    def heading(self) -> str:
        """The title with the data set."""
        return f"{self.title}: {self.dataset}" if self.dataset else self.title

    @property
    def heads(self) -> list[str]:
        """The columns' heads on a page: of a value if perfectly calibrated, not the metric beside it again."""
        shown = (_CALIBRATED if head in _BESIDE else head for head in self.columns)
        return [re.sub(" ([↑↓]|perfectly)", "\N{NO-BREAK SPACE}\\1", head) for head in shown]

    @property
    def legend(self) -> str:
        """What bold, stars and parentheses mean, as far as there are any."""
        cells = [cell for cells in self.columns.values() for cell in cells]
        shown = {
            _BOLD: any(cell.is_bold for cell in cells),
            _STAR: any(cell.is_significant for cell in cells),
            _INTERVALS: any("(" in cell.details for cell in cells),
        }
        return " ".join(text for text, is_shown in shown.items() if is_shown)

    @property
    def caption(self) -> str:
        """The note and the legend."""
        return f"{self.note} {self.legend}".rstrip()

    @property
    def frame(self) -> pd.DataFrame:
        """The cells by row and head."""
        return pd.DataFrame(self.columns, pd.Index(self.rows, name=self.index), dtype=object)

    def values(self) -> pd.DataFrame:
        """Return the unrounded numbers; ends of intervals and p-values, if known, have columns of their own."""
        found = []
        for head, cells in self.columns.items():
            title = head.rstrip(_ARROWS)
            numbers = [(cell.number, *cell.interval, cell.p) for cell in cells]
            titles = [title, f"{title} low", f"{title} high", f"{title} p"]
            own = pd.DataFrame(numbers, self.frame.index, titles, dtype=np.float64)
            is_shown = own.notna().any()
            is_shown[title] = True
            found.append(own.loc[:, is_shown])
        return pd.concat(found, axis=1)


def to_markdown(table: Table) -> str:
    """Return a GitHub Markdown table with its title and note."""

    def escaped(text: str) -> str:
        return re.sub(r"([\\|*_<>`~$\[\]])", r"\\\1", " ".join(text.split()).replace("&", "&amp;"))

    rows = [[escaped(head) for head in (table.index, *table.columns)]]
    rows.append(["---"] * len(rows[0]))
    for name, *cells in zip(table.rows, *table.columns.values(), strict=True):
        texts = [f"**{escaped(str(one))}**" if one.is_bold else escaped(str(one)) for one in cells]
        rows.append([escaped(name), *texts])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"**{escaped(table.heading)}**\n\n{lines}\n\n{escaped(table.caption)}\n"


def to_latex(table: Table) -> str:
    r"""Return a LaTeX table for ``\usepackage{booktabs}``."""

    def escaped(text: object) -> str:
        return str(text).translate(_LATEX)

    style = table.frame.style.format(escaped)
    style = style.format_index(escaped, axis=0).format_index(escaped, axis=1)
    bold = table.frame.map(lambda cell: "textbf:--rwrap;" if cell.is_bold else "")
    style = style.apply(lambda _: bold, axis=None)
    caption = escaped(f"{table.heading}. {table.caption}")
    label = f"tab:{re.sub(r'[^a-z0-9]+', '-', table.heading.lower())}"
    layout = {"position_float": "centering", "column_format": "l" + "c" * len(table.columns)}
    text: str = style.to_latex(hrules=True, caption=caption, label=label, **layout)
    return text


def to_csv(table: Table) -> str:
    """CSV with unrounded numbers, empty if not defined."""
    texts = table.values().map(exact).reset_index()
    return csv_text([texts.columns, *texts.to_numpy()], lineterminator="\n")


FORMATS = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}


def column(numbers: Iterable[float], **style: Any) -> list[Cell]:
    """Make a column of numbers alone."""
    return [Cell(number, **style) for number in numbers]


def metric_columns(
    comparison: Comparison,
    metrics: Sequence[Metric],
    *,
    rows: Sequence[str] | None = None,
    expected: bool = False,
) -> dict[str, list[Cell]]:
    """Make a column for each metric, of all methods in the order ``rows``.

    With ``expected``, errors over sets that labels choose stand beside their values under perfect calibration.
    """
    rows = rows or comparison.names
    columns = {}
    for metric in metrics:
        estimates = comparison.estimates[metric]
        best = comparison.orders[metric].best
        digits = metric.definition.digits
        columns[metric.head] = [
            Cell(own.value, own.interval, digits=digits, is_bold=name == best)
            for name, own in ((name, estimates[name]) for name in rows)
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
    ordered = comparison.orders[comparison.choice.judging[0]].names
    rows = ordered + [name for name in comparison.names if name not in ordered]
    columns = metric_columns(comparison, metrics, rows=rows, expected=True)
    notes = [f"Cases: {len(comparison.cases)}."]
    if len(columns) > len(metrics):
        notes.append(_EXPECTED)
    judged = comparison.choice.main
    if judged in LABEL_FREE:
        chance = (comparison.reliability[judged][name].by_chance[1] for name in rows)
        columns[f"ECE {judged} by chance up to"] = column(chance)
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
    columns = metric_columns(comparison, metrics, rows=rows, expected=expected)
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
            columns[f"{title.rstrip(_ARROWS)} {name}"] = numbers
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
    for score in ("NLL", "Brier"):
        for part, arrow in (("calibration", "↓"), ("discrimination", "↑")):
            values = (getattr(method.parts[score], part) for method in methods)
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
    results: Comparable,
    name: str = "methods",
    *,
    form: str = "markdown",
    voxels: Voxels | None = None,
    intervals: bool = True,
    digits: int | None = None,
    tables: Mapping[str, MakeTables] = TABLES,
) -> str:
    """Return a table of the report.

    Args:
        results: data set -> method -> result, as ``read_results`` gives them, or comparisons of ``compare_all``.
        name: one of ``tables``.
        form: ``markdown``, ``latex`` or ``csv``.
        voxels: voxel set of ECE and CECE; by default the table's own.
        intervals: whether to show intervals and p-values.
        digits: after the decimal point; by default the metric's own. CSV has all.
        tables: those that there are; ``nnunet_nacl.paper.report.TABLES`` has more.
    """
    made = tables[name](comparisons_of(results, voxels))
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
