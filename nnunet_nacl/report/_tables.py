"""The report's tables: what the page shows and ``nnunet_nacl table`` writes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnunet_nacl.evaluation import METRICS
from nnunet_nacl.files import Kind, check_file, whole_file
from nnunet_nacl.metrics import expected_calibration_error
from nnunet_nacl.report._comparison import Comparison, Method, compare_all, notes_on
from nnunet_nacl.report._formats import FORMATS, NO_INTERVAL, Cell, Mark, Table
from nnunet_nacl.report._metrics import (
    DICE,
    POOLED,
    CaseMeans,
    Estimate,
    Metric,
    compared_metrics,
    judging_metrics,
    leading_metrics,
    over_confidence,
    paper_metrics,
    place,
    segmentation_metrics,
)
from nnunet_nacl.report._published import published_table
from nnunet_nacl.report._reliability import class_errors
from nnunet_nacl.report._shared import Results
from nnunet_nacl.report._statistics import (
    Difference,
    Ranking,
    Scheme,
    differences,
    rank_by_scores,
    rank_methods,
    ranked_voxels,
)
from nnunet_nacl.report._wording import listed

_IN_OTHER_TABLES = (
    "ECE", "CECE", "CECE_fg", "CECE_sum", "AECE_error", "over_confidence", "ECE_expected", "CECE_expected", "share",
)  # fmt: skip
_FURTHER = tuple(metric for metric in METRICS if metric not in _IN_OTHER_TABLES)


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
    where = "near what the model takes for a structure" if error == "near" else "of the image"
    note = (
        f"Over {_cases(comparison)}, with 95 % bootstrap intervals. {segmented}: mean over cases.{scores} ECE {error}: "
        f"of the voxels {where}, of all cases together. Confidence − accuracy: means over the same voxels; above 0 the "
        "model is over-confident, below 0 under-confident. Best in bold, second underlined."
    )
    return _methods_by(comparison, "Methods", note, [*metrics, over_confidence(error)])


def _note_on_means(comparison: Comparison) -> str:
    return f"Mean over {_cases(comparison)}, with 95 % bootstrap intervals. Best in bold, second underlined."


def paper_table(comparison: Comparison) -> Table:
    """The paper's metrics: means over cases, each beside what it would be if the model were perfectly calibrated.

    Raises:
        ValueError: no voxel set that labels choose was evaluated.
    """
    metrics = paper_metrics(comparison)
    if not metrics:
        raise ValueError(
            f"the paper's metrics are over the foreground and union; got the voxel sets {', '.join(comparison.voxels)}."
        )
    return _methods_by(
        comparison,
        "The paper's metrics",
        f"{_note_on_means(comparison)} These voxel sets are chosen by labels, so a perfectly calibrated model need not "
        "score 0. If perfectly calibrated: what the same probabilities would score on labels drawn from them. A model "
        "with a lower value is under-confident.",
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
    by_metric = [differences(comparison, metric) for metric in metrics]
    others = [name for name in comparison.names if name != comparison.baseline]
    rows = [
        (name, [_difference_cell(one[name], metric) for one, metric in zip(by_metric, metrics, strict=True)])
        for name in others
    ]
    few = not all(one.can_show or one.mean == 0 for by_method in by_metric for one in by_method.values())
    pooled = [metric.title for metric in metrics if metric.of(comparison.methods[0]).by_case is None]
    return Table(
        _titled(f"Differences to {comparison.baseline}", comparison),
        f"Method minus {comparison.baseline}, case by case: difference and 95 % bootstrap interval. p: two-sided "
        f"Wilcoxon signed-rank test over {_cases(comparison)}"
        f"{f', or, for {pooled[0]}, which a single case has no value of, a paired bootstrap test' if pooled else ''}; "
        f"Holm-corrected for {len(rows)} comparison{'' if len(rows) == 1 else 's'} per metric; * below 0.05."
        f"{' With so few cases even a large difference may not be significant.' if few else ''}",
        ["method", *(f"{metric.title} {_arrow(metric)}" for metric in metrics)],
        rows,
    )


def _difference_cell(gap: Difference, metric: Metric) -> Cell:
    return Cell(gap.mean, metric.digits, signed=True, interval=gap.interval, p=gap.p_holm)


def structures_table(comparison: Comparison, voxels: str) -> Table:
    """Dice, HD95 and class ECE of each structure."""
    columns: list[str] = []
    groups: list[tuple[str, str]] = []
    cells: list[list[Cell]] = []  # by column
    rows = range(len(comparison.structures))
    for metric in segmentation_metrics(comparison):
        values = [metric.values(method) for method in comparison.methods]
        columns += [f"{metric.title} {name} {_arrow(metric)}" for name in comparison.names]
        groups += [(_column_title(metric), name) for name in comparison.names]
        cells += _marked_across(metric, [[CaseMeans(one[:, [row]]).value for one in values] for row in rows])
    metric = Metric("ECE", voxels)
    errors = [_class_errors(comparison, method, voxels) for method in comparison.methods]
    columns += [f"class ECE {voxels} {name} {_arrow(metric)}" for name in comparison.names]
    groups += [(f"class ECE {voxels} {_arrow(metric)}", name) for name in comparison.names]
    cells += _marked_across(metric, [[one[row] for one in errors] for row in rows])
    pooled = ", of all cases together" if voxels in POOLED else ""
    return Table(
        _titled("Structures", comparison),
        f"Means over {_cases(comparison)}. Class ECE: of the structure's own probability, {place(voxels)}{pooled}.",
        ["structure", *columns],
        [(name, [column[row] for column in cells]) for row, name in enumerate(comparison.structures)],
        groups,
    )


def scores_table(comparison: Comparison, voxels: str) -> Table:
    """ECE and CECE of all cases pooled, and further calibration metrics, means over cases."""
    pooled = {method.name: method.pooled(voxels) for method in comparison.methods}
    has_expected, has_share = (any(name in one for one in pooled.values()) for name in ("ECE_expected", "share"))
    columns = ["pooled ECE", "pooled CECE", "confidence − accuracy"]
    columns += ["pooled ECE if perfectly calibrated"] * has_expected + ["share of the image (%)"] * has_share
    # Each prediction has its own near, and a softer one has more easy voxels in it: means over them do not compare.
    scores = [one for one in _FURTHER if voxels != "near" or one not in {"NLL", "Brier"}]
    biased = "" if voxels in POOLED else ", not 0 for a perfectly calibrated model where labels choose the voxels"
    rows = []
    for method in comparison.methods:
        one = pooled[method.name]
        cells = [Cell(one["ECE"]), Cell(one["CECE"]), Cell(one["over_confidence"], signed=True)]
        cells += [Cell(one.get("ECE_expected", np.nan))] * has_expected
        cells += [Cell(100 * one.get("share", np.nan), 1)] * has_share
        cells += [Cell(CaseMeans(method.calibration[voxels][metric][:, None]).value) for metric in scores]
        rows.append((method.name, cells))
    return Table(
        _titled(f"Further metrics {place(voxels)}", comparison),
        "Pooled ECE and CECE: from the voxels of all cases together, as in the reliability diagrams. Confidence − "
        f"accuracy: means over the same voxels{biased}. {listed(scores)} are means over cases.",
        ["method", *columns, *scores],
        rows,
    )


def ranks_table(comparisons: Sequence[Comparison], scheme: Scheme, voxels: str | None = None) -> Table:
    """The paper's ranking, and how often a method comes first when the cases are drawn anew."""
    voxels = ranked_voxels(comparisons) if voxels is None else voxels
    return _table_of_ranks(rank_methods(comparisons, scheme, voxels=voxels), _titled(scheme.capitalize(), *comparisons))


def score_ranks_table(comparisons: Sequence[Comparison]) -> Table:
    """The ranking by Dice, NLL per foreground voxel and ECE near.

    Raises:
        ValueError: the data sets share neither near nor image.
    """
    ranking = rank_by_scores(comparisons)
    if ranking is None:
        raise ValueError(
            "this ranking needs the voxel sets near and image, which not every summary has: evaluate again."
        )
    return _table_of_ranks(ranking, _titled(f"Ranks by {listed(ranking.metrics)}", *comparisons))


def _table_of_ranks(ranking: Ranking, title: str) -> Table:
    by_sum = ranking.scheme == "sum-rank"
    digits = 1 if by_sum else 2
    note = "ranks by the value of each metric, added up" if by_sum else "ranks in each case, averaged"
    rows = []
    for row, name in enumerate(ranking.methods):
        cells = [Cell(value, digits) for value in (*ranking.by_metric[row], ranking.overall[row])]
        place = Cell(ranking.places[row], 0, remark="tied" if ranking.tied[row] else "")
        cells += [place, Cell(100 * ranking.stability[row, 0], 0)]
        rows.append((name, cells))
    return Table(
        title,
        f"Low is good: {note}. First in resamples: how often a method takes first place when the cases are drawn anew; "
        "tied methods share it.",
        ["method", *ranking.metrics, "overall", "place", "first in resamples (%)"],
        rows,
    )


def cases_table(comparison: Comparison, voxels: str) -> Table:
    """Dice and ECE of every case and method."""
    ece = Metric("ECE", voxels)
    columns, groups, cells = [], [], []
    for method in comparison.methods:
        columns += [f"Dice {method.name}", f"ECE {method.name}"]
        groups += [(method.name, "Dice"), (method.name, "ECE")]
        cells += [[Cell(value) for value in CaseMeans(DICE.values(method)).by_case]]
        cells += [[Cell(value) for value in ece.values(method)[:, 0]]]
    return Table(
        _titled("Cases", comparison),
        f"Dice: mean over the structures. ECE: {place(voxels)}.",
        ["case", *columns],
        [(name, [column[row] for column in cells]) for row, name in enumerate(comparison.cases)],
        groups,
    )


TABLES: dict[str, Callable[[Sequence[Comparison], str | None], list[Table]]] = {
    "methods": lambda comparisons, _: [methods_table(one) for one in comparisons],
    "differences": lambda comparisons, _: [differences_table(one) for one in comparisons],
    "paper": lambda comparisons, _: [paper_table(one) for one in comparisons],
    "published": lambda comparisons, _: [published_table(one) for one in comparisons],
    "structures": lambda comparisons, voxels: [structures_table(one, voxels or one.main) for one in comparisons],
    "scores": lambda comparisons, voxels: [scores_table(one, voxels or one.main) for one in comparisons],
    "ranks": lambda comparisons, _: [score_ranks_table(comparisons)],
    "sum-rank": lambda comparisons, voxels: [ranks_table(comparisons, "sum-rank", voxels)],
    "mean-case-rank": lambda comparisons, voxels: [ranks_table(comparisons, "mean-case-rank", voxels)],
    "cases": lambda comparisons, voxels: [cases_table(one, voxels or one.main) for one in comparisons],
}
"""Name -> its tables of comparisons over a voxel set: one for each data set, or one for all of them."""

# The last line of a file, by which it is known as ours. CSV has no comments; its header will do.
_MARKS = {"markdown": "<!-- nnunet_nacl table -->\n", "latex": "% nnunet_nacl table\n", "csv": ""}
_CSV_HEADER = rb"\A(?:method|structure|case),[^\n]*(?: high\b|class ECE |pooled ECE,|first in resamples|ECE )"
_KINDS = {
    form: Kind("a table", re.compile(re.escape(mark.encode()) + rb"\Z" if mark else _CSV_HEADER))
    for form, mark in _MARKS.items()
}


def write_table(
    results: Mapping[str, Results],
    name: str = "methods",
    *,
    output: str | Path | None = None,
    form: str = "markdown",
    baseline: str | None = None,
    voxels: str | None = None,
    overwrite: bool = False,
    show: Callable[[str], object] = lambda _: None,
) -> str:
    """Return a table of the report as text, and write it to a file if one is given.

    What the reader must know of the comparison, such as that the bins of methods were joined, is in the table's note.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        name: ``methods``, ``differences``, ``paper``, ``published``, ``structures``, ``scores``, ``ranks``,
            ``sum-rank``, ``mean-case-rank`` or ``cases``.
        output: the file. It is written completely or not at all.
        form: ``markdown``, ``latex`` or ``csv``.
        baseline: the method that the others are compared with; by default each data set's first.
        voxels: voxel set of ECE and CECE where the table has a single one; by default near, or the first shared one
            if near was not evaluated, and for the paper's rankings the first that labels choose.
        overwrite: replace a file that is no table of ours, too.
        show: called with each of these notes, which CSV has no room for.

    Raises:
        OSError: the file cannot be written, or there is one that is no such table.
        ValueError: no such table, format, baseline or voxel set, or nothing to compare.
    """
    for argument, value, known in (("table", name, TABLES), ("format", form, FORMATS)):
        if value not in known:
            raise ValueError(f"{argument}: expected one of {', '.join(known)}; got {value}.")
    if output is not None:
        check_file(output, _KINDS[form], overwrite=overwrite)
    comparisons = compare_all(results, baseline=baseline)
    if voxels is not None and name != "ranks":
        for comparison in comparisons:
            comparison.check_voxels(voxels)
    tables = TABLES[name](comparisons, voxels)
    if form == "csv" and len(tables) > 1:
        raise ValueError(f"format: csv holds one table; got {len(tables)} data sets. Give the summaries of one.")
    notes = notes_on(comparisons)
    for note in notes:
        show(note)
    text = "\n".join(FORMATS[form](replace(table, note=" ".join([table.note, *notes]))) for table in tables)
    if output is not None:
        with whole_file(output, _KINDS[form], overwrite=overwrite) as partial:
            partial.write_text(text + _MARKS[form], encoding="utf-8")
    return text


def _column(metric: Metric, estimates: Sequence[Estimate]) -> list[Cell]:
    """Cells of one column, with the best and the second marked where there is a best."""
    values = [one.value for one in estimates]
    marks = _marks(metric, values) if _arrow(metric) else {}
    return [
        Cell(
            value,
            metric.digits,
            signed=metric.signed,
            interval=NO_INTERVAL if metric.is_expected else one.interval,
            mark=marks.get(value, ""),
        )
        for value, one in zip(values, estimates, strict=True)
    ]


def _marks(metric: Metric, values: Sequence[float]) -> dict[float, Mark]:
    order = sorted({value for value in values if not np.isnan(value)}, reverse=metric.higher_is_better)
    return dict(zip(order, ("best", "second"), strict=False)) if len(values) > 1 else {}


def _marked_across(metric: Metric, rows: Sequence[Sequence[float]]) -> list[list[Cell]]:
    """Columns of cells, one for each method, whose best and second are those of their row."""
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
    return [CaseMeans(errors_by_case[:, [row]]).value for row in range(len(comparison.structures))]


def _arrow(metric: Metric) -> str:
    if metric.signed or metric.is_expected:
        return ""
    return "↑" if metric.higher_is_better else "↓"


def _cases(comparison: Comparison) -> str:
    count = len(comparison.cases)
    return "1 case" if count == 1 else f"{count} cases"


def _titled(title: str, *comparisons: Comparison) -> str:
    names = ", ".join(one.dataset for one in comparisons if one.dataset)
    return f"{title}: {names}" if names else title
