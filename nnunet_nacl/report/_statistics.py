"""Whether methods differ (paired tests over cases), and their order (rankings)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.stats import rankdata, wilcoxon

from nnunet_nacl.metrics import PAPER_METRICS, Estimate, Interval, Voxels, ratio, resample_weights
from nnunet_nacl.report._comparison import POOLED, Comparison
from nnunet_nacl.report._metrics import (
    DICE,
    Metric,
    judging_metrics,
    paper_metrics,
    segmentation_metrics,
)
from nnunet_nacl.typing import Floats

LEVEL = 0.05
SCHEMES = ("sum-rank", "mean-case-rank")
_RANKED_RESAMPLES = 1000


@dataclass(frozen=True)
class Difference:
    """A method minus another, over the cases and structures that have a value in both, with paired 95 % interval.

    ``p``: from Wilcoxon's test over the cases, or a bootstrap test if a single case has no value; ``p_holm``:
    corrected; ``tested``: the sign of what was tested, the sum of the signed ranks or the mean.
    """

    mean: float
    interval: Interval
    p: float
    p_holm: float
    tested: float

    def is_told_apart(self, num_methods: int = 2) -> bool:
        """Whether mean, interval and test agree that it is not 0.

        ``num_methods``: if a method was chosen for being the best of them, the level is that of all their pairs.
        """
        agree = self.tested * self.mean > 0 and not self.interval[0] <= 0 <= self.interval[1]
        return agree and bool(self.p_holm * num_methods / 2 < LEVEL)

    @property
    def is_tested(self) -> bool:
        """Whether there were cases enough for a test."""
        return not np.isnan(self.p_holm)


@lru_cache(maxsize=256)  # several tables, and the order of the methods, ask for the same tests
def differences(
    comparison: Comparison, metric: Metric, baseline: str | None = None
) -> dict[str, Difference]:
    """Every other method compared with the baseline."""
    base = comparison[baseline or comparison.baseline]
    others = [method for method in comparison.methods if method is not base]
    gaps = [metric.of(method).minus(metric.of(base)) for method in others]
    p_values = [_p_value(gap) for gap in gaps]
    return {
        method.name: Difference(gap.value, gap.interval, p, p_holm, _tested(gap))
        for method, gap, p, p_holm in zip(others, gaps, p_values, holm(p_values), strict=True)
    }


@dataclass(frozen=True)
class Order:
    """Methods, the best by a metric first; ``leaders``: it and those not significantly worse, ``behind``: others.

    What is significant is corrected for choosing the best. ``can_tell``: whether there are cases enough for any
    difference to be significant, since no test of n cases has a p below 2^(1 − n).
    """

    metric: Metric
    names: list[str]
    leaders: list[str]
    behind: list[str]
    can_tell: bool


def order_by(comparison: Comparison, metric: Metric) -> Order:
    """The methods that have a value of a metric, ordered by it; among ties the baseline comes first."""
    sign = -1 if metric.higher_is_better else 1
    values = {method.name: sign * metric.of(method).value for method in comparison.methods}
    known = [name for name, value in values.items() if not np.isnan(value)]
    names = sorted(known, key=lambda name: (values[name], name != comparison.baseline))
    gaps = differences(comparison, metric, names[0]) if names else {}
    behind = [
        name
        for name in names[1:]
        if gaps[name].is_told_apart(len(names)) and sign * gaps[name].mean > 0
    ]
    num_methods = len(names)
    lowest_p = 2.0 ** (1 - len(comparison.cases)) * (num_methods - 1)  # after Holm's correction
    return Order(
        metric=metric,
        names=names,
        leaders=[name for name in names if name not in behind],
        behind=behind,
        can_tell=lowest_p * num_methods / 2 < LEVEL,
    )


@dataclass(frozen=True)
class AgainstBaseline:
    """A method compared with the baseline.

    ``dice`` is the difference in Dice, None if there is none; ``better`` and ``worse`` are the calibration metrics that
    differ significantly.
    """

    name: str
    dice: Difference | None
    better: list[Metric]
    worse: list[Metric]


def against_baseline(comparison: Comparison, name: str) -> AgainstBaseline:
    """Compare a method with the baseline by the metrics that judge calibration, and by the paper's."""
    better: list[Metric] = []
    worse: list[Metric] = []
    for metric in dict.fromkeys(judging_metrics(comparison) + paper_metrics(comparison)):
        gap = differences(comparison, metric)[name]
        if gap.is_told_apart():
            improves = (gap.mean > 0) == metric.higher_is_better
            (better if improves else worse).append(metric)
    dice = differences(comparison, DICE)[name]
    return AgainstBaseline(name, None if np.isnan(dice.mean) else dice, better, worse)


def _p_value(gap: Estimate) -> float:
    """Wilcoxon's p over the cases' values; where a single case has no value, that of a two-sided bootstrap test.

    From differences d of R resamples of n cases, never below that of the most extreme of the 2^n signs:

        p = 2 (1 + min(#{d ≤ 0}, #{d ≥ 0})) / (1 + R)

    References:
        Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 4.4 (the 1 that is added).
    """
    if gap.num_known < 2:
        return np.nan
    if gap.by_case is not None:
        unequal = _unequal(gap.by_case)
        return float(wilcoxon(unequal).pvalue) if unequal.size else 1.0
    drawn = gap.resampled(resample_weights(gap.num_cases))
    known = drawn[~np.isnan(drawn)].round(12)
    fewer = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    return float(max(min(1.0, 2 * (1 + fewer) / (1 + known.size)), 2.0 ** (1 - gap.num_known)))


def _tested(gap: Estimate) -> float:
    if gap.by_case is None:
        return float(np.sign(gap.value))
    unequal = _unequal(gap.by_case)
    return float(np.sign((np.sign(unequal) * rankdata(np.abs(unequal))).sum()))


def _unequal(by_case: Floats) -> Floats:
    """The known ones but zeros, for which Wilcoxon's exact test has no rank; rounding errors count as 0."""
    unequal: Floats = by_case[~np.isnan(by_case)].round(12)
    return np.asarray(unequal[unequal != 0])


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values after Holm's step-down correction; NaN ones (tests that could not be made) stay NaN and do not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.array(p_values)
    order = np.argsort(p)  # NaN ones come last
    factors = np.count_nonzero(~np.isnan(p)) - np.arange(p.size)
    corrected = np.maximum.accumulate(np.minimum(p[order] * factors, 1))
    return [float(p) for p in corrected[np.argsort(order)]]


@dataclass(frozen=True)
class Ranking:
    """Ranks of methods: by each metric's value, added up (sum-rank), or in each case, averaged (mean-case-rank).

    ``ranks`` has a row for each method, a column for each metric, and one for ``overall``; ``first``: share of the
    bootstrap resamples of the cases in which a method is first; ties share the count.
    """

    scheme: str
    ranks: pd.DataFrame
    first: Floats


def rank_by_scores(
    comparisons: Sequence[Comparison], voxels: Voxels | None = None
) -> Ranking | None:
    """Sum-rank by Dice and the metrics that judge calibration; None if data sets differ in these."""
    judging, *others = (judging_metrics(comparison, voxels) for comparison in comparisons)
    alike = judging and all(metrics == judging for metrics in others)
    return _rank(comparisons, "sum-rank", [DICE, *judging]) if alike else None


def rank_methods(
    comparisons: Sequence[Comparison], scheme: str, voxels: Voxels | None = None
) -> Ranking:
    """Rank the methods by the paper's metrics: Dice, HD95 (if measured), ECE and CECE."""
    voxels = voxels or _paper_voxels(comparisons)
    if scheme == "mean-case-rank" and voxels in POOLED:
        raise ValueError(
            f"voxels: mean-case-rank needs the ECE of each case; over the {voxels} it is pooled."
        )
    metrics = min((segmentation_metrics(comparison) for comparison in comparisons), key=len)
    return _rank(comparisons, scheme, [*metrics, *(Metric(name, voxels) for name in PAPER_METRICS)])


def _paper_voxels(comparisons: Sequence[Comparison]) -> Voxels:
    shared = [
        name for name in comparisons[0].voxels if all(name in other.voxels for other in comparisons)
    ]
    if not shared:
        raise ValueError("rankings need a voxel set that all data sets have.")
    return next((voxels for voxels in shared if voxels not in POOLED), shared[0])


def all_rankings(comparisons: Sequence[Comparison], voxels: Voxels | None = None) -> list[Ranking]:
    """Rankings by the judging metrics, then by the paper's, as far as their voxel sets were evaluated."""
    of_paper = voxels or _paper_voxels(comparisons)
    schemes = SCHEMES if of_paper not in POOLED else SCHEMES[:1] if voxels else ()
    found = [
        rank_by_scores(comparisons),
        *(rank_methods(comparisons, scheme, of_paper) for scheme in schemes),
    ]
    return [ranking for ranking in found if ranking is not None]


def _rank(comparisons: Sequence[Comparison], scheme: str, metrics: list[Metric]) -> Ranking:
    names = comparisons[0].names
    combine = np.sum if scheme == "sum-rank" else np.mean
    ranked = []
    for number, comparison in enumerate(comparisons):
        if sorted(comparison.names) != sorted(names):
            got = f"{', '.join(names)} and {', '.join(comparison.names)}"
            raise ValueError(f"rankings need the same methods in every data set; got {got}.")
        num_cases = len(comparison.cases)
        weights = np.vstack(
            [np.ones(num_cases), resample_weights(num_cases, _RANKED_RESAMPLES, number)]
        )
        of_metrics = [
            _ranks([metric.of(comparison[name]) for name in names], metric, scheme, weights)
            for metric in metrics
        ]
        ranked.append(np.stack(of_metrics, axis=-1))
    by_metric, *resampled = combine(ranked, axis=0)
    # Sums of the same ranks in another order may differ in their last bit
    drawn = combine(resampled, axis=-1).round(9)
    is_first = drawn == drawn.min(-1, keepdims=True)
    first = (is_first / is_first.sum(-1, keepdims=True)).mean(0)
    ranks_of = pd.DataFrame(by_metric, names, [metric.title for metric in metrics])
    ranks_of["overall"] = combine(by_metric, axis=-1)
    return Ranking(scheme, ranks_of, first)


def _ranks(estimates: Sequence[Estimate], metric: Metric, scheme: str, weights: Floats) -> Floats:
    """(resamples, M) ranks by a metric, in each of the resamples.

    For mean-case-rank, means over cases of the ranks in each case. Cases in which any method has no value are left out;
    without any other, all methods share their places.
    """
    if scheme == "sum-rank":
        values = np.column_stack([estimate.resampled(weights) for estimate in estimates])
        return ranks(values, metric.higher_is_better)
    by_case = np.column_stack(
        [estimate.by_case for estimate in estimates if estimate.by_case is not None]
    )
    known = np.isfinite(by_case).all(axis=1)
    means = ratio(
        weights[:, known] @ ranks(by_case[known], metric.higher_is_better),
        weights[:, known].sum(1, keepdims=True),
    )
    return np.nan_to_num(means, nan=(len(estimates) + 1) / 2)


def ranks(values: Floats, higher_is_better: bool) -> Floats:
    """Ranks along the last axis, from 1 for the best; equal ones share their mean rank, NaN ones are last.

    >>> ranks(np.array([0.112, 0.097, 0.112]), False)
    array([2.5, 1. , 2.5])
    """
    signed = -values if higher_is_better else values
    return np.asarray(rankdata(np.where(np.isnan(signed), np.inf, signed), axis=-1))
