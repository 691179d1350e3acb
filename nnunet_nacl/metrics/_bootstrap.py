"""Means over cases, and how sure they are: the bootstrap over cases."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import BinCounts

NUM_RESAMPLES = 2000
_PERCENTILES = (2.5, 97.5)

Array = NDArray[np.float64]
Interval = tuple[float, float]
"""Lower and upper end; both NaN where there is no interval."""


@lru_cache(maxsize=8)
def resample_weights(num_cases: int, resamples: int = NUM_RESAMPLES, seed: int = 0) -> Array:
    """How often each bootstrap resample has drawn each case: float64 (resamples, cases), read-only.

    The seed is fixed, so that the same cases give the same intervals, and the resamples are the same for every metric
    and method, so that differences between methods are paired. Weighted sums over cases are sums over the drawn cases.
    """
    drawn = np.random.default_rng(seed).integers(0, num_cases, (resamples, num_cases))
    offsets = num_cases * np.arange(resamples)[:, None]
    counts = np.bincount((drawn + offsets).ravel(), minlength=resamples * num_cases)
    weights = counts.reshape(resamples, num_cases).astype(np.float64)
    weights.setflags(write=False)
    return weights


def resample_tables(tables: BinCounts, weights: Array) -> BinCounts:
    """Tables (resamples, ..., M): those (cases, ..., M) of the cases that each resample has drawn, added up."""
    parts = (tables.count, tables.hits, tables.confidence, tables.unbinned)
    return BinCounts(*(np.tensordot(weights, part, 1) for part in parts))


def percentile_interval(resampled: Array, *, num_cases: int) -> Interval:
    """95 % percentile interval of a value that was computed on each resample.

    Args:
        resampled: (resamples,) values; NaN ones, which have no voxels, are left out.
        num_cases: how many cases have a value; fewer than two give no interval.
    """
    known = resampled[~np.isnan(resampled)]
    if num_cases < 2 or known.size == 0:
        return np.nan, np.nan
    low, high = np.percentile(known, _PERCENTILES)
    return float(low), float(high)


def bootstrap_interval(values: Sequence[float]) -> Interval:
    """95 % percentile bootstrap interval of the mean over cases, with a fixed seed.

    All cases are resampled, then those with NaN left out, so that it is the interval of comparisons between methods.
    """
    of_cases = np.asarray(values, np.float64)
    known = (~np.isnan(of_cases)).astype(np.float64)
    if known.sum() < 2:
        return np.nan, np.nan
    weights = resample_weights(of_cases.size)
    return percentile_interval(ratio(weights @ np.nan_to_num(of_cases), weights @ known), num_cases=int(known.sum()))


def mean_over_cases(values: Sequence[float]) -> float:
    """Mean of the values that are not NaN; NaN if all are."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan


def ratio(part: NDArray[np.floating], whole: NDArray[np.number]) -> Array:
    """``part / whole``; NaN where ``whole`` is 0. Both may be expectations, and so below 1."""
    quotient: Array = np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)
    return quotient


def mean_of_known(values: Array) -> Array:
    """(...) means along the last axis of those of the values (..., n) that are not NaN; NaN where all are."""
    known = ~np.isnan(values)
    count = known.sum(-1)
    mean: Array = np.where(count > 0, np.where(known, values, 0).sum(-1) / np.maximum(count, 1), np.nan)
    return mean
