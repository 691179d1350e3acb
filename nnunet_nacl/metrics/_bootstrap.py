"""The bootstrap over cases or patients."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.typing import Floats

NUM_RESAMPLES = 2000
_PERCENTILES = (2.5, 97.5)

Interval = tuple[float, float]
"""Lower and upper end; both NaN where there is no interval."""


@lru_cache(maxsize=8)
def resample_weights(num_cases: int, resamples: int = NUM_RESAMPLES, seed: int = 0) -> Floats:
    """How often each bootstrap resample drew each case: float64 (resamples, cases), read-only.

    The seed is fixed, so that the same cases give the same intervals, and the resamples are the same for every metric
    and method, so that differences between methods are paired. Weighted sums over cases are sums over the drawn cases.
    """
    drawn = np.random.default_rng(seed).integers(0, num_cases, (resamples, num_cases))
    offsets = num_cases * np.arange(resamples)[:, None]
    counts = np.bincount((drawn + offsets).ravel(), minlength=resamples * num_cases)
    weights = counts.reshape(resamples, num_cases).astype(np.float64)
    weights.setflags(write=False)
    return weights


def case_weights(
    patients: NDArray[np.intp], resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Floats:
    """How often each bootstrap resample of the patients drew each case, whose patient has this number, from 0.

    Two images of one patient are no two witnesses: drawn one by one, they would make intervals too narrow.
    """
    return resample_weights(int(patients.max(initial=-1)) + 1, resamples, seed)[:, patients]


def percentile_interval(resampled: Floats, *, num_cases: int) -> Interval:
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
