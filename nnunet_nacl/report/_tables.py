"""The report's tables, as text in cells: what the page shows and ``nnunet_nacl table`` writes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nnunet_nacl.metrics import expected_calibration_error
from nnunet_nacl.report._comparison import Comparison, Method
from nnunet_nacl.report._metrics import (
    DICE,
    POOLED,
    Figures,
    Metric,
    by_case,
    compared_metrics,
    judging_metrics,
    leading_metrics,
    mean_over_cases,
    over_confidence,
    paper_metrics,
    place,
    segmentation_metrics,
    signed_text,
)
from nnunet_nacl.report._ranking import Ranking, Scheme, rank_by_scores, rank_methods
from nnunet_nacl.report._reliability import class_errors
from nnunet_nacl.report._significance import LEVEL, Difference, differences

Mark = Literal["", "best", "second"]
_NONE = (float("nan"), float("nan"))
_SCORES = ("MCE", "ACE", "AECE", "NLL", "Brier")


@dataclass(frozen=True)
class Cell:
    """A figure in a table.

    Attributes:
        value: the figure; NaN if it is not defined.
        digits: after the decimal point, where it is shown.
        signed: whether it is shown with its sign, as differences are.
        interval: its 95 % interval; NaN if there is none.
        p: of a test, corrected; NaN if there is none.
        mark: whether it is the best, or second.
    """

    value: float
    digits: int = 3
    signed: bool = False
    interval: tuple[float, float] = _NONE
    p: float = float("nan")
    mark: Mark = ""

    @property
    def text(self) -> str:
        return self._shown(self.value) + ("*" if self.p < LEVEL else "")

    @property
    def low(self) -> str:
        """Lower end of the interval; empty without one."""
        return "" if np.isnan(self.interval[0]) else self._shown(self.interval[0])

    @property
    def high(self) -> str:
        """Upper end of the interval; empty without one."""
        return "" if np.isnan(self.interval[1]) else self._shown(self.interval[1])

    @property
    def p_text(self) -> str:
        """``= 0.012`` or ``< 0.001``; empty without a test."""
        return "" if np.isnan(self.p) else p_value(self.p)

    def _shown(self, value: float) -> str:
        if self.signed:
            return signed_text(value, self.digits)
        return "–" if np.isnan(value) else f"{value:.{self.digits}f}"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: what it shows.
        note: how to read it.
        columns: titles; the first one is that of the row names.
        rows: name of the row and its cells, one for each further column.
    """

    title: str
    note: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]] = field(default_factory=list)


def methods_table(comparison: Comparison) -> Table:
    """The table of methods: segmentation, and what calibration is judged by, with intervals, best and second marked."""
    metrics, judging = leading_metrics(comparison), judging_metrics(comparison)
    if not judging:
        return _methods_by(comparison, "Methods", _note_on_means(comparison), _beside_expected(comparison, metrics))
    error = judging[-1].voxels
    segmented = " and ".join(metric.name for metric in segmentation_metrics(comparison))
    scores = (
        " NLL and Brier: summed over the images of all cases, per foreground voxel of the ground truth."
        if comparison.has_scores
        else ""
    )
    place = "near what the model takes for a structure" if error == "near" else "of the image"
    note = (
        f"Over {_cases(comparison)}, with 95 % bootstrap intervals. {segmented}: mean over cases.{scores} ECE {error}: "
        f"of the voxels {place}, of all cases together; over-confidence: of the same voxels, mean confidence minus "
        "accuracy; below 0 the model is under-confident. Best in bold, second underlined."
    )
    return _methods_by(comparison, "Methods", note, [*metrics, over_confidence(error)])


def _note_on_means(comparison: Comparison) -> str:
    return f"Mean over {_cases(comparison)}, with 95 % bootstrap intervals. Best in bold, second underlined."


def paper_table(comparison: Comparison) -> Table:
    """The paper's figures: means over cases, each beside what it would be if the model were perfectly calibrated.

    Raises:
        ValueError: no voxel set that labels choose was evaluated.
    """
    metrics = paper_metrics(comparison)
    if not metrics:
        raise ValueError(
            f"the paper's figures are over the foreground and union; got the voxel sets {', '.join(comparison.voxels)}."
        )
    return _methods_by(
        comparison,
        "The paper's figures",
        f"{_note_on_means(comparison)} These voxel sets are chosen by labels, so a perfectly calibrated model need not "
        "score 0. If perfectly calibrated: what the same probabilities would score on labels drawn from them; a model "
        "below that is under-confident.",
        _beside_expected(comparison, metrics),
    )


def _beside_expected(comparison: Comparison, metrics: Sequence[Metric]) -> list[Metric]:
    """Metrics, and beside each of the paper's what it would be if perfectly calibrated, where any method has that."""
    columns = []
    for metric in metrics:
        columns.append(metric)
        if metric.voxels and any(not np.isnan(metric.expected.of(method).value) for method in comparison.methods):
            columns.append(metric.expected)
    return columns


def _methods_by(comparison: Comparison, title: str, note: str, metrics: Sequence[Metric]) -> Table:
    columns = [_column(metric, [metric.of(method) for method in comparison.methods]) for metric in metrics]
    return Table(
        _titled(title, comparison),
        note,
        ["method", *map(_column_title, metrics)],
        [(name, [column[row] for column in columns]) for row, name in enumerate(comparison.names)],
    )


def _column_title(metric: Metric) -> str:
    return f"{metric.title}{f' ({metric.unit})' if metric.unit else ''} {_arrow(metric)}".rstrip()


def differences_table(comparison: Comparison) -> Table:
    """Every method minus the baseline: mean, interval and Holm-corrected p.

    Raises:
        ValueError: there is only one method.
    """
    if len(comparison.methods) < 2:
        raise ValueError(f"differences need two methods; got {comparison.baseline} alone.")
    metrics = compared_metrics(comparison)
    found = [differences(comparison, metric) for metric in metrics]
    others = [name for name in comparison.names if name != comparison.baseline]
    rows = [
        (name, [_difference_cell(one[name], metric) for one, metric in zip(found, metrics, strict=True)])
        for name in others
    ]
    few = not all(one.can_show or one.mean == 0 for by_method in found for one in by_method.values())
    pooled = [metric.title for metric in metrics if metric.of(comparison.methods[0]).by_case is None]
    return Table(
        _titled(f"Differences to {comparison.baseline}", comparison),
        f"Method minus {comparison.baseline}, case by case: difference and 95 % bootstrap interval. p: two-sided "
        f"Wilcoxon signed-rank test over {_cases(comparison)}"
        f"{f', for {pooled[0]}, which a single case has no figure of, a paired bootstrap test' if pooled else ''}; "
        f"Holm-corrected for {len(rows)} comparison{'' if len(rows) == 1 else 's'} per metric; * below 0.05."
        f"{' So few cases cannot show every difference, however large.' if few else ''}",
        ["method", *(f"{metric.title} {_arrow(metric)}" for metric in metrics)],
        rows,
    )


def _difference_cell(found: Difference, metric: Metric) -> Cell:
    return Cell(found.mean, metric.digits, signed=True, interval=found.interval, p=found.p_holm)


def structures_table(comparison: Comparison, voxels: str) -> Table:
    """Dice, HD95 and the class's ECE of each structure."""
    columns: list[str] = []
    cells: list[list[Cell]] = []  # by column
    rows = range(len(comparison.structures))
    for metric in segmentation_metrics(comparison):
        values = [metric.values(method) for method in comparison.methods]
        columns += [f"{metric.title} {name} {_arrow(metric)}" for name in comparison.names]
        cells += _marked_across(metric, [[mean_over_cases(one[:, [row]]) for one in values] for row in rows])
    metric = Metric("ECE", voxels)
    errors = [_class_errors(comparison, method, voxels) for method in comparison.methods]
    columns += [f"class ECE {voxels} {name} {_arrow(metric)}" for name in comparison.names]
    cells += _marked_across(metric, [[one[row] for one in errors] for row in rows])
    pooled = ", of all cases together" if voxels in POOLED else ""
    return Table(
        _titled("Structures", comparison),
        f"Means over {_cases(comparison)}. Class ECE: of the structure's own probability, {place(voxels)}{pooled}.",
        ["structure", *columns],
        [(name, [column[row] for column in cells]) for row, name in enumerate(comparison.structures)],
    )


def scores_table(comparison: Comparison, voxels: str) -> Table:
    """ECE and CECE of all cases pooled, and the further calibration figures, means over cases."""
    pooled = {method.name: method.result.pooled_tables(voxels) for method in comparison.methods}  # type: ignore[arg-type]
    found = {name: tables.metrics() for name, tables in pooled.items() if tables is not None}
    has_expected, has_share = (any(name in one for one in found.values()) for name in ("ECE_expected", "share"))
    columns = ["pooled ECE", "pooled CECE", "over-confidence"]
    columns += ["pooled ECE if perfectly calibrated"] * has_expected + ["share of the image (%)"] * has_share
    # Each prediction has its own near, and a softer one has more easy voxels in it: means over them compare nothing.
    scores = _SCORES[:-2] if voxels == "near" else _SCORES
    biased = "" if voxels in POOLED else ", not 0 for a perfectly calibrated model where labels choose the voxels"
    rows = []
    for method in comparison.methods:
        one = found[method.name]
        cells = [Cell(one["ECE"]), Cell(one["CECE"]), Cell(one["over_confidence"], signed=True)]
        cells += [Cell(one.get("ECE_expected", np.nan))] * has_expected
        cells += [Cell(100 * one.get("share", np.nan), 1)] * has_share
        cells += [Cell(mean_over_cases(method.calibration[voxels][metric][:, None])) for metric in scores]
        rows.append((method.name, cells))
    return Table(
        _titled(f"Further figures {place(voxels)}", comparison),
        "Pooled ECE and CECE: from the voxels of all cases together, as the reliability diagrams; over-confidence: of "
        f"the same voxels, mean confidence minus accuracy{biased}. {_listed(scores)} are means over cases.",
        ["method", *columns, *scores],
        rows,
    )


def ranks_table(comparisons: Sequence[Comparison], scheme: Scheme, voxels: str) -> Table:
    """The paper's ranking, and how often a method comes first when the cases are drawn anew."""
    return _table_of_ranks(rank_methods(comparisons, scheme, voxels=voxels), _titled(scheme.capitalize(), *comparisons))


def score_ranks_table(comparisons: Sequence[Comparison]) -> Table:
    """The ranking by Dice, NLL per foreground voxel and ECE near.

    Raises:
        ValueError: the data sets share neither near nor image.
    """
    ranking = rank_by_scores(comparisons)
    if ranking is None:
        raise ValueError(
            "this ranking is by the voxel sets near and image; not every summary has them: evaluate again."
        )
    return _table_of_ranks(ranking, _titled(f"Ranks by {_listed(ranking.metrics)}", *comparisons))


def _table_of_ranks(ranking: Ranking, title: str) -> Table:
    by_sum = ranking.scheme == "sum-rank"
    digits = 1 if by_sum else 2
    note = "ranks by the figure of each metric, added up" if by_sum else "ranks in each case, averaged"
    rows = []
    for row, name in enumerate(ranking.methods):
        cells = [Cell(value, digits) for value in (*ranking.by_metric[row], ranking.overall[row])]
        cells += [Cell(ranking.places[row], 0), Cell(100 * ranking.stability[row, 0], 0)]
        rows.append((name, cells))
    return Table(
        title,
        f"Low is good: {note}. First in resamples: how often it has the first place when the cases are drawn anew.",
        ["method", *ranking.metrics, "overall", "place", "first in resamples (%)"],
        rows,
    )


def cases_table(comparison: Comparison, voxels: str) -> Table:
    """Dice and ECE of every case and method."""
    ece = Metric("ECE", voxels)
    columns, cells = [], []
    for method in comparison.methods:
        columns += [f"Dice {method.name}", f"ECE {method.name}"]
        cells += [[Cell(value) for value in by_case(DICE.values(method))]]
        cells += [[Cell(value) for value in ece.values(method)[:, 0]]]
    return Table(
        _titled("Cases", comparison),
        f"Dice: mean over the structures. ECE: {place(voxels)}.",
        ["case", *columns],
        [(name, [column[row] for column in cells]) for row, name in enumerate(comparison.cases)],
    )


TABLES: dict[str, Callable[[Comparison, str], Table]] = {
    "methods": lambda comparison, _: methods_table(comparison),
    "differences": lambda comparison, _: differences_table(comparison),
    "paper": lambda comparison, _: paper_table(comparison),
    "structures": structures_table,
    "scores": scores_table,
    "ranks": lambda comparison, _: score_ranks_table([comparison]),
    "sum-rank": lambda comparison, voxels: ranks_table([comparison], "sum-rank", voxels),
    "mean-case-rank": lambda comparison, voxels: ranks_table([comparison], "mean-case-rank", voxels),
    "cases": cases_table,
}
"""Name -> table of a comparison, for a voxel set."""


def _column(metric: Metric, figures: Sequence[Figures]) -> list[Cell]:
    """Cells of one column with the best and the second marked, where there is a best."""
    values = [one.value for one in figures]
    marks = _marks(metric, values) if _arrow(metric) else {}
    return [
        Cell(
            value,
            metric.digits,
            signed=metric.signed,
            interval=_NONE if metric.is_expected else one.interval,
            mark=marks.get(value, ""),
        )
        for value, one in zip(values, figures, strict=True)
    ]


def _marks(metric: Metric, values: Sequence[float]) -> dict[float, Mark]:
    order = sorted({value for value in values if not np.isnan(value)}, reverse=metric.higher_is_better)
    return dict(zip(order, ("best", "second"), strict=False)) if len(values) > 1 else {}


def _marked_across(metric: Metric, rows: Sequence[Sequence[float]]) -> list[list[Cell]]:
    """Columns of cells, one a method, whose best and second are those of their row."""
    cells = []
    for row in rows:
        marks = _marks(metric, row)
        cells.append([Cell(value, metric.digits, mark=marks.get(value, "")) for value in row])
    return [list(column) for column in zip(*cells, strict=True)]


def _class_errors(comparison: Comparison, method: Method, voxels: str) -> list[float]:
    """ECE of each structure's own probability: pooled over near and image, else the mean over cases."""
    if voxels in POOLED:
        errors = class_errors(comparison, method.name, voxels)
        return [errors[name] for name in comparison.structures]
    tables = method.bins(voxels, "classwise")
    assert tables is not None
    errors_by_case = expected_calibration_error(tables)[:, -len(comparison.structures) :]
    return [mean_over_cases(errors_by_case[:, [row]]) for row in range(len(comparison.structures))]


def _arrow(metric: Metric) -> str:
    if metric.signed or metric.is_expected:
        return ""
    return "↑" if metric.higher_is_better else "↓"


def _cases(comparison: Comparison) -> str:
    count = len(comparison.cases)
    return "1 case" if count == 1 else f"{count} cases"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _titled(title: str, *comparisons: Comparison) -> str:
    names = ", ".join(one.dataset for one in comparisons if one.dataset)
    return f"{title}: {names}" if names else title


def p_value(p: float) -> str:
    """``= 0.012`` or ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
