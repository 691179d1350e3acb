"""The report's tables: what the page shows and ``nnunet_nacl table`` writes."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from nnunet_nacl.evaluation import METRICS
from nnunet_nacl.files import write_csv
from nnunet_nacl.metrics import Interval, mean_of_known
from nnunet_nacl.report._comparison import POOLED, Comparison, Results, compare_all
from nnunet_nacl.report._metrics import (
    DICE,
    Metric,
    case_means,
    compared_metrics,
    judging_metrics,
    leading_metrics,
    number_text,
    over_confidence,
    paper_metrics,
    place,
    segmentation_metrics,
)
from nnunet_nacl.report._published import DATA_SETS, published_data_set, published_method, published_value
from nnunet_nacl.report._reliability import class_errors, error_by_chance, split_scores
from nnunet_nacl.report._results import printable
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

_IN_OTHER_TABLES = (
    "ECE", "CECE", "CECE_fg", "CECE_sum", "over_confidence", "ECE_expected", "CECE_expected", "share",
)  # fmt: skip
_LATEX = {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$", "–": "--"}
_BOLD = "Bold: best, and told apart from all others by these cases."


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

    def values(self, *, intervals: bool = True) -> pd.DataFrame:
        """The unrounded numbers; ends of intervals and p-values have columns of their own."""
        found: dict[str, Sequence[float]] = {}
        for column in self.columns:
            found[column.title] = column.values
            if column.intervals is not None and intervals and not np.isnan(column.intervals).all():
                found[f"{column.title} low"], found[f"{column.title} high"] = zip(*column.intervals, strict=True)
            if column.p is not None and intervals and not np.isnan(column.p).all():
                found[f"{column.title} p"] = column.p
        return pd.DataFrame(found, pd.Index(self.rows, name=self.index), dtype=np.float64)

    def shown(self, *, intervals: bool = True, digits: int | None = None) -> pd.DataFrame:
        """The texts of the cells, under the titles of the columns with their arrows."""
        texts = {f"{c.title} {c.arrow}".rstrip(): c.texts(intervals=intervals, digits=digits) for c in self.columns}
        return pd.DataFrame(texts, pd.Index(self.rows, name=self.index))

    def bold(self) -> pd.DataFrame:
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
    rows = [[name, *("" if np.isnan(one) else f"{one:.10g}" for one in row)] for name, *row in values.itertuples()]
    write_csv(stream, [[table.index, *values.columns], *rows], lineterminator="\n")
    return stream.getvalue()


FORMATS: dict[str, Callable[..., str]] = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}


def _table(title: str, comparison: Comparison, note: str, columns: list[Column], index: str = "method") -> Table:
    rows = {"method": comparison.names, "structure": comparison.structures, "case": comparison.cases}[index]
    return Table(_titled(title, comparison), note, index, list(map(printable, rows)), columns)


def _titled(title: str, *comparisons: Comparison) -> str:
    names = ", ".join(one.dataset for one in comparisons if one.dataset)
    return f"{title}: {names}" if names else title


def _cases(comparison: Comparison) -> str:
    count = len(comparison.cases)
    return f"{count} case{'s' * (count != 1)}, with 95 % bootstrap intervals"


def _columns(comparison: Comparison, metrics: Sequence[Metric], *, expected: bool = False) -> list[Column]:
    """Metrics of all methods; the best is marked if the cases tell it apart from all others.

    Expected: beside each of the paper's what it would be if perfectly calibrated, where any method has that.
    """
    columns = []
    for metric in metrics:
        estimates, best = [metric.of(method) for method in comparison.methods], None
        if metric.arrow and len(estimates) > 1:
            order = order_by(comparison, metric)
            best = order.names[0] if len(order.leaders) == 1 and order.behind else None
        title = f"{metric.title} ({metric.unit})" if metric.unit else metric.title
        values, intervals = [one.value for one in estimates], [one.interval for one in estimates]
        columns.append(Column(title, values, intervals, None, metric.digits, metric.signed, metric.arrow, best))
        if expected and metric.voxels and metric.voxels not in POOLED:
            by_model = replace(metric, name=f"{metric.name}_expected")
            means = [by_model.of(method).value for method in comparison.methods]
            columns += [] if np.isnan(means).all() else [Column(by_model.title, means)]
    return columns


def methods_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """The table of methods, ordered by what calibration is judged by: segmentation, scores and ECE."""
    judging, metrics = judging_metrics(comparison, voxels), leading_metrics(comparison, voxels)
    order = order_by(comparison, (judging or metrics)[0]).names
    order += [name for name in comparison.names if name not in order]
    comparison = replace(comparison, methods=[comparison[name] for name in order])
    columns = _columns(comparison, metrics, expected=not judging)
    if judging and (error := judging[-1].voxels) in POOLED:
        chance = [error_by_chance(comparison, name, error)[1] for name in comparison.names]
        columns.append(Column(f"ECE {error} by chance up to", chance))
        columns += _columns(comparison, [over_confidence(error)])
    note = f"{_cases(comparison)}. By chance up to: what ECE could be on such cases if perfectly calibrated. {_BOLD}"
    return _table("Methods", comparison, note, columns)


def paper_table(comparison: Comparison, voxels: str | None = None, *, expected: bool = False) -> Table:
    """A table for a paper: Dice, HD95, ECE and CECE over the voxel sets that labels choose, means over cases.

    Expected: ECE and CECE, each beside what it would be if the model were perfectly calibrated.
    """
    metrics = paper_metrics(comparison, voxels)
    columns = _columns(
        comparison, metrics if expected else segmentation_metrics(comparison) + metrics, expected=expected
    )
    note = f"{'Pooled' if voxels in POOLED else 'Mean'} over {_cases(comparison)}. {_BOLD}"
    if expected:
        note += (
            " If perfectly calibrated: what the same probabilities would score on labels drawn from them, which need "
            "not be 0 here."
        )
    return _table("The paper's metrics" if expected else "Segmentation and calibration", comparison, note, columns)


def published_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """Our means over cases, and beside them what the paper has published: of the data set, or the mean of its six."""
    theirs = [published_method(name) for name in comparison.names]
    dataset, voxels = published_data_set(comparison.dataset), voxels or "foreground"
    metrics = [DICE, Metric("HD95_voxels", digits=2)] if comparison.has_surface else [DICE]
    metrics += paper_metrics(comparison, voxels) if voxels in comparison.voxels else []
    columns = [replace(c, title=c.title.replace("_voxels", " (voxels)")) for c in _columns(comparison, metrics)]
    for metric, unit, arrow, digits in (("DSC", "", "↑", 3), ("HD", " (pixels)", "↓", 2), ("ECE", "", "↓", 3),
                                        ("CECE", "", "↓", 3)):  # fmt: skip
        values = [published_value(one, metric, dataset) for one in theirs]
        columns.append(Column(f"the paper's {metric}{unit}", values, digits=digits, arrow=arrow))
    what = f"those on {dataset}" if dataset else f"means of its data sets, {', '.join(DATA_SETS)}, not of this one"
    note = (
        "The paper's columns are no results of ours, but published values (Murugesan et al., Medical Image Analysis "
        f"2025, tables 1 to 4): {what}. They come from other splits, networks and lengths of training: compare the "
        "order of the methods, not the values."
    )
    if dataset == "BraTS":
        note += " The paper's DSC and HD are of ET, TC and WT, put together from four exclusive classes."
    return _table("Beside the paper", comparison, note, columns)


def differences_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """Every method minus the baseline: mean, interval and Holm-corrected p."""
    if len(comparison.methods) < 2:
        raise ValueError(f"differences need two methods; got {comparison.baseline} alone.")
    columns, can_show = [], True
    others = [name for name in comparison.names if name != comparison.baseline]
    for metric in compared_metrics(comparison, voxels):
        gaps = [differences(comparison, metric)[name] for name in others]
        can_show = can_show and all(one.can_show or one.mean == 0 for one in gaps)
        means, intervals, p_values = zip(*((one.mean, one.interval, one.p_holm) for one in gaps), strict=True)
        columns.append(Column(metric.title, means, intervals, p_values, metric.digits, True, metric.arrow))
    note = (
        f"Method minus {comparison.baseline} over {_cases(comparison)}. p: Wilcoxon signed-rank test, or for ECE near "
        f"or image a paired bootstrap test, Holm-corrected for {len(others)} comparison(s); * below 0.05."
        f"{'' if can_show else ' With so few cases even a large difference may not be significant.'}"
    )
    return Table(_titled(f"Differences to {comparison.baseline}", comparison), note, "method", others, columns)


def structures_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """Dice, HD95 and class ECE of each structure."""
    voxels = voxels or comparison.main
    columns = []
    for metric in segmentation_metrics(comparison):
        for method in comparison.methods:
            means = [case_means(one).value for one in metric.values(method).T[:, :, None]]
            title = f"{metric.title} {method.name}"
            columns.append(Column(title, means, digits=metric.digits, arrow=metric.arrow))
    for method in comparison.methods:
        errors = class_errors(method, voxels, by_case=voxels not in POOLED)[-len(comparison.structures) :]
        columns.append(Column(f"class ECE {voxels} {method.name}", errors, arrow="↓"))
    note = f"Means over cases. Class ECE: of the structure's own probability, {place(voxels)}"
    note += ", of all cases together." if voxels in POOLED else "."
    return _table("Structures", comparison, note, columns, "structure")


def scores_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """ECE and CECE of all cases pooled, NLL and Brier split in two, and further calibration metrics."""
    voxels = voxels or comparison.main
    pooled = [method.pooled(voxels) for method in comparison.methods]
    columns = [
        Column(title, [factor * one.get(metric, np.nan) for one in pooled], digits=digits, signed="−" in title)
        for title, metric, factor, digits in (
            ("pooled ECE", "ECE", 1, 3),
            ("pooled CECE", "CECE", 1, 3),
            ("confidence − accuracy", "over_confidence", 1, 3),
            ("pooled ECE if perfectly calibrated", "ECE_expected", 1, 3),
            ("share of the image (%)", "share", 100, 1),
        )
        if any(metric in one for one in pooled)
    ]
    # Each prediction has its own near, and a softer one has more easy voxels in it: means over them do not compare.
    names = [m for m in METRICS if m not in _IN_OTHER_TABLES and (voxels != "near" or m not in {"NLL", "Brier"})]
    columns += [Column(name, [Metric(name, voxels).of(one).value for one in comparison.methods]) for name in names]
    splits = [
        split_scores(one.bins(voxels, "classwise").sum(), one.num_classes(voxels), regions=comparison.has_regions)
        for one in comparison.methods
    ]
    columns += [
        Column(title, [one[title] for one in splits], digits=4, arrow="↓" if "calibration" in title else "↑")
        for title in splits[0]
    ]
    note = (
        f"{', '.join(names)}: means over cases; the rest over the voxels of all cases together. NLL and Brier are "
        "calibration (what wrong confidences cost) − discrimination (what telling the classes apart gains) + what no "
        "method can change: so they and ECE may put methods in different orders."
    )
    return _table(f"Further metrics {place(voxels)}", comparison, note, columns)


def cases_table(comparison: Comparison, voxels: str | None = None) -> Table:
    """Dice and ECE of every case and method."""
    ece = Metric("ECE", voxels or comparison.main)
    columns = []
    for method in comparison.methods:
        columns.append(Column(f"Dice {method.name}", list(mean_of_known(DICE.values(method)))))
        columns.append(Column(f"ECE {method.name}", list(ece.values(method)[:, 0])))
    note = f"Dice: mean over the structures. ECE: {place(ece.voxels)}."
    return _table("Cases", comparison, note, columns, "case")


def rank_table(ranking: Ranking, comparisons: Sequence[Comparison]) -> Table:
    """A ranking, and how often a method comes first when the cases are drawn anew."""
    digits = 1 if ranking.scheme == "sum-rank" else 2
    ranks = zip([*ranking.metrics, "overall"], np.column_stack([ranking.by_metric, ranking.overall]).T, strict=True)
    columns = [Column(title, list(values), digits=digits) for title, values in ranks]
    columns.append(Column("place", list(ranking.places), digits=0))
    columns.append(Column("first in resamples (%)", list(100 * ranking.stability[:, 0]), digits=0))
    title = ranking.scheme.capitalize() if ranking.by_paper else f"Ranks by {', '.join(ranking.metrics)}"
    note = (
        "Low is good. Sum-rank: ranks by the value of each metric, added up. Mean-case-rank: ranks in each case, "
        "averaged. First in resamples: how often a method is first when the cases are drawn anew; ties share it."
    )
    return Table(_titled(title, *comparisons), note, "method", ranking.methods, columns)


def review_table(reviews: Reviews) -> Table:
    """Predicted Dice, expected volumes and intervals of each method, judged by the ground truth."""
    frame = pd.DataFrame(map(asdict, reviews.judgements.values()))
    columns = [
        Column(title, list(frame[name].astype(float)), signed="bias" in title, arrow=arrow)
        for title, name, arrow in (
            ("Dice MAE", "dice_error", "↓"),
            ("bias", "dice_bias", ""),
            ("Spearman", "spearman", "↑"),
            ("AURC", "aurc", "↓"),
            ("excess AURC", "excess_aurc", "↓"),
            ("volume bias (share)", "volume_bias_share", ""),
            ("interval held", "interval_coverage", ""),
            ("width (ml)", "interval_width_ml", ""),
        )
        if not name.startswith("interval") or frame[name].notna().any()
    ]
    note = (
        f"All structures of {len(reviews.cases)} cases together. Dice MAE and bias: of predicted less true Dice. AURC: "
        "area under the risk–coverage curve; excess: above that of the best order. Volume bias: expected over true "
        "volumes, less 1. Interval held: share of true volumes in their fitted interval."
    )
    return Table("What the confidences are good for", note, "method", list(reviews.judgements), columns)


TABLES: dict[str, Callable[[Comparison, str | None], Table]] = {
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
    voxels: str | None = None,
    intervals: bool = True,
    digits: int | None = None,
) -> str:
    """Return a table of the report as text.

    Args:
        results: data set -> method -> result, as :func:`read_results` gives them.
        name: ``methods``, ``differences``, ``ece``, ``expected``, ``published``, ``structures``, ``scores``, ``cases``
            or, over all data sets, ``ranks``, ``sum-rank`` or ``mean-case-rank``.
        form: ``markdown``, ``latex`` or ``csv``.
        voxels: voxel set of ECE and CECE; by default those that the table is about.
        intervals: whether to show intervals and p-values.
        digits: after the decimal point; by default the metric's own. CSV has all.

    Raises:
        ValueError: no such table, format or voxel set, or nothing to compare.
    """
    for argument, value, known in (("table", name, [*TABLES, "ranks", *SCHEMES]), ("format", form, FORMATS)):
        if value not in known:
            raise ValueError(f"{argument}: expected one of {', '.join(known)}; got {value}.")
    comparisons = compare_all(results)
    for comparison in comparisons:
        comparison.check_voxels(voxels or comparison.main)
    if name in TABLES:
        tables = [TABLES[name](one, voxels) for one in comparisons]
    else:
        scheme = next((one for one in SCHEMES if one == name), None)
        ranking = rank_methods(comparisons, scheme, voxels) if scheme else rank_by_scores(comparisons, voxels)
        if ranking is None:
            raise ValueError("ranks need the voxel sets near and image, which not every summary has: evaluate again.")
        tables = [rank_table(ranking, comparisons)]
    if form == "csv" and len(tables) > 1:
        raise ValueError(f"format: csv holds one table; got {len(tables)} data sets. Give the summaries of one.")
    return "\n".join(FORMATS[form](table, intervals=intervals, digits=digits) for table in tables)
