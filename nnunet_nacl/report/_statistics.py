"""Whether methods differ (paired tests over cases), and in which order they come (rankings)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.stats import rankdata, wilcoxon

from nnunet_nacl.metrics import Interval, resample_weights
from nnunet_nacl.report._comparison import POOLED, Array, Comparison
from nnunet_nacl.report._metrics import DICE, Estimate, Metric, judging_metrics, segmentation_metrics

LEVEL = 0.05
Scheme = Literal["sum-rank", "mean-case-rank"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_RANKED_RESAMPLES = 1000


@dataclass(frozen=True)
class Difference:
    """A method minus another in one metric, over the cases and structures that have a value in both.

    With its paired 95 % bootstrap interval and p of a two-sided test: Wilcoxon's over the cases, or a paired bootstrap
    test for a metric that a single case has no value of. ``p_holm`` is corrected for the number of methods compared;
    ``can_show``: whether so many cases could show a difference at all.
    """

    mean: float
    interval: Interval
    p: float
    p_holm: float
    can_show: bool

    @property
    def is_told_apart(self) -> bool:
        """Whether the test is significant and the interval does not hold 0."""
        return bool(self.p_holm < LEVEL) and not self.interval[0] <= 0 <= self.interval[1]


def differences(comparison: Comparison, metric: Metric, baseline: str | None = None) -> dict[str, Difference]:
    """Every other method compared with the baseline."""
    baseline = comparison.baseline if baseline is None else baseline
    if (metric, baseline) in comparison.cache:
        found: dict[str, Difference] = comparison.cache[metric, baseline]
        return found
    base = metric.of(comparison[baseline])
    gaps = {one.name: metric.of(one).minus(base) for one in comparison.methods if one.name != baseline}
    p_values = [_p_value(gap) for gap in gaps.values()]
    num_tests = max(int(np.sum(~np.isnan(p_values))), 1)
    by_method = {}
    for (name, gap), p, corrected in zip(gaps.items(), p_values, holm(p_values), strict=True):
        num_signs = gap.num_known if gap.by_case is None else int(np.count_nonzero(np.nan_to_num(gap.by_case)))
        can_show = num_tests * _lowest_p(num_signs) < LEVEL
        by_method[name] = Difference(gap.value, gap.interval, p, corrected, can_show)
    comparison.cache[metric, baseline] = by_method
    return by_method


@dataclass(frozen=True)
class Order:
    """Methods that have a value, the best first (of equal ones the baseline), and whether the cases show it.

    ``leaders`` are the best and those not told apart from it; ``too_few``: too few cases to tell any of them apart.
    """

    names: list[str]
    leaders: list[str]
    too_few: bool

    @property
    def behind(self) -> list[str]:
        """Those that are told apart from the best."""
        return [name for name in self.names if name not in self.leaders]


def order_by(comparison: Comparison, metric: Metric) -> Order:
    """The methods that have a value of a metric, the best first, and which of them are told apart from it."""
    sign = -1 if metric.higher_is_better else 1
    values = {method.name: sign * metric.of(method).value for method in comparison.methods}
    known = [name for name, value in values.items() if not np.isnan(value)]
    names = sorted(known, key=lambda name: (values[name], name != comparison.baseline))
    if not names:
        return Order([], [], too_few=False)
    gaps = differences(comparison, metric, names[0])
    tied = [name for name in names[1:] if not gaps[name].is_told_apart]
    different = [gaps[name] for name in tied if gaps[name].mean != 0]
    return Order(names, [names[0], *tied], bool(different) and not any(gap.can_show for gap in different))


def _p_value(gap: Estimate) -> float:
    """Of the test for the metric: on the cases' values, or where a single case has none, on the resamples."""
    if gap.by_case is not None:
        return wilcoxon_signed_rank(gap.by_case)
    if gap.num_known < 2:
        return float("nan")
    return max(bootstrap_test(gap.resampled(resample_weights(gap.num_cases))), _lowest_p(gap.num_known))


def _lowest_p(num_signs: int) -> float:
    """The lowest p that so many differences can have: the most extreme of their 2^n signs, one way or the other."""
    return float(2.0 ** (1 - num_signs))


def bootstrap_test(resampled: Array) -> float:
    r"""P of the two-sided bootstrap test that a difference is 0, from differences (R,) over resamples of the cases.

    .. math:: p = \min\left(1, 2 \frac{1 + \min(\#\{d \le 0\}, \#\{d \ge 0\})}{1 + R}\right)

    References:
        Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 4.4 (the 1 that is added).

    >>> bootstrap_test(np.array([0.1, 0.2, 0.3, -0.1]))
    0.8
    """
    known = resampled[~np.isnan(resampled)].round(12)  # between equal values, only rounding errors are left
    if known.size == 0:
        return float("nan")
    fewer = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    return float(min(1.0, 2 * (1 + fewer) / (1 + known.size)))


def wilcoxon_signed_rank(differences: Array) -> float:
    """P of the two-sided Wilcoxon signed-rank test that paired differences (cases,) are symmetric about 0.

    Those of 0 (to 12 digits) are left out (Wilcoxon's own way); if all are 0, p is 1. Of fewer than two p is NaN.
    """
    known = differences[~np.isnan(differences)].round(12)  # between equal values, only rounding errors are left
    if known.size < 2:
        return float("nan")
    return float(wilcoxon(known).pvalue) if known.any() else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values after Holm's step-down correction: the i-th smallest times (number − i), never below the one before.

    NaN ones (tests that could not be made) stay NaN and do not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.array(p_values)
    order = np.argsort(p)  # NaN ones come last
    factors = np.count_nonzero(~np.isnan(p)) - np.arange(p.size)
    corrected = np.empty(p.size)
    corrected[order] = np.maximum.accumulate(np.minimum(p[order] * factors, 1))
    return [float(one) for one in corrected]


@dataclass(frozen=True)
class Ranking:
    """Methods in the order of a scheme.

    ``sum-rank``: methods are ranked by each metric's value over the cases; ranks are added up over data sets and
    metrics. ``mean-case-rank``: they are ranked in each case, and the ranks are averaged. ``by_metric`` (methods,
    metrics), ``overall`` (methods,): low is good. ``places`` are from 1; equal methods share the best. ``stability``
    (methods, places): share of the bootstrap resamples of the cases in which a method has each place; shared if equal.
    """

    scheme: Scheme
    methods: list[str]
    metrics: list[str]
    by_metric: Array
    overall: Array
    places: Array
    stability: Array

    @property
    def by_paper(self) -> bool:
        """Whether it is by the paper's metrics."""
        return self.metrics[-1].startswith("CECE")


def rank_by_scores(comparisons: Sequence[Comparison], voxels: str | None = None) -> Ranking | None:
    """Rank the methods by Dice, NLL per foreground voxel (without image not) and ECE, by default near (sum-rank).

    None if a data set has neither near nor image, or not what the others have.
    """
    judging = judging_metrics(comparisons[0], voxels)
    if not judging or any(judging_metrics(one, voxels) != judging for one in comparisons):
        return None
    return _rank(comparisons, "sum-rank", [DICE, *judging])


def rank_methods(comparisons: Sequence[Comparison], scheme: Scheme, voxels: str | None = None) -> Ranking:
    """Rank the methods by Dice, HD95 (if measured), ECE and CECE, as the paper does, over one or several data sets.

    The voxel set is by default the first of all data sets that labels choose, or else the first of all.
    """
    voxels = voxels or _paper_voxels(comparisons)
    if scheme == "mean-case-rank" and voxels in POOLED:
        raise ValueError(f"voxels: mean-case-rank needs the ECE of each case; over the {voxels} it is pooled.")
    metrics = min((segmentation_metrics(comparison) for comparison in comparisons), key=len)
    return _rank(comparisons, scheme, [*metrics, Metric("ECE", voxels), Metric("CECE", voxels)])


def _paper_voxels(comparisons: Sequence[Comparison]) -> str:
    shared = [one for one in comparisons[0].voxels if all(one in other.voxels for other in comparisons)]
    if not shared:
        raise ValueError("rankings need a voxel set that all data sets have.")
    return next((voxels for voxels in shared if voxels not in POOLED), shared[0])


def all_rankings(comparisons: Sequence[Comparison], voxels: str | None = None) -> list[Ranking]:
    """By what methods are judged by, then the paper's two, as far as there are the voxel sets that they need."""
    by_scores, of_paper = rank_by_scores(comparisons), voxels or _paper_voxels(comparisons)
    schemes: list[Scheme] = list(SCHEMES) if of_paper not in POOLED else ["sum-rank"] if voxels else []
    by_paper = [rank_methods(comparisons, scheme, of_paper) for scheme in schemes]
    return by_paper if by_scores is None else [by_scores, *by_paper]


def _rank(comparisons: Sequence[Comparison], scheme: Scheme, metrics: list[Metric]) -> Ranking:
    names = comparisons[0].names
    for comparison in comparisons:
        if sorted(comparison.names) != sorted(names):
            raise ValueError(
                f"rankings need the same methods in every data set; got {', '.join(names)} and "
                f"{', '.join(comparison.names)}."
            )
    sampled = [_ranks(one, names, metrics, scheme, seed=number) for number, one in enumerate(comparisons)]
    combine = np.sum if scheme == "sum-rank" else np.mean
    by_metric, resampled = (combine(one, axis=0) for one in zip(*sampled, strict=True))
    overall, places = combine(by_metric, axis=-1), _places(combine(resampled, axis=-1))
    # Of k methods that share k places, each has a k-th of each.
    sharing = (places[:, :, None] == places[:, None, :]).sum(-1)
    has = [(places <= place) & (place < places + sharing) for place in range(1, len(names) + 1)]
    stability = np.stack([(one / sharing).mean(0) for one in has], axis=1)
    return Ranking(scheme, names, [m.title for m in metrics], by_metric, overall, _places(overall), stability)


def _ranks(
    comparison: Comparison, names: list[str], metrics: list[Metric], scheme: Scheme, *, seed: int
) -> tuple[Array, Array]:
    """(M, J) ranks of a data set, and (resamples, M, J) those of its bootstrap resamples."""
    num_cases, of_metrics = len(comparison.cases), []
    weights = np.concatenate([np.ones((1, num_cases)), resample_weights(num_cases, _RANKED_RESAMPLES, seed)])
    for metric in metrics:
        estimates = [metric.of(comparison[name]) for name in names]
        if scheme == "sum-rank":
            values = np.stack([one.resampled(weights) for one in estimates], axis=1)
            of_metrics.append(ranks(values, metric.higher_is_better))
        else:
            by_case = np.stack([one.by_case for one in estimates if one.by_case is not None], axis=1)
            of_metrics.append(mean_case_rank(by_case, metric.higher_is_better, weights))
    first, *others = np.stack(of_metrics, axis=-1)
    return first, np.array(others)


def ranks(values: Array, higher_is_better: bool) -> Array:
    """Ranks along the last axis, from 1 for the best; equal ones share their mean rank, NaN ones the last places.

    >>> ranks(np.array([0.112, 0.097, 0.112]), False)
    array([2.5, 1. , 2.5])
    """
    signed = -values if higher_is_better else values
    ranked: Array = rankdata(np.where(np.isnan(signed), np.inf, signed), axis=-1)
    return ranked


def mean_case_rank(values: Array, higher_is_better: bool, weights: Array) -> Array:
    """(resamples, M) means over cases of the ranks in each case, of values (cases, M) and weights (resamples, cases).

    Cases in which any method has no value are left out; without any other, all methods share their places.
    """
    known = np.isfinite(values).all(axis=1)
    count, num_methods = weights[:, known].sum(1, keepdims=True), values.shape[1]
    total = weights[:, known] @ ranks(values[known], higher_is_better)
    means: Array = np.where(count > 0, total / np.maximum(count, 1), (num_methods + 1) / 2)
    return means


def _places(scores: Array) -> Array:
    # Sums of the same ranks in another order may differ in their last bit.
    places: Array = rankdata(scores.round(9), method="min", axis=-1)
    return places
