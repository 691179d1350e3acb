"""The link between logits and probabilities: a softmax over classes, or a sigmoid for each region."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST = float(np.finfo(np.float32).tiny)
"""What a p of 0 counts as: 1.18e-38, the smallest normal float32. Below it machines differ in what they round to 0."""

SMALLEST_REST = 2.0**-25
"""What 1 − p counts as for a region's p of 1: in float32, p rounds to 1 where 1 − p is below this."""

Probabilities = NDArray[np.floating]


class Link(Enum):
    """Turns logits into probabilities and back, and compares probabilities with the truth.

    The methods take probabilities p (C, n) of n voxels. The truth of these voxels is their classes (n,), or for regions
    bool (R, n), whether a voxel is in the region. Results have a row for each thing that has a confidence of its own:
    one for all classes together, or one for each region.
    """

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"

    def logits(self, p: Probabilities) -> NDArray[np.float64]:
        """The logits ln p of classes, up to a constant of the voxel; ln p − ln(1 − p) of regions. Any shape."""
        logits: NDArray[np.float64] = np.log(np.maximum(p.astype(np.float64), SMALLEST))
        if self is Link.SIGMOID:
            logits -= np.log(np.maximum(1 - p.astype(np.float64), SMALLEST_REST))
        return logits

    def probabilities(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """The probabilities of logits (C, n)."""
        from scipy.special import expit, softmax

        p: NDArray[np.float64] = softmax(logits, axis=0) if self is Link.SOFTMAX else expit(logits)
        return p

    def keep_labels(self, before: Probabilities, after: NDArray[np.float64]) -> NDArray[np.float32]:
        """Round ``after`` (C, n) to float32 so that it has the labels of ``before``."""
        rounded = after.astype(np.float32)
        if self is Link.SOFTMAX:  # two classes can become equal: the most probable one stays ahead by one step
            top = before.argmax(0)
            lost = np.flatnonzero(rounded.argmax(0) != top)
            rounded[top[lost], lost] = np.nextafter(rounded[:, lost].max(0), np.float32(2))
        else:  # a p just above 1/2 can become 1/2
            rounded[(before > 0.5) & (rounded <= 0.5)] = np.nextafter(np.float32(0.5), np.float32(1))
        return rounded

    def hits(self, p: Probabilities, truth: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the most probable class, or the side of 1/2 that a region is on, is right: (rows, n)."""
        hits: NDArray[np.bool_] = (p.argmax(0) == truth)[None] if self is Link.SOFTMAX else (p > 0.5) == truth
        return hits

    def confidence(self, p: Probabilities) -> Probabilities:
        """The probability of what is predicted: (rows, n)."""
        if self is Link.SOFTMAX:
            highest: Probabilities = p.max(0, keepdims=True)
            return highest
        exact = p.astype(np.float64)
        return np.maximum(exact, 1 - exact)

    def of_truth(self, p: Probabilities, truth: NDArray[Any]) -> Probabilities:
        """The probability of what is true: (rows, n)."""
        if self is Link.SOFTMAX:
            return np.take_along_axis(p, truth[None].astype(np.intp), 0)
        exact = p.astype(np.float64)
        return np.where(truth, exact, 1 - exact)

    def nll_by_scale(self, p: Probabilities, truth: NDArray[Any]) -> Callable[[float], float]:
        """The mean NLL as a function of the factor that all logits are multiplied by, 1/T."""
        logits = self.logits(p)
        if self is Link.SIGMOID:
            behind = np.where(truth, -1.0, 1.0) * logits
            return lambda scale: float(np.logaddexp(0, scale * behind).mean())
        ahead = logits
        ahead -= np.take_along_axis(logits, truth[None].astype(np.intp), 0)
        most = ahead.max(0)
        ahead -= most
        return lambda scale: float(np.mean(scale * most + np.log(np.exp(scale * ahead).sum(0))))

    def check(self, p: Probabilities, truth: NDArray[Any]) -> None:
        """Raise a ValueError if nothing can be learned from the voxels."""
        if p.shape[1] == 0:
            raise ValueError("there is no voxel to fit to.")
        place = None
        if self is Link.SOFTMAX and (truth == truth[0]).all():
            place = f"of class {truth[0]}"
        elif self is Link.SIGMOID and (truth.all() or not truth.any()):
            place = f"{'inside' if truth.any() else 'outside'} every region"
        if place is not None:
            raise ValueError(
                f"all {p.shape[1]} sampled voxels are {place}, so nothing can be learned from them; take other voxels "
                "(near, image) or more cases."
            )
        if self.hits(p, truth).all():
            raise ValueError(
                f"all {p.shape[1]} sampled voxels are predicted correctly, so the best fit would be infinitely "
                "confident; take more voxels or cases."
            )
