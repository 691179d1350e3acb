"""The link between logits and probabilities: a softmax over classes, or a sigmoid for each region."""

from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Truth = NDArray[Any]
"""(n,) classes, or bool (R, n), whether a voxel is in the region."""

SMALLEST = float(np.finfo(np.float32).tiny)
"""What a p of 0 counts as: 1.18e-38, the smallest normal float32."""

SMALLEST_REST = 2.0**-25
"""What 1 − p counts as for a region's p of 1: in float32, p rounds to 1 where 1 − p is below this."""


class Link(Enum):
    """Turns logits (C, n) into probabilities and back, and compares them with the truth."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"

    def logits(self, p: Floats) -> Floats:
        """The logits of probabilities (C, n): ln p less its mean over classes; ln p − ln(1 − p) of regions."""
        logits: Floats = np.log(np.maximum(p, p.dtype.type(SMALLEST)))
        if self is Link.SOFTMAX:
            return self.centered(logits)
        return logits - np.log(np.maximum(1 - p.astype(np.float64), SMALLEST_REST)).astype(p.dtype)

    def centered(self, logits: Floats) -> Floats:
        """Logits of classes less their mean in each voxel, which the softmax does not see; those of regions."""
        return logits - logits.mean(0, keepdims=True) if self is Link.SOFTMAX else logits

    def probabilities(self, logits: Floats) -> Floats:
        """The probabilities of logits (C, ...)."""
        from scipy.special import expit, softmax

        p: Floats = softmax(logits, axis=0) if self is Link.SOFTMAX else expit(logits)
        return p

    def hot(self, truth: Truth, channels: int) -> NDArray[np.bool_]:
        """Whether a voxel is of a channel: bool (C, n)."""
        hot: NDArray[np.bool_] = truth == np.arange(channels)[:, None] if self is Link.SOFTMAX else truth
        return hot

    def nll(self, logits: Floats, truth: Truth) -> Floats:
        """−ln p of the truth: (1, n) of classes, (R, n) of regions."""
        if self is Link.SIGMOID:
            return np.logaddexp(0, np.where(truth, -logits, logits))
        from scipy.special import logsumexp

        of_truth: Floats = np.take_along_axis(logits, truth[None].astype(np.intp), 0)
        nll: Floats = logsumexp(logits, axis=0, keepdims=True) - of_truth
        return nll

    def loss(self, logits: Floats, truth: Truth, weights: Floats) -> tuple[float, Floats]:
        """The weighted mean NLL, of regions summed over them, and its gradient by the logits (C, n)."""
        share = weights / weights.sum()
        if self is Link.SIGMOID:
            p = self.probabilities(logits)
            return float((self.nll(logits, truth) * share).sum(dtype=np.float64)), (p - truth) * share
        index = np.arange(logits.shape[1])
        above = logits - logits.max(0)
        gradient = np.exp(above)
        total = gradient.sum(0)
        value = float(((np.log(total) - above[truth, index]) * share).sum(dtype=np.float64))
        gradient *= share / total
        gradient[truth, index] -= share
        return value, gradient

    def keep_labels(self, before: Floats, after: Floats) -> NDArray[np.float32]:
        """Round ``after`` (C, n) to float32 so that it has the labels of ``before``."""
        rounded = after.astype(np.float32)
        if self is Link.SOFTMAX:  # two classes can become equal: the most probable one stays ahead by one step
            top = before.argmax(0)
            lost = np.flatnonzero(rounded.argmax(0) != top)
            rounded[top[lost], lost] = np.nextafter(rounded[:, lost].max(0), np.float32(2))
        else:  # a p just above 1/2 can become 1/2
            rounded[(before > 0.5) & (rounded <= 0.5)] = np.nextafter(np.float32(0.5), np.float32(1))
        return rounded
