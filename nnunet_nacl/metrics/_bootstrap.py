"""The bootstrap over cases."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 2000


@lru_cache(maxsize=8)
def resample_weights(num_cases: int, resamples: int = NUM_RESAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """How often each bootstrap resample has drawn each case.

    The seed is fixed, so that the same cases give the same intervals, and the resamples are the same for every metric
    and method, so that differences between methods are paired.

    Args:
        num_cases: how many cases there are.
        resamples: how many resamples are drawn.
        seed: of the draw.

    Returns:
        float64 (resamples, cases), not to be written to. Weighted sums over cases are sums over the resampled cases.
    """
    drawn = np.random.default_rng(seed).integers(0, num_cases, (resamples, num_cases))
    offsets = num_cases * np.arange(resamples)[:, None]
    counts = np.bincount((drawn + offsets).ravel(), minlength=resamples * num_cases)
    weights = counts.reshape(resamples, num_cases).astype(np.float64)
    weights.setflags(write=False)
    return weights
