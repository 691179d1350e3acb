"""Confidence and entropy of voxels, from probabilities that are read one channel after the other."""

from collections.abc import Iterable
from functools import reduce

import numpy as np
from scipy.special import entr

from nnunet_nacl.metrics import Activation
from nnunet_nacl.typing import Floats, Singles


def confidence_of(activation: Activation, channels: Iterable[Floats]) -> Singles:
    """(n,) max_k p_k of the channels (n,) of classes; of regions the smallest max(p, 1 − p)."""
    if activation.exclusive:
        return reduce(np.maximum, channels).astype(np.float32, copy=False)
    lowest = reduce(np.minimum, (np.maximum(p, 1 - p) for p in channels))
    return lowest.astype(np.float32, copy=False)


def entropy_of(activation: Activation, channels: Iterable[Floats]) -> Singles:
    """(n,) ``-Σ_k p_k ln p_k`` in nats of the channels (n,) of classes; of regions the largest, of both sides."""
    exact = (p.astype(np.float64) for p in channels)
    if activation.exclusive:
        return reduce(_added, map(entr, exact), np.zeros(1, np.float32))
    largest: Floats = reduce(np.maximum, (entr(p) + entr(1 - p) for p in exact))
    return largest.astype(np.float32, copy=False)


def _added(total: Singles, more: Floats) -> Singles:
    """In single precision, which is half of the memory."""
    return np.asarray(total + more, np.float32)
