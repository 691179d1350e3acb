"""Means of values that may be missing."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnunet_nacl.typing import Floats


def ratio(part: Floats, whole: NDArray[np.number]) -> Floats:
    """``part / whole``; NaN where ``whole`` is 0. Both may be expectations, and so below 1."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def mean_of_known(values: ArrayLike) -> Floats:
    """(...) means of the values (..., n) along the last axis, without NaN; NaN where all values are NaN."""
    of_all = np.asarray(values, np.float64)
    known = ~np.isnan(of_all)
    return ratio(np.where(known, of_all, 0).sum(-1), known.sum(-1))
