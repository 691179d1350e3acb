"""The report's tables: data frames that the page shows and ``nnunet_nacl table`` writes."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnunet_nacl.evaluation import METRICS
from nnunet_nacl.files import check_output, whole_file, write_csv
from nnunet_nacl.metrics import Interval, expected_calibration_error, mean_of_known
from nnunet_nacl.report._comparison import POOLED, Comparison, Method, Results, compare_all, notes_on
from nnunet_nacl.report._metrics import (
    DICE,
    CaseMeans,
    Estimate,
    Metric,
    compared_metrics,
    judging_metrics,
    leading_metrics,
    number_text,
    over_confidence,
    paper_metrics,
    place,
    segmentation_metrics,
)
from nnunet_nacl.report._published import DATA_SETS, METHODS, published, published_data_set, published_method
from nnunet_nacl.report._reliability import class_errors, error_by_chance, split_scores
from nnunet_nacl.report._results import printable
from nnunet_nacl.report._review import JudgedMethods
from nnunet_nacl.report._statistics import (
    LEVEL,
    Ranking,
    Scheme,
    differences,
    order_by,
    rank_by_scores,
    rank_methods,
    ranked_voxels,
)

if TYPE_CHECKING:
    import pandas as pd

_IN_OTHER_TABLES = (
    "ECE", "CECE", "CECE_fg", "CECE_sum", "AECE_error", "over_confidence", "ECE_expected", "CECE_expected", "share",
)  # fmt: skip
_LATEX = {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$", "–": "--"}


@dataclass(frozen=True)
class Column:
    """Numbers, one for each row, NaN where one is not defined, with 95 % intervals and p-values of tests.

    ``arrow`` says which way is better, if one is; ``best`` is the row that is best, and told apart from all others.
    """

    title: str
    values: Sequence[float]
    intervals: Sequence[Interval] | None = None
    p: Sequence[float] | None = None
    digits: int = 3
    signed: bool = False
    arrow: str = ""
    best: str | None = None

    @property
    def head(self) -> str:
        return f"{self.title} {self.arrow}".rstrip()

    def texts(self, *, intervals: bool = True, digits: int | None = None) -> list[str]:
        """What is shown of each number: ``0.812 (0.800 to 0.824)``, or with a test ``−0.010*, p = 0.012``."""
        digits = self.digits if digits is None else digits
        shown = []
        for row, value in enumerate(self.values):
            text = number_text(value, digits, signed=self.signed)
            ends = self.intervals[row] if self.intervals is not None and intervals else (np.nan, np.nan)
            p = self.p[row] if self.p is not None else np.nan
            text += "*" if p < LEVEL else ""
            if not np.isnan(ends[0]):
                text += f" ({' to '.join(number_text(end, digits, signed=self.signed) for end in ends)})"
            shown.append(text if np.isnan(p) or not intervals else f"{text}, {p_text(p)}")
        return shown


@dataclass(frozen=True)
class Table:
    """Numbers by row and column; ``index`` says what rows are: ``method``, ``structure`` or ``case``."""

    title: str
    note: str
    index: str
    rows: list[str]
    columns: list[Column]

    def values(self, *, intervals: bool = True) -> "pd.DataFrame":
        """The unrounded numbers; ends of intervals and p-values have columns of their own."""
        import pandas as pd

        found: dict[str, Sequence[float]] = {}
        for column in self.columns:
            found[column.title] = column.values
            if column.intervals is not None and intervals and not np.isnan(column.intervals).all():
                found[f"{column.title} low"], found[f"{column.title} high"] = zip(*column.intervals, strict=True)
            if column.p is not None and intervals and not np.isnan(column.p).all():
                found[f"{column.title} p"] = column.p
        return pd.DataFrame(found, pd.Index(self.rows, name=self.index), dtype=np.float64)

    def shown(self, *, intervals: bool = True, digits: int | None = None) -> "pd.DataFrame":
        """The texts of the cells, under the heads of the columns."""
        import pandas as pd

        texts = {column.head: column.texts(intervals=intervals, digits=digits) for column in self.columns}
        return pd.DataFrame(texts, pd.Index(self.rows, name=self.index))

    def bold(self) -> "pd.DataFrame":
        """Which cells are bold."""
        best = [[column.best == row for column in self.columns] for row in self.rows]
        return self.shown().where(best).notna()


def p_text(p: float) -> str:
    """``p = 0.012`` or ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def to_markdown(table: Table, *, intervals: bool = True, digits: int | None = None) -> str:
    """A GitHub Markdown table with its title and note."""
    texts = table.shown(intervals=intervals, digits=digits).map(_escaped)
    texts = texts.mask(table.bold(), "**" + texts + "**").rename(_escaped).reset_index()
    rows = [[_escaped(head) for head in texts.columns], ["---"] * len(texts.columns), *texts.to_numpy().tolist()]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"**{_escaped(table.title)}**\n\n{lines}\n\n{_escaped(table.note)}\n"


def _escaped(text: str) -> str:
    return re.sub(r"([\\|*_<>`~$\[\]])", r"\\\1", " ".join(text.split()).replace("&", "&amp;"))


def to_latex(table: Table, *, intervals: bool = True, digits: int | None = None) -> str:
    r"""A LaTeX table for ``\usepackage{booktabs}``."""
    from pandas.io.formats.style_render import _escape_latex

    style = table.shown(intervals=intervals, digits=digits).style
    style = style.format(escape="latex").format_index(escape="latex", axis=0).format_index(escape="latex", axis=1)
    bold = table.bold()
    style = style.apply(lambda _: bold.map(lambda one: "textbf:--rwrap;" if one else ""), axis=None)
    caption = _escape_latex(f"{table.title}. {table.note}")
    text: str = style.to_latex(
        hrules=True, caption=caption, position_float="centering", column_format="l" + "c" * len(table.columns)
    )
    for character, command in _LATEX.items():
        text = text.replace(character, command)
    return text


def to_csv(table: Table, *, intervals: bool = True, digits: int | None = None) -> str:
    """CSV with unrounded numbers, empty if not defined."""
    del digits
    values, stream = table.values(intervals=intervals), io.StringIO()
    rows = [
        [name, *("" if np.isnan(one) else f"{one:.10g}" for one in row)]
        for name, row in zip(values.index, values.to_numpy(), strict=True)
    ]
    write_csv(stream, [[table.index, *values.columns], *rows], lineterminator="\n")
    return stream.getvalue()


FORMATS: dict[str, Callable[..., str]] = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}


def metric_column(comparison: Comparison, metric: Metric) -> Column:
    """A metric of all methods; the best is marked if the cases tell it apart from all others."""
    estimates = [metric.of(method) for method in comparison.methods]
    best = None
    if metric.arrow and len(comparison.methods) > 1:
        order = order_by(comparison, metric)
        best = order.names[0] if len(order.leaders) == 1 and order.behind else None
    intervals = None if metric.is_expected else [one.interval for one in estimates]
    title = f"{metric.title} ({metric.unit})" if metric.unit else metric.title
    return _column(metric, title, estimates, intervals, best)


def _column(
    metric: Metric, title: str, values: Sequence[Estimate | float], intervals: Sequence[Interval] | None = None,
    best: str | None = None,
) -> Column:  # fmt: skip
    numbers = [one.value if isinstance(one, Estimate) else one for one in values]
    return Column(title, numbers, intervals, None, metric.digits, metric.signed, metric.arrow, best)


def methods_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """The table of methods, ordered by what calibration is judged by: segmentation, scores and ECE."""
    judging, metrics = judging_metrics(comparison, voxels), leading_metrics(comparison, voxels)
    order = order_by(comparison, (judging or metrics)[0]).names
    order += [name for name in comparison.names if name not in order]
    comparison = replace(comparison, methods=[comparison[name] for name in order])
    if not judging:
        columns = _beside_expected(comparison, metrics)
    else:
        columns = [metric_column(comparison, one) for one in metrics]
        error = judging[-1].voxels
        if error in POOLED:
            chance = [error_by_chance(comparison, name, error) for name in comparison.names]
            columns += [
                Column(f"ECE {error} by chance up to", [high for _, high in chance]),
                metric_column(comparison, over_confidence(error)),
            ]
    note = (
        f"{_cases(comparison)}, with 95 % bootstrap intervals. Dice, HD95 and, over the foreground and union, ECE and "
        "CECE: mean over cases. NLL and Brier: summed over the images of all cases, per foreground voxel of the ground "
        "truth. ECE near or image: of the voxels of all cases together, pooled; by chance up to: what it could be on "
        "such cases if the method were perfectly calibrated. Confidence − accuracy: above 0 the method is too sure. "
        "Bold: best, and told apart from all others by these cases."
    )
    return _table("Methods", comparison, note, columns)


def _beside_expected(comparison: Comparison, metrics: Sequence[Metric]) -> list[Column]:
    """Metrics, and beside each of the paper's what it would be if perfectly calibrated, where any method has that."""
    columns = []
    for metric in metrics:
        columns.append(metric_column(comparison, metric))
        if metric.voxels and metric.voxels not in POOLED:
            expected = metric_column(comparison, metric.expected)
            columns += [] if np.isnan(expected.values).all() else [expected]
    return columns


def paper_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """A table for a paper: Dice, HD95, ECE and CECE over the voxel sets that labels choose, means over cases."""
    metrics = [*segmentation_metrics(comparison), *_papers(comparison, voxels)]
    return _table(
        "Segmentation and calibration",
        comparison,
        f"{_cases(comparison)}: {'pooled' if voxels in POOLED else 'mean over cases'}, with 95 % bootstrap intervals. "
        "Bold: best, and told apart from all others by these cases.",
        [metric_column(comparison, metric) for metric in metrics],
    )


def expected_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """The paper's metrics, each beside what it would be if the model were perfectly calibrated."""
    return _table(
        "The paper's metrics",
        comparison,
        f"{_cases(comparison)}: mean over cases, with 95 % bootstrap intervals. These voxel sets are chosen by labels, "
        "so a perfectly calibrated model need not score 0. If perfectly calibrated: what the same probabilities would "
        "score on labels drawn from them. A method with a lower value is not sure enough, however small its ECE.",
        _beside_expected(comparison, _papers(comparison, voxels)),
    )


def _papers(comparison: Comparison, voxels: str | None) -> list[Metric]:
    if not (metrics := paper_metrics(comparison, voxels)):
        raise ValueError(
            f"the paper's metrics are over the foreground and union; got the voxel sets {', '.join(comparison.voxels)}."
        )
    return metrics


def published_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """Our means over cases, and beside them what the paper has published: of the data set, or the mean of its six."""
    theirs = [published_method(name) for name in comparison.names]
    if all(method is None for method in theirs):
        raise ValueError(
            f"the paper's tables have none of the methods {', '.join(comparison.names)}; they have "
            f"{', '.join(METHODS)}. Names of methods are compared (--names)."
        )
    dataset, paper = published_data_set(comparison.dataset), published()
    ours = [DICE, *([Metric("HD95_voxels", digits=2)] if comparison.has_surface else [])]
    error_set = "foreground" if voxels is None else voxels
    ours += [Metric(name, error_set) for name in ("ECE", "CECE") if error_set in comparison.voxels]
    columns = [metric_column(comparison, metric) for metric in ours]
    columns = [replace(one, title=one.title.replace("HD95_voxels", "HD95 (voxels)")) for one in columns]
    for name, arrow, digits in (("DSC", "↑", 3), ("HD", "↓", 2), ("ECE", "↓", 3), ("CECE", "↓", 3)):
        values = [
            np.nan if one is None else paper.mean(one, name) if dataset is None else paper.value(dataset, one, name)
            for one in theirs
        ]
        title = f"the paper's {name}{' (pixels)' if name == 'HD' else ''}"
        columns.append(Column(title, values, digits=digits, arrow=arrow))
    what = f"those on {dataset}" if dataset else f"means of its data sets, {', '.join(DATA_SETS)}, not of this one"
    note = (
        f"The paper's columns are no results of ours, but published values (Murugesan et al., {paper.journal} "
        f"{paper.year}, tables 1 to 4): {what}. They are means over the cases of its own split, of 2D networks trained "
        "on slices for 100 epochs. Compare the order of the methods and how far they are apart, not the values. –: not "
        "in its tables. Our columns are means over cases, with 95 % bootstrap intervals."
    )
    if dataset == "BraTS":
        note += " The paper's DSC and HD are of ET, TC and WT, put together from four exclusive classes."
    return _table("Beside the paper", comparison, note, columns)


def differences_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """Every method minus the baseline: mean, interval and Holm-corrected p."""
    if len(comparison.methods) < 2:
        raise ValueError(f"differences need two methods; got {comparison.baseline} alone.")
    columns, can_show = [], []
    others = [name for name in comparison.names if name != comparison.baseline]
    for metric in compared_metrics(comparison, voxels):
        gaps = [differences(comparison, metric)[name] for name in others]
        can_show += [one.can_show or one.mean == 0 for one in gaps]
        values, intervals = [one.mean for one in gaps], [one.interval for one in gaps]
        columns.append(
            Column(metric.title, values, intervals, [one.p_holm for one in gaps], metric.digits, True, metric.arrow)
        )
    few = "" if all(can_show) else " With so few cases even a large difference may not be significant."
    return Table(
        _titled(f"Differences to {comparison.baseline}", comparison),
        f"Method minus {comparison.baseline}, case by case: difference and 95 % bootstrap interval. p: two-sided "
        f"Wilcoxon signed-rank test over {_cases(comparison)}, or, for ECE near or image, which a single case has no "
        f"value of, a paired bootstrap test; Holm-corrected for {len(others)} comparison(s) per metric; * below 0.05."
        f"{few}",
        "method",
        others,
        columns,
    )


def structures_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """Dice, HD95 and class ECE of each structure."""
    voxels = voxels or comparison.main
    columns = []
    for metric in segmentation_metrics(comparison):
        for method in comparison.methods:
            means = [CaseMeans(one) for one in metric.values(method).T[:, :, None]]
            columns.append(_column(metric, f"{metric.title} {method.name}", means))
    for method in comparison.methods:
        title = f"class ECE {voxels} {method.name}"
        columns.append(_column(Metric("ECE"), title, _class_errors(comparison, method, voxels)))
    return Table(
        _titled("Structures", comparison),
        f"Means over {_cases(comparison)}. Class ECE: of the structure's own probability, {place(voxels)}"
        f"{', of all cases together' if voxels in POOLED else ''}.",
        "structure",
        comparison.structures,
        columns,
    )


def _class_errors(comparison: Comparison, method: Method, voxels: str) -> list[float]:
    """ECE of each structure's own probability: pooled over near and image, else the mean over cases."""
    if voxels in POOLED:
        errors = class_errors(comparison, method.name, voxels)
        return [errors[name] for name in comparison.structures]
    comparison.check_voxels(voxels)
    tables = method.bins(voxels, "classwise")
    assert tables is not None
    by_case = expected_calibration_error(tables)[:, -len(comparison.structures) :]
    return [CaseMeans(by_case[:, [row]]).value for row in range(len(comparison.structures))]


def scores_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """ECE and CECE of all cases pooled, NLL and Brier split in two, and further calibration metrics."""
    voxels = voxels or comparison.main
    comparison.check_voxels(voxels)
    pooled = [method.pooled(voxels) for method in comparison.methods]

    def column(title: str, metric: str, *, factor: float = 1, digits: int = 3, signed: bool = False) -> list[Column]:
        if not any(metric in one for one in pooled):
            return []
        return [Column(title, [factor * one.get(metric, np.nan) for one in pooled], digits=digits, signed=signed)]

    columns = [
        *column("pooled ECE", "ECE"),
        *column("pooled CECE", "CECE"),
        *column("confidence − accuracy", "over_confidence", signed=True),
        *column("pooled ECE if perfectly calibrated", "ECE_expected"),
        *column("share of the image (%)", "share", factor=100, digits=1),
    ]
    # Each prediction has its own near, and a softer one has more easy voxels in it: means over them do not compare.
    names = [m for m in METRICS if m not in _IN_OTHER_TABLES and (voxels != "near" or m not in {"NLL", "Brier"})]
    columns += [Column(name, [Metric(name, voxels).of(one).value for one in comparison.methods]) for name in names]
    splits = []
    for method in comparison.methods:
        tables = method.bins(voxels, "classwise")
        assert tables is not None
        splits.append(split_scores(tables.sum(), method.num_classes(voxels), regions=comparison.has_regions))
    columns += [
        Column(title, [one[title] for one in splits], digits=4, arrow="↓" if "calibration" in title else "↑")
        for title in splits[0]
    ]
    return _table(
        f"Further metrics {place(voxels)}",
        comparison,
        "Pooled ECE and CECE: from the voxels of all cases together, as in the reliability diagrams. Confidence − "
        "accuracy: means over the same voxels; not 0 for a perfectly calibrated model where labels choose the voxels. "
        f"{', '.join(names)}: means over cases. NLL and Brier, pooled, are calibration − discrimination + what no "
        "method can change: calibration is what wrong confidences cost, discrimination what telling the classes apart "
        "gains. They tell why NLL and Brier, or either and ECE, may put methods in different orders.",
        columns,
    )


def score_ranks_table(comparisons: Sequence[Comparison], voxels: str | None = None) -> Table:
    """The ranking by Dice, NLL per foreground voxel and ECE near."""
    ranking = rank_by_scores(comparisons, voxels)
    if ranking is None:
        raise ValueError(
            "this ranking needs the voxel sets near and image, which not every summary has: evaluate again."
        )
    return _table_of_ranks(ranking, _titled(f"Ranks by {', '.join(ranking.metrics)}", *comparisons))


def ranks_table(comparisons: Sequence[Comparison], scheme: Scheme, voxels: str | None = None) -> Table:
    """The paper's ranking, and how often a method comes first when the cases are drawn anew."""
    voxels = ranked_voxels(comparisons) if voxels is None else voxels
    return _table_of_ranks(rank_methods(comparisons, scheme, voxels=voxels), _titled(scheme.capitalize(), *comparisons))


def _table_of_ranks(ranking: Ranking, title: str) -> Table:
    digits = 1 if ranking.scheme == "sum-rank" else 2
    ranks = np.column_stack([ranking.by_metric, ranking.overall])
    columns = [Column(one, list(ranks[:, row]), digits=digits) for row, one in enumerate([*ranking.metrics, "overall"])]
    columns.append(Column("place", list(ranking.places), digits=0))
    columns.append(Column("first in resamples (%)", list(100 * ranking.stability[:, 0]), digits=0))
    return Table(
        title,
        "Low is good. Sum-rank: ranks by the value of each metric, added up. Mean-case-rank: ranks in each case, "
        "averaged. First in resamples: how often a method takes first place when the cases are drawn anew; tied ones "
        "share it.",
        "method",
        ranking.methods,
        columns,
    )


def cases_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """Dice and ECE of every case and method."""
    ece = Metric("ECE", voxels or comparison.main)
    comparison.check_voxels(ece.voxels)
    columns = []
    for method in comparison.methods:
        columns.append(Column(f"Dice {method.name}", list(mean_of_known(DICE.values(method)))))
        columns.append(Column(f"ECE {method.name}", list(ece.values(method)[:, 0])))
    return Table(
        _titled("Cases", comparison),
        f"Dice: mean over the structures. ECE: {place(ece.voxels)}.",
        "case",
        [printable(name) for name in comparison.cases],
        columns,
    )


def judged_table(judged: JudgedMethods) -> Table:
    """Predicted Dice, expected volumes and intervals of each method, judged by the ground truth."""
    judgements = [one.judgement for one in judged.methods]

    def column(title: str, name: str, arrow: str = "", *, signed: bool = False) -> Column:
        values = [getattr(one, name) for one in judgements]
        return Column(title, [np.nan if one is None else one for one in values], arrow=arrow, signed=signed)

    columns = [
        column("Dice MAE", "dice_error", "↓"),
        column("bias", "dice_bias", signed=True),
        column("Spearman", "spearman", "↑"),
        column("AURC", "aurc", "↓"),
        column("excess AURC", "excess_aurc", "↓"),
        column("volume bias (share)", "volume_bias_share", signed=True),
    ]
    if any(one.interval_coverage is not None for one in judgements):
        columns += [column("interval held", "interval_coverage"), column("width (ml)", "interval_width_ml")]
    return Table(
        "What the confidences are good for",
        f"All structures of {len(judged.cases)} cases together. Dice MAE and bias: of predicted less true Dice. "
        "Spearman: their rank correlation. AURC: area under the risk–coverage curve; excess: above that of the best "
        "order. Volume bias: sum of expected over sum of true volumes, less 1. Interval held: share of true volumes in "
        "their fitted interval, if intervals were fitted; width: its mean.",
        "method",
        [one.name for one in judged.methods],
        columns,
    )


_Tables = Callable[[Sequence[Comparison], str | None], list[Table]]


def _each(table: Callable[[Comparison, str | None], Table]) -> _Tables:
    return lambda comparisons, voxels: [table(one, voxels) for one in comparisons]


TABLES: dict[str, _Tables] = {
    "methods": _each(methods_table),
    "differences": _each(differences_table),
    "ece": _each(paper_table),
    "expected": _each(expected_table),
    "published": _each(published_table),
    "structures": _each(structures_table),
    "scores": _each(scores_table),
    "ranks": lambda comparisons, voxels: [score_ranks_table(comparisons, voxels)],
    "sum-rank": lambda comparisons, voxels: [ranks_table(comparisons, "sum-rank", voxels)],
    "mean-case-rank": lambda comparisons, voxels: [ranks_table(comparisons, "mean-case-rank", voxels)],
    "cases": _each(cases_table),
}
"""Name -> its tables of comparisons over a voxel set: one for each data set, or one for all of them."""


def write_table(
    results: Mapping[str, Results],
    name: str = "methods",
    *,
    output: str | Path | None = None,
    form: str = "markdown",
    baseline: str | None = None,
    voxels: str | None = None,
    intervals: bool = True,
    digits: int | None = None,
    overwrite: bool = False,
    show: Callable[[str], object] = lambda _: None,
) -> str:
    """Return a table of the report as text, and write it to a file if one is given.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        name: ``methods``, ``differences``, ``ece``, ``expected``, ``published``, ``structures``, ``scores``,
            ``ranks``, ``sum-rank``, ``mean-case-rank`` or ``cases``.
        output: the file.
        form: ``markdown``, ``latex`` or ``csv``.
        baseline: the method that the others are compared with; by default each data set's first.
        voxels: voxel set of ECE and CECE; by default those that the table is about.
        intervals: whether to show intervals and p-values.
        digits: after the decimal point; by default the metric's own. CSV has all.
        overwrite: replace a file that exists.
        show: called with each note on the comparison, which CSV has no room for.

    Raises:
        OSError: the file cannot be written, or exists.
        ValueError: no such table, format, baseline or voxel set, or nothing to compare.
    """
    for argument, value, known in (("table", name, TABLES), ("format", form, FORMATS)):
        if value not in known:
            raise ValueError(f"{argument}: expected one of {', '.join(known)}; got {value}.")
    if output is not None:
        check_output(output, overwrite=overwrite)
    comparisons = compare_all(results, baseline=baseline)
    for comparison in comparisons if voxels is not None else ():
        comparison.check_voxels(str(voxels))
    tables = TABLES[name](comparisons, voxels)
    if form == "csv" and len(tables) > 1:
        raise ValueError(f"format: csv holds one table; got {len(tables)} data sets. Give the summaries of one.")
    notes = notes_on(comparisons)
    for note in notes:
        show(note)
    noted = [replace(table, note=" ".join([table.note, *notes])) for table in tables]
    text = "\n".join(FORMATS[form](table, intervals=intervals, digits=digits) for table in noted)
    if output is not None:
        with whole_file(Path(output)) as partial:
            partial.write_text(text, encoding="utf-8")
    return text


def _table(title: str, comparison: Comparison, note: str, columns: list[Column]) -> Table:
    return Table(_titled(title, comparison), note, "method", comparison.names, columns)


def _cases(comparison: Comparison) -> str:
    count = len(comparison.cases)
    return "1 case" if count == 1 else f"{count} cases"


def _titled(title: str, *comparisons: Comparison) -> str:
    names = ", ".join(one.dataset for one in comparisons if one.dataset)
    return f"{title}: {names}" if names else title
