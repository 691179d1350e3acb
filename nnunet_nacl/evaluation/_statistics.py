"""Means over cases and how sure they are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
_RESAMPLES = 2000


def mean(values: Sequence[float]) -> float:
    """Mean of those that are not NaN; NaN if all are."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def bootstrap_interval(values: Sequence[float]) -> list[float]:
    """95 % percentile bootstrap interval of the mean over cases.

    2,000 resamples with a fixed seed, so that the same cases give the same interval.

    Args:
        values: one a case; NaN ones are left out.

    Returns:
        Lower and upper end; NaN for fewer than two cases.
    """
    known = np.array([value for value in values if not np.isnan(value)])
    if known.size < 2:
        return [float("nan"), float("nan")]
    from scipy.stats import bootstrap  # half a second to import, which worker processes need not spend

    found = bootstrap(
        (known,),
        np.mean,
        n_resamples=_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return [float(found.low), float(found.high)]


def percentile_interval(resampled: NDArray[np.float64], num_cases: int) -> list[float]:
    """95 % percentile interval of a resampled figure.

    Args:
        resampled: (resamples,); NaN ones, which have no voxels, are left out.
        num_cases: that were resampled.

    Returns:
        Lower and upper end; NaN for fewer than two cases, or without a figure.
    """
    known = resampled[~np.isnan(resampled)]
    if num_cases < 2 or known.size == 0:
        return [float("nan"), float("nan")]
    low, high = np.percentile(known, [50 - 50 * CONFIDENCE, 50 + 50 * CONFIDENCE])
    return [float(low), float(high)]
