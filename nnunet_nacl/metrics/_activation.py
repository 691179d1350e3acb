"""Channels of classes, which exclude each other, or of regions, which may overlap."""

from collections.abc import Iterable
from enum import Enum
from functools import reduce
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from nnunet_nacl.typing import Floats


class Activation(str, Enum):
    """The function from logits to probabilities, and so the kind of the channels.

    nnU-Net predicts classes with a softmax, the background first, and regions with a sigmoid each.
    """

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"

    @property
    def exclusive(self) -> bool:
        """Whether a voxel belongs to one channel alone: classes exclude each other, regions may overlap."""
        return self is Activation.SOFTMAX

    @property
    def first_structure(self) -> int:
        """The channel of the first structure: for classes it follows the background."""
        return 1 if self.exclusive else 0

    def foreground(self, p: Floats) -> Floats:
        """Return the probability of the foreground in float64: 1 − p_0 of classes, p_r of a region."""
        exact = p.astype(np.float64)
        return 1 - exact if self.exclusive else exact

    def probabilities(self, logits: Any) -> Any:
        """Return the probabilities of logits (C, ...), an array or a tensor."""
        if not isinstance(logits, np.ndarray):
            return logits.softmax(0) if self.exclusive else logits.sigmoid()
        return softmax(logits, axis=0) if self.exclusive else expit(logits)

    def lowest_confidence(self, channels: Iterable[Floats]) -> Floats:
        """Compute max_k p_k (...) from the channels (...); for regions, the smallest max(p, 1 − p).

        Channels that are read one after the other need not be held together.
        """
        if self.exclusive:
            return reduce(np.maximum, channels)
        return reduce(np.minimum, (np.maximum(p, 1 - p) for p in channels))
