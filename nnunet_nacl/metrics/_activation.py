"""From logits to probabilities and back: a softmax over classes, or a sigmoid for each region."""

from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from nnunet_nacl.typing import Floats

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
    def first_structure(self) -> int:
        """The channel of the first structure: for classes it follows the background."""
        return 1 if self is Activation.SOFTMAX else 0

    def foreground(self, p: Floats) -> Floats:
        """float64: a voxel's probability of the foreground, from p_0 of classes, or of a region, p_r."""
        exact = p.astype(np.float64)
        return 1 - exact if self is Activation.SOFTMAX else exact

    def logits(self, p: Floats) -> Floats:
        """The logits of probabilities (C, n): ln p minus its mean over classes; for regions ln p − ln(1 − p)."""
        logits: Floats = np.log(np.maximum(p, p.dtype.type(SMALLEST)))
        if self is Activation.SOFTMAX:
            return self.centered(logits)
        return logits - np.log(np.maximum(1 - p.astype(np.float64), SMALLEST_REST)).astype(p.dtype)

    def centered(self, logits: Floats) -> Floats:
        """Class logits minus their mean in each voxel, which the softmax ignores; region logits unchanged."""
        return logits - logits.mean(0, keepdims=True) if self is Activation.SOFTMAX else logits

    def probabilities(self, logits: Floats) -> Floats:
        """The probabilities of logits (C, ...)."""
        p: Floats = softmax(logits, axis=0) if self is Activation.SOFTMAX else expit(logits)
        return p

    def confidence(self, p: Floats) -> Floats:
        """The predicted class's probability, from probabilities (C, ...); for regions, the lowest of them."""
        sure: Floats = p.max(0) if self is Activation.SOFTMAX else np.maximum(p, 1 - p).min(0)
        return sure

    def predicted(self, logits: Floats) -> Truth:
        """The prediction: (n,) the most probable class, or bool (R, n), whether a region's p is above ½."""
        return logits.argmax(0) if self is Activation.SOFTMAX else logits > 0

    def nll(self, logits: Floats, truth: Truth) -> Floats:
        """−ln p of the truth: (1, n) of classes, (R, n) of regions."""
        if self is Activation.SIGMOID:
            return np.logaddexp(0, np.where(truth, -logits, logits))
        of_truth: Floats = np.take_along_axis(logits, truth[None].astype(np.intp), 0)
        nll: Floats = logsumexp(logits, axis=0, keepdims=True) - of_truth
        return nll
