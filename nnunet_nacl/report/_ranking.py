"""The order of methods, by what they are judged by and by the paper's figures, and how stable it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from nnunet_nacl.metrics import resample_weights
from nnunet_nacl.report._comparison import Array, Comparison
from nnunet_nacl.report._metrics import DICE, POOLED, Metric, judging_metrics, segmentation_metrics

Scheme = Literal["sum-rank", "mean-case-rank"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_RESAMPLES = 1000


@dataclass(frozen=True)
class Ranking:
    """Methods in the order of a scheme.

    Attributes:
        scheme: ``sum-rank``: methods are ranked by each metric's figure over the cases, and the ranks are added up over
            data sets and metrics. ``mean-case-rank``: they are ranked in each case, and the ranks are averaged.
        methods: their names, M of them.
        metrics: names of the metrics, J of them.
        by_metric: (M, J) sums of ranks over data sets, or mean ranks over cases; low is good.
        overall: (M,) sums over metrics, or means over metrics.
        stability: (M, M) share of the bootstrap resamples of the cases in which a method has each place.
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


def rank_by_scores(comparisons: Sequence[Comparison]) -> Ranking | None:
    """Rank the methods by Dice, NLL per foreground voxel and ECE near (sum-rank), over one or several data sets.

    Args:
        comparisons: one a data set, of the same methods.

    Returns:
        Without near, by ECE over the image; without image, by Dice and ECE near; None if a data set has neither, or
        not what the others have.

    Raises:
        ValueError: different methods.
    """
    judging = judging_metrics(comparisons[0])
    if not judging or any(judging_metrics(one) != judging for one in comparisons):
        return None
    return _rank(comparisons, "sum-rank", [DICE, *judging])


def rank_methods(comparisons: Sequence[Comparison], scheme: Scheme, *, voxels: str = "foreground") -> Ranking:
    """Rank the methods by Dice, HD95 (if measured), ECE and CECE, as the paper does, over one or several data sets.

    Args:
        comparisons: one a data set, of the same methods.
        scheme: see :class:`Ranking`.
        voxels: voxel set of ECE and CECE.

    Raises:
        ValueError: different methods, a data set without that voxel set, or ranks in each case by ECE over near or
            image, which a single case has no figure of.
    """
    for comparison in comparisons:
        if voxels not in comparison.voxels:
            raise ValueError(f"voxels: expected one of {', '.join(comparison.voxels)}; got {voxels}.")
    if scheme == "mean-case-rank" and voxels in POOLED:
        raise ValueError(f"voxels: mean-case-rank is by the ECE of each case; that over the {voxels} is pooled.")
    metrics = min((segmentation_metrics(comparison) for comparison in comparisons), key=len)
    return _rank(comparisons, scheme, [*metrics, Metric("ECE", voxels), Metric("CECE", voxels)])


def ranked_voxels(comparisons: Sequence[Comparison]) -> str:
    """The voxel set of the paper's ranking: the first that labels choose, else the first, that all data sets have.

    Raises:
        ValueError: they share none.
    """
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
    places = _places(combine(resampled, axis=-1))
    stability = np.stack([(places == place).mean(0) for place in range(1, len(names) + 1)], axis=1)
    return Ranking(scheme, names, [m.title for m in metrics], by_metric, combine(by_metric, axis=-1), stability)


def _ranks(
    comparison: Comparison, names: list[str], metrics: list[Metric], scheme: Scheme, *, seed: int
) -> tuple[Array, Array]:
    """(M, J) ranks of a data set, and (resamples, M, J) those of its bootstrap resamples."""
    methods = [comparison[name] for name in names]
    exact, resampled = [], []
    weights = resample_weights(len(comparison.cases), _RESAMPLES, seed)
    for metric in metrics:
        figures = [metric.of(method) for method in methods]
        if scheme == "sum-rank":
            exact.append(ranks(np.array([one.value for one in figures]), metric.higher_is_better))
            found = np.stack([one.resampled(weights) for one in figures], axis=1)
            resampled.append(ranks(found, metric.higher_is_better))
        else:
            by_case = [one.by_case for one in figures]
            cases = case_ranks(np.stack([one for one in by_case if one is not None], axis=1), metric.higher_is_better)
            exact.append(mean_rank(cases, np.ones((1, len(cases))))[0])
            resampled.append(mean_rank(cases, weights))
    return np.stack(exact, axis=-1), np.stack(resampled, axis=-1)


def ranks(figures: Array, higher_is_better: bool) -> Array:
    """Ranks along the last axis, from 1 for the best; equal ones share their mean rank, NaN ones the last places.

    >>> ranks(np.array([0.112, 0.097, 0.112]), False)
    array([2.5, 1. , 2.5])
    """
    from scipy.stats import rankdata

    signed = -figures if higher_is_better else figures
    found: Array = rankdata(np.where(np.isnan(signed), np.inf, signed), axis=-1)
    return found


def case_ranks(figures: Array, higher_is_better: bool) -> Array:
    """(cases, M) ranks in each case; NaN in a case that any method has no figure for."""
    known = np.asarray(np.isfinite(figures).all(axis=1))
    return np.where(known[:, None], ranks(figures, higher_is_better), np.nan)


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
    found: Array = rankdata(scores.round(9), method="min", axis=-1)
    return found
