"""Whether methods differ (paired tests over cases), and in which order they come (rankings)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

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

    With its 95 % paired bootstrap interval and p of the two-sided Wilcoxon signed-rank test over the cases, or, for a
    metric that a single case has no value of, of the paired bootstrap test; NaN for fewer than two cases. ``p_holm`` is
    corrected for the number of methods compared; ``can_show``: whether so many cases could show a difference at all.
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
    num_tests = int(np.sum(~np.isnan(p_values)))
    by_method = {}
    for (name, gap), p, corrected in zip(gaps.items(), p_values, holm(p_values), strict=True):
        num_signs = gap.num_known if gap.by_case is None else int(np.count_nonzero(np.nan_to_num(gap.by_case)))
        can_show = max(num_tests, 1) * _lowest_p(num_signs) < LEVEL
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
    if gap.by_case is not None:
        return wilcoxon_signed_rank(gap.by_case)
    if gap.num_known < 2:
        return float("nan")
    return max(bootstrap_test(gap.resampled(resample_weights(gap.num_cases))), _lowest_p(gap.num_known))


def _lowest_p(num_signs: int) -> float:
    """The lowest p that so many differences can have: the most extreme of their 2^n signs, one way or the other."""
    return float(2.0 ** (1 - num_signs))


def bootstrap_test(resampled: Array) -> float:
    r"""P of the two-sided bootstrap test that a difference is 0.

    .. math:: p = \min\left(1, 2 \frac{1 + \min(\#\{d \le 0\}, \#\{d \ge 0\})}{1 + R}\right)

    Args:
        resampled: (R,) differences over resamples of the cases; NaN ones are left out.

    Returns:
        p in (0, 1]; NaN if there is no difference.

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
    """P of the two-sided Wilcoxon signed-rank test that paired differences are symmetric about 0.

    Differences of 0 (to 12 digits) are left out (Wilcoxon's own way); if all are 0, p is 1.

    Args:
        differences: (cases,); NaN ones are left out.

    Returns:
        p in [0, 1]; NaN for fewer than two differences.

    References:
        Wilcoxon, Biometrics Bulletin 1(6), 1945; SciPy's implementation, exact for few cases.
    """
    from scipy.stats import wilcoxon

    known = differences[~np.isnan(differences)].round(12)  # between equal values, only rounding errors are left
    if known.size < 2:
        return float("nan")
    return float(wilcoxon(known).pvalue) if known.any() else 1.0


def holm(p_values: list[float]) -> list[float]:
    """p-values after Holm's step-down correction: the i-th smallest times (number − i), never below the one before.

    Args:
        p_values: NaN ones (tests that could not be made) stay NaN and do not count.

    References:
        Holm, Scandinavian Journal of Statistics 6(2), 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if not np.isnan(p))
    corrected = [float("nan")] * len(p_values)
    highest = 0.0
    for number, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - number)))
        corrected[place] = highest
    return corrected


@dataclass(frozen=True)
class Ranking:
    """Methods in the order of a scheme.

    ``sum-rank``: methods are ranked by each metric's value over the cases; ranks are added up over data sets and
    metrics. ``mean-case-rank``: they are ranked in each case, and the ranks are averaged. Low is good: ``by_metric``
    (methods, metrics) and ``overall`` (methods,). ``stability`` (methods, places) is the share of the bootstrap
    resamples of the cases in which a method has each place; equal methods share their places.
    """

    scheme: Scheme
    methods: list[str]
    metrics: list[str]
    by_metric: Array
    overall: Array
    stability: Array

    @property
    def places(self) -> Array:
        """(M,) place of each method, from 1; equal ones share the best."""
        return _places(self.overall)


def rank_by_scores(comparisons: Sequence[Comparison], voxels: str | None = None) -> Ranking | None:
    """Rank the methods by Dice, NLL per foreground voxel (without image not) and ECE, by default near (sum-rank).

    Returns:
        None if a data set has neither near nor image, or not what the others have.
    """
    for comparison in comparisons if voxels else ():
        comparison.check_voxels(voxels or "")
    judging = judging_metrics(comparisons[0], voxels)
    if not judging or any(judging_metrics(one, voxels) != judging for one in comparisons):
        return None
    return _rank(comparisons, "sum-rank", [DICE, *judging])


def rank_methods(comparisons: Sequence[Comparison], scheme: Scheme, *, voxels: str = "foreground") -> Ranking:
    """Rank the methods by Dice, HD95 (if measured), ECE and CECE, as the paper does, over one or several data sets."""
    for comparison in comparisons:
        comparison.check_voxels(voxels)
    if scheme == "mean-case-rank" and voxels in POOLED:
        raise ValueError(
            f"voxels: mean-case-rank needs the ECE of each case; over the {voxels} it is pooled over cases."
        )
    metrics = min((segmentation_metrics(comparison) for comparison in comparisons), key=len)
    return _rank(comparisons, scheme, [*metrics, Metric("ECE", voxels), Metric("CECE", voxels)])


def ranked_voxels(comparisons: Sequence[Comparison]) -> str:
    """The voxel set of the paper's ranking: the first of all data sets that labels choose, or else the first of all."""
    first, *others = comparisons
    shared = [voxels for voxels in first.voxels if all(voxels in other.voxels for other in others)]
    if not shared:
        raise ValueError("rankings need a voxel set that all data sets have.")
    return next((voxels for voxels in shared if voxels not in POOLED), shared[0])


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
    by_metric = combine([exact for exact, _ in sampled], axis=0)
    resampled = combine([resamples for _, resamples in sampled], axis=0)
    stability = _shares_of_places(_places(combine(resampled, axis=-1)))
    return Ranking(scheme, names, [m.title for m in metrics], by_metric, combine(by_metric, axis=-1), stability)


def _shares_of_places(places: Array) -> Array:
    """(M, M) how often each method has each of the places (resamples, M); k that share k places have a k-th of each."""
    sharing = (places[:, :, None] == places[:, None, :]).sum(-1)
    has = [(places <= place) & (place < places + sharing) for place in range(1, places.shape[1] + 1)]
    return np.stack([(one / sharing).mean(0) for one in has], axis=1)


def _ranks(
    comparison: Comparison, names: list[str], metrics: list[Metric], scheme: Scheme, *, seed: int
) -> tuple[Array, Array]:
    """(M, J) ranks of a data set, and (resamples, M, J) those of its bootstrap resamples."""
    exact, resampled = [], []
    weights = resample_weights(len(comparison.cases), _RANKED_RESAMPLES, seed)
    for metric in metrics:
        estimates = [metric.of(comparison[name]) for name in names]
        if scheme == "sum-rank":
            values = np.array([one.value for one in estimates])
            resampled_values = np.stack([one.resampled(weights) for one in estimates], axis=1)
            exact.append(ranks(values, metric.higher_is_better))
            resampled.append(ranks(resampled_values, metric.higher_is_better))
        else:
            by_case = np.stack([one.by_case for one in estimates if one.by_case is not None], axis=1)
            cases = case_ranks(by_case, metric.higher_is_better)
            exact.append(mean_rank(cases, np.ones((1, len(cases))))[0])
            resampled.append(mean_rank(cases, weights))
    return np.stack(exact, axis=-1), np.stack(resampled, axis=-1)


def ranks(values: Array, higher_is_better: bool) -> Array:
    """Ranks along the last axis, from 1 for the best; equal ones share their mean rank, NaN ones the last places.

    >>> ranks(np.array([0.112, 0.097, 0.112]), False)
    array([2.5, 1. , 2.5])
    """
    from scipy.stats import rankdata

    signed = -values if higher_is_better else values
    ranked: Array = rankdata(np.where(np.isnan(signed), np.inf, signed), axis=-1)
    return ranked


def case_ranks(values: Array, higher_is_better: bool) -> Array:
    """(cases, M) ranks in each case; NaN in a case that any method has no value for."""
    known = np.asarray(np.isfinite(values).all(axis=1))
    return np.where(known[:, None], ranks(values, higher_is_better), np.nan)


def mean_rank(ranks_by_case: Array, weights: Array) -> Array:
    """(resamples, M) means over cases; without any case to rank by, all methods share their places."""
    num_methods = ranks_by_case.shape[1]
    known = np.asarray(np.isfinite(ranks_by_case).all(axis=1))
    count = weights @ known.astype(np.float64)
    total = weights @ np.where(known[:, None], ranks_by_case, 0)
    return np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], (num_methods + 1) / 2)


def _places(scores: Array) -> Array:
    from scipy.stats import rankdata

    # Sums of the same ranks in another order may differ in their last bit.
    places: Array = rankdata(scores.round(9), method="min", axis=-1)
    return places
