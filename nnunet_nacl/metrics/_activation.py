"""From logits to probabilities and back: a softmax over classes, or a sigmoid for each region.

What differs between the two is told apart here. Classes are one decision among K; each region is a decision of its own,
among two.
"""

from collections.abc import Iterable
from enum import Enum
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from nnunet_nacl.typing import Floats, Mask

Truth = NDArray[Any]
"""(n,) classes, or bool (R, n), whether a voxel is in the region."""

SMALLEST = float(np.finfo(np.float32).tiny)
"""A p of 0 counts as 1.18e-38, the smallest normal float32."""

SMALLEST_REST = 2.0**-25
"""If a region's p is 1, 1 − p counts as this: in float32, p rounds to 1 where 1 − p is below this."""


class Activation(str, Enum):
    """nnU-Net predicts classes with a softmax, the background first, and regions with a sigmoid each."""

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
        """float64: a voxel's probability of the foreground, from p_0 of classes, or of a region, p_r."""
        exact = p.astype(np.float64)
        return 1 - exact if self.exclusive else exact

    def logits(self, p: Floats) -> Floats:
        """The logits of probabilities (C, n): ln p minus its mean over classes; for regions ln p − ln(1 − p)."""
        logits = np.log(np.maximum(p, p.dtype.type(SMALLEST)))
        if self.exclusive:
            return self.centered(logits)
        return logits - np.log(np.maximum(1 - p.astype(np.float64), SMALLEST_REST)).astype(p.dtype)

    def centered(self, logits: Floats) -> Floats:
        """Class logits minus their mean in each voxel, which the softmax ignores; region logits unchanged."""
        return logits - logits.mean(0, keepdims=True) if self.exclusive else logits

    def probabilities(self, logits: Any) -> Any:
        """The probabilities of logits (C, ...), an array or a tensor."""
        if not isinstance(logits, np.ndarray):
            return logits.softmax(0) if self.exclusive else logits.sigmoid()
        return softmax(logits, axis=0) if self.exclusive else expit(logits)

    def confidences(self, p: Floats) -> Floats:
        """The probability of each decision, from probabilities (C, ...): (1, ...) of the class, (R, ...) of regions."""
        return p.max(0, keepdims=True) if self.exclusive else np.maximum(p, 1 - p)

    def lowest_confidence(self, channels: Iterable[Floats]) -> Floats:
        """(...) max_k p_k, from the channels (...) of probabilities; of regions the smallest max(p, 1 − p).

        Channels that are read one after the other need not be held together.
        """
        if self.exclusive:
            return reduce(np.maximum, channels)
        return reduce(np.minimum, (np.maximum(p, 1 - p) for p in channels))

    def predicted(self, logits: Floats) -> Truth:
        """The prediction: (n,) the most probable class, or bool (R, n), whether a region's p is above ½."""
        return logits.argmax(0) if self.exclusive else logits > 0

    def members(self, truth: Truth, num_channels: int) -> Mask:
        """Whether a voxel is of each channel's class or region: bool (C, n)."""
        return truth == np.arange(num_channels)[:, None] if self.exclusive else truth

    def nll(self, logits: Floats, truth: Truth) -> Floats:
        """−ln p of the truth: (1, n) of classes, (R, n) of regions."""
        if not self.exclusive:
            return np.logaddexp(0, np.where(truth, -logits, logits))
        of_truth = np.take_along_axis(logits, truth[None].astype(np.intp), 0)
        nll: Floats = logsumexp(logits, axis=0, keepdims=True) - of_truth
        return nll
