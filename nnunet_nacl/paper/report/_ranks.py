"""The paper's rankings of methods, over one or several data sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from nnunet_nacl.metrics import (
    BY_LABEL,
    LABEL_FREE,
    PAPER_METRICS,
    Estimate,
    Voxels,
    case_weights,
    ratio,
)
from nnunet_nacl.report import DICE, Comparison, Metric, Table, column, voxels_text
from nnunet_nacl.typing import Floats

_RESAMPLES = 1000


Scheme = Literal["sum-rank", "mean-case-rank"]
SUM_RANK: Scheme = "sum-rank"
"""Methods are ranked by each metric's value, and the ranks added up."""
MEAN_CASE_RANK: Scheme = "mean-case-rank"
"""Methods are ranked in each case, and the ranks averaged."""


@dataclass(frozen=True)
class Ranking:
    """Ranks of methods: by each metric's value, added up (sum-rank), or in each case, averaged (mean-case-rank).

    ``ranks`` has a row for each method, a column for each metric, and one for ``overall``; ``first``: share of the
    bootstrap resamples of the cases in which a method is first; ties share the count; ``datasets``: their names.
    """

    scheme: Scheme
    ranks: pd.DataFrame
    first: Floats
    datasets: Sequence[str]

    def table(self) -> Table:
        """Return the ranks, and how often a method comes first when cases are resampled."""
        digits = 2
        how = "ranks in each case, averaged"
        if self.scheme == SUM_RANK:
            digits = 1
            how = "ranks by the value of each metric, added up"
        columns = {
            str(title): column(values, digits=digits) for title, values in self.ranks.items()
        }
        columns["first in resamples (%)"] = column(100 * self.first, digits=0)
        *metrics, _ = self.ranks.columns
        title = f"{self.scheme.capitalize()} by {', '.join(metrics)}"
        note = (
            f"Low is good. {self.scheme.capitalize()}: {how}. First in resamples: how often a method is first when "
            "cases are resampled; ties share the count. Methods that find nothing of a structure have no rank."
        )
        datasets = ", ".join(filter(None, self.datasets))
        return Table(title, datasets, note, list(self.ranks.index), columns)


def rank_by_scores(comparisons: Sequence[Comparison]) -> list[Ranking]:
    """Sum-rank by Dice and the metrics that judge calibration; none if data sets differ in these."""
    judging, *others = (comparison.choice.judging for comparison in comparisons)
    if not judging or any(metrics != judging for metrics in others):
        return []
    return [_rank_by([DICE, *judging], comparisons, SUM_RANK)]


def rank_methods(comparisons: Sequence[Comparison], scheme: Scheme) -> Ranking:
    """Rank the methods by the paper's metrics: Dice, HD95 (if measured), ECE and CECE."""
    voxels = _paper_voxels(comparisons)
    metrics = [DICE, *(Metric(name, voxels) for name in PAPER_METRICS)]
    if all(len(comparison.choice.segmentation) > 1 for comparison in comparisons):
        metrics.insert(1, Metric("HD95"))
    return _rank_by(metrics, comparisons, scheme)


def all_rankings(comparisons: Sequence[Comparison]) -> list[Ranking]:
    """Rankings by the judging metrics, then by the paper's, as far as their voxel sets were evaluated."""
    schemes = [SUM_RANK, MEAN_CASE_RANK]
    if _paper_voxels(comparisons) in LABEL_FREE:  # whose ECE no single case has
        schemes = [SUM_RANK] if comparisons[0].chosen_voxels else []
    by_paper = [rank_methods(comparisons, scheme) for scheme in schemes]
    return [*rank_by_scores(comparisons), *by_paper]


def _paper_voxels(comparisons: Sequence[Comparison]) -> Voxels:
    """Choose the set that is asked for, or the first that all data sets have; labels choose the first ones."""
    shared = [
        voxels
        for voxels in (*BY_LABEL, *LABEL_FREE)
        if all(voxels in comparison.voxels for comparison in comparisons)
    ]
    return comparisons[0].chosen_voxels or shared[0]


def _rank_by(
    metrics: Sequence[Metric], comparisons: Sequence[Comparison], scheme: Scheme
) -> Ranking:
    names = comparisons[0].names
    for comparison in comparisons:
        if sorted(comparison.names) != sorted(names):
            got = f"{', '.join(names)} and {', '.join(comparison.names)}"
            raise ValueError(f"rankings need the same methods in every data set; got {got}.")
    found = [name for name in names if not any(name in one.finds_nothing for one in comparisons)]
    names = found or names
    combine = np.sum if scheme == SUM_RANK else np.mean
    on_data_sets = []
    for seed, comparison in enumerate(comparisons):
        drawn = case_weights(comparison.patients, _RESAMPLES, seed)
        weights = np.vstack([np.ones(len(comparison.cases)), drawn])  # first of all cases
        places = []
        for metric in metrics:
            estimates = [comparison.estimates[metric][name] for name in names]
            if scheme == MEAN_CASE_RANK:
                places.append(_mean_places(metric, estimates, weights))
            else:
                values = np.column_stack([estimate.resampled(weights) for estimate in estimates])
                places.append(_places(values, metric.definition.higher_is_better))
        on_data_sets.append(np.stack(places, axis=-1))
    combined = combine(on_data_sets, axis=0)  # (1 + resamples, methods, metrics)
    overall = combine(combined, axis=-1)
    table = pd.DataFrame(combined[0], names, [metric.title for metric in metrics])
    table["overall"] = overall[0]
    # Sums of the same ranks in another order may differ in their last bit
    rounded = overall[1:].round(9)
    is_first = rounded == rounded.min(-1, keepdims=True)
    first = (is_first / is_first.sum(-1, keepdims=True)).mean(0)
    return Ranking(scheme, table, first, [comparison.dataset for comparison in comparisons])


def _mean_places(metric: Metric, estimates: Sequence[Estimate], weights: Floats) -> Floats:
    """Average the methods' places in each case over the cases of each resample: (resamples, methods).

    Cases in which any method has no value are left out; without any other, all methods share their places.
    """
    by_case = [estimate.by_case for estimate in estimates if estimate.by_case is not None]
    if not by_case:
        pooled = f"{voxels_text(metric.voxels)} it is pooled"
        raise ValueError(f"voxels: mean-case-rank needs the {metric.name} of each case; {pooled}.")
    values = np.column_stack(by_case)
    known = np.isfinite(values).all(axis=1)
    sums = weights[:, known] @ _places(values[known], metric.definition.higher_is_better)
    means = ratio(sums, weights[:, known].sum(1, keepdims=True))
    return np.nan_to_num(means, nan=(len(estimates) + 1) / 2)


def _places(values: Floats, higher_is_better: bool | None) -> Floats:
    """Rank along the last axis, from 1 for the best; equal values share their mean place, NaN ones are last.

    >>> _places(np.array([0.112, 0.097, 0.112]), False)
    array([2.5, 1. , 2.5])
    """
    signed = -values if higher_is_better else values
    return np.asarray(rankdata(np.where(np.isnan(signed), np.inf, signed), axis=-1))
