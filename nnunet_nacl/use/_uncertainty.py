"""Confidence and entropy of voxels, of which one channel after the other is read."""

import numpy as np
from scipy.special import entr

from nnunet_nacl.metrics import Activation
from nnunet_nacl.typing import Floats, Singles


class Confidence:
    """Confidence, ``values`` (n,), of the channels so far: max_k p_k; of regions the smallest max(p, 1 − p)."""

    def __init__(self, size: int, activation: Activation) -> None:
        self._exclusive = activation.exclusive
        self.values: Singles = np.full(size, 0 if self._exclusive else 1, np.float32)

    def add(self, p: Floats) -> None:
        """Take account of one more channel (n,)."""
        if self._exclusive:
            np.maximum(self.values, p, out=self.values)
        else:
            np.minimum(self.values, np.maximum(p, 1 - p), out=self.values)


class Entropy:
    """Entropy, ``values`` (n,) in nats, of the channels so far: ``-Σ_k p_k ln p_k``; of regions the largest."""

    def __init__(self, size: int, activation: Activation) -> None:
        self._exclusive = activation.exclusive
        self.values: Singles = np.zeros(size, np.float32)

    def add(self, p: Floats) -> None:
        """Take account of one more channel (n,)."""
        exact = p.astype(np.float64)
        if self._exclusive:
            self.values += entr(exact)
        else:
            np.maximum(self.values, entr(exact) + entr(1 - exact), out=self.values)
