"""Proper scores, as sums, so that parts of an image or a data set can be added up."""

import numpy as np
from numpy.typing import NDArray

NLL_CLIP = float(np.finfo(np.float32).eps)
"""Probabilities below this (1.19e-7) count as this much in the NLL; a p of 0 would make it infinite."""


def nll_sum(probabilities: NDArray[np.floating]) -> float:
    r"""Negative log-likelihood :math:`-\sum_i \ln \max(p_i, 1.19 \cdot 10^{-7})`.

    Args:
        probabilities: (n,) what was given to the event that happened, in [0, 1].

    Returns:
        The sum, in nats.

    >>> round(nll_sum(np.array([0.5, 1.0, 0.0])), 4)  # ln 2 + 0 - ln 1.19e-7
    16.6355
    """
    return float(-np.log(np.maximum(probabilities.astype(np.float64), NLL_CLIP)).sum())


def brier_sum(probabilities: NDArray[np.floating], hits: NDArray[np.bool_]) -> float:
    r"""Squared error :math:`\sum_i (p_i - hit_i)^2`. Over all classes of a voxel it adds up to its Brier score, 0 to 2.

    Args:
        probabilities: (n,) in [0, 1].
        hits: (n,) bool.

    References:
        Brier, Monthly Weather Review 1950.
    """
    error = probabilities - hits.astype(np.float64)
    return float(np.square(error).sum())  # not np.dot, whose threads would take the cores of other processes
