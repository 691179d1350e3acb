"""The paper's rankings of methods, over one or several data sets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from nnunet_nacl.metrics import PAPER_METRICS, Estimate, Voxels, case_weights, ratio
from nnunet_nacl.report import (
    DICE,
    LABEL_FREE,
    Column,
    Comparison,
    Metric,
    Table,
)
from nnunet_nacl.typing import Floats

SCHEMES = ("sum-rank", "mean-case-rank")
_RESAMPLES = 1000


@dataclass(frozen=True)
class Ranking:
    """Ranks of methods: by each metric's value, added up (sum-rank), or in each case, averaged (mean-case-rank).

    ``ranks`` has a row for each method, a column for each metric, and one for ``overall``; ``first``: share of the
    bootstrap resamples of the cases in which a method is first; ties share the count.
    """

    scheme: str
    ranks: pd.DataFrame
    first: Floats


def rank_by_scores(comparisons: Sequence[Comparison]) -> Ranking | None:
    """Sum-rank by Dice and the metrics that judge calibration; None if data sets differ in these."""
    judging, *others = (comparison.judging_metrics for comparison in comparisons)
    alike = judging and all(metrics == judging for metrics in others)
    return _ranking(comparisons, "sum-rank", [DICE, *judging]) if alike else None


def rank_methods(comparisons: Sequence[Comparison], scheme: str) -> Ranking:
    """Rank the methods by the paper's metrics: Dice, HD95 (if measured), ECE and CECE."""
    voxels = _paper_voxels(comparisons)
    if scheme == "mean-case-rank" and voxels in LABEL_FREE:
        raise ValueError(
            f"voxels: mean-case-rank needs the ECE of each case; over the {voxels} it is pooled."
        )
    metrics = min((comparison.segmentation_metrics for comparison in comparisons), key=len)
    of_paper = [Metric(name, voxels) for name in PAPER_METRICS]
    return _ranking(comparisons, scheme, [*metrics, *of_paper])


def _paper_voxels(comparisons: Sequence[Comparison]) -> Voxels:
    """The set that is asked for, or the first that labels choose and all data sets have, or any that all have."""
    first, *others = comparisons
    if first.asked:
        return first.asked
    shared = [one for one in first.voxels if all(one in other.voxels for other in others)]
    if not shared:
        raise ValueError("rankings need a voxel set that all data sets have.")
    return next((voxels for voxels in shared if voxels not in LABEL_FREE), shared[0])


def all_rankings(comparisons: Sequence[Comparison]) -> list[Ranking]:
    """Rankings by the judging metrics, then by the paper's, as far as their voxel sets were evaluated."""
    schemes: Sequence[str] = SCHEMES
    if _paper_voxels(comparisons) in LABEL_FREE:
        schemes = SCHEMES[:1] if comparisons[0].asked else ()
    found = [
        rank_by_scores([comparison.over(None) for comparison in comparisons]),
        *(rank_methods(comparisons, scheme) for scheme in schemes),
    ]
    return [ranking for ranking in found if ranking is not None]


def _ranking(comparisons: Sequence[Comparison], scheme: str, metrics: list[Metric]) -> Ranking:
    names = comparisons[0].names
    for comparison in comparisons:
        if sorted(comparison.names) != sorted(names):
            got = f"{', '.join(names)} and {', '.join(comparison.names)}"
            raise ValueError(f"rankings need the same methods in every data set; got {got}.")
    combine = np.sum if scheme == "sum-rank" else np.mean
    of_data_sets = [
        _ranks_in(comparison, names, metrics, scheme, seed)
        for seed, comparison in enumerate(comparisons)
    ]
    of_all, *of_resamples = combine(of_data_sets, axis=0)
    table = pd.DataFrame(of_all, names, [metric.title for metric in metrics])
    table["overall"] = combine(of_all, axis=-1)
    return Ranking(scheme, table, _shares_of_first(combine(of_resamples, axis=-1)))


def _ranks_in(
    comparison: Comparison, names: Sequence[str], metrics: Sequence[Metric], scheme: str, seed: int
) -> Floats:
    """(1 + resamples, methods, metrics) ranks on a data set: of all cases, and of each bootstrap resample of them."""
    drawn = case_weights(comparison.patients, _RESAMPLES, seed)
    weights = np.vstack([np.ones(len(comparison.cases)), drawn])
    rank = _ranks_of_values if scheme == "sum-rank" else _mean_ranks_in_cases
    by_metric = []
    for metric in metrics:
        estimates = comparison.compared[metric].estimates
        of_methods = [estimates[name] for name in names]
        by_metric.append(rank(of_methods, weights, metric.higher_is_better))
    return np.stack(by_metric, axis=-1)


def _ranks_of_values(
    estimates: Sequence[Estimate], weights: Floats, higher_is_better: bool
) -> Floats:
    """(resamples, methods) ranks of the values over each resample."""
    values = np.column_stack([estimate.resampled(weights) for estimate in estimates])
    return _ranks(values, higher_is_better)


def _mean_ranks_in_cases(
    estimates: Sequence[Estimate], weights: Floats, higher_is_better: bool
) -> Floats:
    """(resamples, methods) means over the cases of each resample of the ranks in each case.

    Cases in which any method has no value are left out; without any other, all methods share their places.
    """
    by_case = np.column_stack(
        [estimate.by_case for estimate in estimates if estimate.by_case is not None]
    )
    known = np.isfinite(by_case).all(axis=1)
    sums = weights[:, known] @ _ranks(by_case[known], higher_is_better)
    means = ratio(sums, weights[:, known].sum(1, keepdims=True))
    return np.nan_to_num(means, nan=(len(estimates) + 1) / 2)


def _ranks(values: Floats, higher_is_better: bool) -> Floats:
    """Ranks along the last axis, from 1 for the best; equal ones share their mean rank, NaN ones are last.

    >>> _ranks(np.array([0.112, 0.097, 0.112]), False)
    array([2.5, 1. , 2.5])
    """
    signed = -values if higher_is_better else values
    return np.asarray(rankdata(np.where(np.isnan(signed), np.inf, signed), axis=-1))


def _shares_of_first(overall: Floats) -> Floats:
    """(methods,) in which share of the resamples a method's overall rank (resamples, methods) is the lowest."""
    # Sums of the same ranks in another order may differ in their last bit
    rounded = overall.round(9)
    is_first = rounded == rounded.min(-1, keepdims=True)
    share: Floats = is_first / is_first.sum(-1, keepdims=True)
    return np.asarray(share.mean(0))


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
