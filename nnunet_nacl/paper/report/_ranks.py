"""The paper's rankings of methods, over one or several data sets."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from nnunet_nacl.metrics import (
    LABEL_FREE,
    PAPER_METRICS,
    Estimate,
    case_weights,
    ratio,
)
from nnunet_nacl.patients import patient_numbers
from nnunet_nacl.report import DICE, Comparison, Metric, Table, column, voxels_text
from nnunet_nacl.typing import Floats

_RESAMPLES = 1000
_PATIENTS_TO_RESAMPLE = 3  # resamples of fewer tell nothing

Scheme = Literal["sum-rank", "mean-case-rank"]
"""Methods are ranked by each metric's value, and the ranks added up; or ranked in each case, and the ranks averaged."""
FIRST = "first in resamples (%)"
"""The last column of a ranking: a method's share of the resamples of the cases in which it is first."""


def rankings(comparisons: Sequence[Comparison]) -> list[Table]:
    """Rank by the metrics that judge calibration, then by the paper's."""
    tables = [*rank_by_judging(comparisons), rank_by_paper(comparisons, "sum-rank")]
    if comparisons[0].chosen_voxels not in LABEL_FREE:  # whose ECE no single case has
        tables.append(rank_by_paper(comparisons, "mean-case-rank"))
    return tables


def rank_by_judging(comparisons: Sequence[Comparison]) -> list[Table]:
    """Sum-rank by Dice and the metrics that judge calibration; none if data sets differ in these."""
    judging = comparisons[0].choice.judging
    if any(other.choice.judging != judging for other in comparisons):
        return []
    return [_ranking(comparisons, [DICE, *judging], "sum-rank")]


def rank_by_paper(comparisons: Sequence[Comparison], scheme: Scheme) -> Table:
    """Rank by the paper's metrics: Dice, HD95 (if measured), ECE and CECE."""
    voxels = comparisons[0].chosen_voxels or "foreground"
    metrics = [DICE, *(Metric(name, voxels) for name in PAPER_METRICS)]
    if all(len(comparison.choice.segmentation) > 1 for comparison in comparisons):
        metrics.insert(1, Metric("HD95"))
    return _ranking(comparisons, metrics, scheme)


def _ranking(comparisons: Sequence[Comparison], metrics: Sequence[Metric], scheme: Scheme) -> Table:
    """Rank the methods by each metric and overall, the best first."""
    names = _ranked_methods(comparisons)
    is_by_value = scheme == "sum-rank"
    combine = np.sum if is_by_value else np.mean
    by_dataset = []
    for comparison, weights in zip(comparisons, _resamples(comparisons), strict=True):
        of_metrics = []
        for metric in metrics:
            estimates = [comparison.estimates[metric][name] for name in names]
            if is_by_value:
                values = [one.resampled(weights) for one in estimates]
                of_metrics.append(_rank_rows(metric, np.column_stack(values)))
            else:
                of_metrics.append(_mean_ranks_of_cases(metric, estimates, weights))
        by_dataset.append(np.stack(of_metrics, axis=-1))
    combined = combine(by_dataset, axis=0)  # (1 + resamples, methods, metrics)
    overall = combine(combined, axis=-1)
    first = np.full(len(names), np.nan)
    if min(comparison.num_patients for comparison in comparisons) >= _PATIENTS_TO_RESAMPLE:
        # Sums of the same ranks in another order may differ in their last bit
        resampled = overall[1:].round(9)
        is_first = resampled == resampled.min(-1, keepdims=True)
        first = (is_first / is_first.sum(-1, keepdims=True)).mean(0)
    by_value = "ranks by the value of each metric, added up"
    how = by_value if is_by_value else "ranks in each case, averaged"
    titles = [metric.title for metric in metrics]
    rows = np.argsort(overall[0], kind="stable")
    columns = {
        title: column(ranks[rows], digits=1 if is_by_value else 2)
        for title, ranks in zip([*titles, "overall"], [*combined[0].T, overall[0]], strict=True)
    }
    columns[FIRST] = column(100 * first[rows], digits=0)
    name = scheme.capitalize()
    note = (
        f"Low is good. {name}: {how}. First in resamples: how often a method is first when "
        "cases are resampled; ties share the count (– for fewer than 3 cases or patients). Methods that find nothing "
        "of a structure have no rank."
    )
    dataset = ", ".join(comparison.dataset for comparison in comparisons if comparison.dataset)
    ranked = [names[row] for row in rows]
    return Table(f"{name} by {', '.join(titles)}", dataset, note, ranked, columns)


def _ranked_methods(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the methods, but for those that find nothing of a structure, unless that leaves none."""
    names = comparisons[0].names
    for comparison in comparisons:
        if sorted(comparison.names) != sorted(names):
            got = f"{', '.join(names)} and {', '.join(comparison.names)}"
            raise ValueError(f"rankings need the same methods in every data set; got {got}.")
    unranked = {name for comparison in comparisons for name in comparison.finds_nothing}
    return [name for name in names if name not in unranked] or names


def _resamples(comparisons: Sequence[Comparison]) -> Iterator[Floats]:
    """Count how often each resample drew each case, for each comparison; the first row has every case once.

    Comparisons with one ground truth, such as folds whose models predict the same test cases, share the resamples of
    its cases, even if some lack a case: (1 + resamples, cases).
    """
    truths = [one.results[one.names[0]].folders("ground_truth")[0] for one in comparisons]
    seeds = list(dict.fromkeys(truths))
    for comparison, truth in zip(comparisons, truths, strict=True):
        same = [one.cases for one, other in zip(comparisons, truths, strict=True) if other == truth]
        cases = sorted(set().union(*same))
        patients = patient_numbers(cases, comparison.by_patient)
        drawn = case_weights(patients, _RESAMPLES, seeds.index(truth))
        own = drawn[:, np.isin(cases, comparison.cases)]
        yield np.vstack([np.ones(len(comparison.cases)), own])


def _mean_ranks_of_cases(metric: Metric, estimates: Sequence[Estimate], weights: Floats) -> Floats:
    """Rank the methods in each case, and average over the cases of each resample: (resamples, methods).

    Cases in which any method has no value are left out; without any other, all methods share their ranks.
    """
    by_case = [estimate.by_case for estimate in estimates if estimate.by_case is not None]
    if not by_case:
        pooled = f"{voxels_text(metric.voxels)} it is pooled"
        raise ValueError(f"voxels: mean-case-rank needs the {metric.name} of each case; {pooled}.")
    values = np.column_stack(by_case)
    known = np.isfinite(values).all(axis=1)
    sums = weights[:, known] @ _rank_rows(metric, values[known])
    means = ratio(sums, weights[:, known].sum(1, keepdims=True))
    return np.nan_to_num(means, nan=(len(estimates) + 1) / 2)


def _rank_rows(metric: Metric, values: Floats) -> Floats:
    """Rank each row, from 1 for the best; equal values share their mean rank, NaN ones are last.

    >>> _rank_rows(Metric("ECE"), np.array([[0.112, 0.097, 0.112]]))
    array([[2.5, 1. , 2.5]])
    """
    ascending = not metric.definition.higher_is_better
    return np.asarray(pd.DataFrame(values).rank(axis=1, ascending=ascending, na_option="bottom"))
