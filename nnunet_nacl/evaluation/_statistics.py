"""Means over cases and how sure they are."""

from collections.abc import Sequence

import numpy as np

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
