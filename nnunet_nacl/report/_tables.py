"""The report's tables, as text in cells: what the page shows and ``nnunet_nacl table`` writes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nnunet_nacl.metrics import expected_calibration_error
from nnunet_nacl.report._comparison import Array, Comparison, Method
from nnunet_nacl.report._metrics import (
    Metric,
    by_case,
    interval_of,
    main_metrics,
    mean_over_cases,
    segmentation_metrics,
    signed_text,
)
from nnunet_nacl.report._ranking import Scheme, rank_methods
from nnunet_nacl.report._reliability import overconfidence
from nnunet_nacl.report._significance import LEVEL, Difference, differences

Mark = Literal["", "best", "second"]
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
    interval: tuple[float, float] = (float("nan"), float("nan"))
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
    """The table of methods: mean over cases and its 95 % interval, best and second marked."""
    metrics = main_metrics(comparison)
    columns = [_column_of(metric, comparison.methods) for metric in metrics]
    titles = [f"{metric.title}{f' ({metric.unit})' if metric.unit else ''} {_arrow(metric)}" for metric in metrics]
    return Table(
        _titled("Methods", comparison),
        f"Mean over {_cases(comparison)}, with 95 % bootstrap intervals. Best in bold, second underlined.",
        ["method", *titles],
        [(name, [column[row] for column in columns]) for row, name in enumerate(comparison.names)],
    )


def differences_table(comparison: Comparison) -> Table:
    """Every method minus the baseline: mean, interval and Holm-corrected p.

    Raises:
        ValueError: there is only one method.
    """
    if len(comparison.methods) < 2:
        raise ValueError(f"differences need two methods; got {comparison.baseline} alone.")
    metrics = main_metrics(comparison)
    found = [differences(comparison, metric) for metric in metrics]
    others = [name for name in comparison.names if name != comparison.baseline]
    rows = [
        (name, [_difference_cell(one[name], metric) for one, metric in zip(found, metrics, strict=True)])
        for name in others
    ]
    few = not all(one.can_show or one.mean == 0 for by_method in found for one in by_method.values())
    return Table(
        _titled(f"Differences to {comparison.baseline}", comparison),
        f"Method minus {comparison.baseline}, case by case: mean and 95 % bootstrap interval. p: two-sided Wilcoxon "
        f"signed-rank test over {_cases(comparison)}, Holm-corrected for {len(rows)} comparison"
        f"{'' if len(rows) == 1 else 's'} per metric; * below 0.05."
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
    for metric in segmentation_metrics(comparison):
        values = [metric.values(method) for method in comparison.methods]
        columns += [f"{metric.title} {name} {_arrow(metric)}" for name in comparison.names]
        cells += _marked_across(metric, [[one[:, row] for one in values] for row in range(len(comparison.structures))])
    errors = [_class_errors(method, voxels)[:, -len(comparison.structures) :] for method in comparison.methods]
    metric = Metric("ECE", voxels)
    columns += [f"class ECE {voxels} {name} {_arrow(metric)}" for name in comparison.names]
    cells += _marked_across(metric, [[one[:, row] for one in errors] for row in range(len(comparison.structures))])
    return Table(
        _titled("Structures", comparison),
        f"Means over {_cases(comparison)}. Class ECE: of the structure's own probability, over the voxel set {voxels}.",
        ["structure", *columns],
        [(name, [column[row] for column in cells]) for row, name in enumerate(comparison.structures)],
    )


def scores_table(comparison: Comparison, voxels: str) -> Table:
    """The further calibration figures, means over cases, and ECE and CECE of all cases pooled."""
    rows = []
    for method in comparison.methods:
        pooled = method.result.pooled_tables(voxels)  # type: ignore[arg-type]
        assert pooled is not None
        found = pooled.metrics()
        means = method.calibration[voxels]
        cells = [Cell(found["ECE"]), Cell(found["CECE"]), Cell(overconfidence(pooled.top), signed=True)]
        cells += [Cell(mean_over_cases(means[metric][:, None])) for metric in _SCORES]
        rows.append((method.name, cells))
    return Table(
        _titled(f"Further figures over the {voxels}", comparison),
        "Pooled ECE and CECE: from the voxels of all cases together, as the reliability diagrams; over-confidence: of "
        "the same voxels, mean confidence minus accuracy. The others are means over cases. Nearer to 0 is better.",
        ["method", "pooled ECE", "pooled CECE", "over-confidence", *_SCORES],
        rows,
    )


def ranks_table(comparisons: Sequence[Comparison], scheme: Scheme, voxels: str) -> Table:
    """A ranking, and how often a method comes first when the cases are drawn anew."""
    ranking = rank_methods(comparisons, scheme, voxels=voxels)
    digits = 1 if scheme == "sum-rank" else 2
    note = "ranks by the mean of each metric, added up" if scheme == "sum-rank" else "ranks in each case, averaged"
    rows = []
    for row, name in enumerate(ranking.methods):
        cells = [Cell(value, digits) for value in (*ranking.by_metric[row], ranking.overall[row])]
        cells += [Cell(ranking.places[row], 0), Cell(100 * ranking.stability[row, 0], 0)]
        rows.append((name, cells))
    return Table(
        _titled(scheme.capitalize(), *comparisons),
        f"Low is good: {note}. First in resamples: how often it has the first place when the cases are drawn anew.",
        ["method", *ranking.metrics, "overall", "place", "first in resamples (%)"],
        rows,
    )


def cases_table(comparison: Comparison, voxels: str) -> Table:
    """Dice and ECE of every case and method."""
    dice, ece = Metric("Dice", higher_is_better=True), Metric("ECE", voxels)
    columns, cells = [], []
    for method in comparison.methods:
        columns += [f"Dice {method.name}", f"ECE {method.name}"]
        cells += [[Cell(value) for value in by_case(dice.values(method))]]
        cells += [[Cell(value) for value in ece.values(method)[:, 0]]]
    return Table(
        _titled("Cases", comparison),
        f"Dice: mean over the structures. ECE over the voxel set {voxels}.",
        ["case", *columns],
        [(name, [column[row] for column in cells]) for row, name in enumerate(comparison.cases)],
    )


TABLES: dict[str, Callable[[Comparison, str], Table]] = {
    "methods": lambda comparison, _: methods_table(comparison),
    "differences": lambda comparison, _: differences_table(comparison),
    "structures": structures_table,
    "scores": scores_table,
    "sum-rank": lambda comparison, voxels: ranks_table([comparison], "sum-rank", voxels),
    "mean-case-rank": lambda comparison, voxels: ranks_table([comparison], "mean-case-rank", voxels),
    "cases": cases_table,
}
"""Name -> table of a comparison, for a voxel set."""


def _column_of(metric: Metric, methods: Sequence[Method]) -> list[Cell]:
    values = [metric.values(method) for method in methods]
    return _column(metric, values, [interval_of(one) for one in values])


def _column(metric: Metric, values: Sequence[Array], intervals: Sequence[tuple[float, float]] | None) -> list[Cell]:
    """Cells of one column with the best and the second marked."""
    figures = [mean_over_cases(one) for one in values]
    order = sorted({figure for figure in figures if not np.isnan(figure)}, reverse=metric.higher_is_better)
    marks: dict[float, Mark] = {}
    if len(figures) > 1:
        marks = dict(zip(order, ("best", "second"), strict=False))
    ends = [(float("nan"), float("nan"))] * len(values) if intervals is None else intervals
    return [
        Cell(figure, metric.digits, interval=one, mark=marks.get(figure, ""))
        for figure, one in zip(figures, ends, strict=True)
    ]


def _marked_across(metric: Metric, rows: Sequence[Sequence[Array]]) -> list[list[Cell]]:
    """Columns of cells, one a method, whose best and second are those of their row."""
    cells = [_column(metric, [one[:, None] for one in row], None) for row in rows]
    return [list(column) for column in zip(*cells, strict=True)]


def _class_errors(method: Method, voxels: str) -> Array:
    """(cases, classes) ECE of each class."""
    found = [
        expected_calibration_error(case.result.calibration[voxels].classwise)  # type: ignore[index]
        for case in method.result.cases
    ]
    return np.stack(found)


def _arrow(metric: Metric) -> str:
    return "↑" if metric.higher_is_better else "↓"


def _cases(comparison: Comparison) -> str:
    count = len(comparison.cases)
    return "1 case" if count == 1 else f"{count} cases"


def _titled(title: str, *comparisons: Comparison) -> str:
    names = ", ".join(one.dataset for one in comparisons if one.dataset)
    return f"{title}: {names}" if names else title


def p_value(p: float) -> str:
    """``= 0.012`` or ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
