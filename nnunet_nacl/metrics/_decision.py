"""The segmentation that probabilities give."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._loops import update_argmax
from nnunet_nacl.metrics._overlap import confusion_matrix
from nnunet_nacl.typing import Floats, Labels, Mask


def above(p: Floats, threshold: float, *, or_equal: bool = False) -> Mask:
    """Mark where p exceeds, or reaches, the float64 threshold, not the threshold rounded to p's dtype."""
    compare = np.greater_equal if or_equal else np.greater
    return compare(p, threshold, signature="dd->?")


class ImpliedLabels:
    """The segmentation that probabilities give: ``add`` their blocks in order, then ask for ``labels()``.

    Without thresholds, classes give their argmax, and each region writes its label where p > 1/2, over those before it.
    With thresholds, each structure writes its label where p exceeds its threshold. Where several labels are right (of
    equally probable classes, at a threshold, of several classes above theirs), that of the segmentation is taken.

    Attributes:
        segmentation: (n,) may follow from the probabilities.
        lowest_label: (n,) what the channels so far give; of equally probable classes, the lowest.
    """

    def __init__(
        self,
        segmentation: Labels,
        meaning: LabelMeaning,
        dtype: DTypeLike,
        thresholds: Sequence[float] | None = None,
    ) -> None:
        self.segmentation = segmentation
        self.lowest_label = np.zeros_like(segmentation)
        self._meaning = meaning
        is_exclusive = meaning.activation.exclusive
        self._by_argmax = is_exclusive and thresholds is None
        if self._by_argmax:
            self._rule = "the argmax"
            self._largest = np.full(segmentation.size, -1, np.result_type(dtype, np.float32))
            self._agrees = np.zeros(segmentation.size, bool)
            return
        self._rule = "given by the thresholds that it was decoded with"
        if thresholds is None:
            self._rule = "each region where p exceeds 1/2"
            thresholds = [0.5] * meaning.num_channels
        written = meaning.known[1:] if is_exclusive else meaning.written
        # Label and threshold of each channel; the background writes nothing
        self._writes = [(0, np.inf)] * meaning.activation.first_structure
        self._writes += zip(written, thresholds, strict=True)

    def add(self, channel: int, part: slice, p: Floats) -> None:
        """Take a channel's probabilities (n,), float32 at least, of some of the voxels."""
        segmentation = self.segmentation[part]
        label = self.lowest_label[part]
        if self._by_argmax:
            update_argmax(p, channel, segmentation, self._largest[part], label, self._agrees[part])
            return
        own, threshold = self._writes[channel]
        # At the threshold, p may be taken either way
        at_threshold = above(p, threshold, or_equal=True) & (segmentation == own)
        is_own = above(p, threshold) | at_threshold
        if self._meaning.activation.exclusive:
            # Of several classes above their thresholds, the one in the segmentation stays
            is_own &= (label == 0) | (label != segmentation)
        label[is_own] = own

    def labels(self) -> Labels:
        """Return the labels (n,), after the last channel."""
        if self._by_argmax:
            return np.where(self._agrees, self.segmentation, self.lowest_label)
        return self.lowest_label

    def check(self, name: str) -> None:
        """Raise a ValueError unless the segmentation has these labels, postprocessed or not."""
        if np.array_equal(self.lowest_label, self.segmentation):
            return
        pairs = confusion_matrix(self.labels(), self.segmentation, self._meaning.ignored + 1)
        if wrong := int(pairs[:, 1:].sum() - np.trace(pairs[1:, 1:])):
            voxels = f"{wrong} of {self.segmentation.size} voxels"
            what = f"has another label than these probabilities give in {voxels}"
        elif pairs[1:].any() and not pairs[:, 1:].any():
            what = "is empty, and these probabilities give structures"
        else:
            return
        raise ValueError(
            f"{name}: the segmentation {what}; expected {self._rule}, but for components that postprocessing removed. "
            "Was it predicted again without --save_probabilities (in training: --npz), are they of another case or "
            "another model, or is the orientation read wrongly? The reader that plans.json names decides it."
        )


def segment(probabilities: Floats, meaning: LabelMeaning) -> Labels:
    """Label voxels (*spatial) as nnU-Net does, from p (C, *spatial): by argmax, or each region over earlier ones."""
    spatial = probabilities.shape[1:]
    # Of equally probable classes the first wins, and of a region at exactly 1/2 the background
    background = np.zeros(spatial, np.min_scalar_type(max(meaning.known))).reshape(-1)
    implied = ImpliedLabels(background, meaning, probabilities.dtype)
    for channel, p in enumerate(probabilities):
        exact = p.astype(np.result_type(p, np.float32), copy=False)
        implied.add(channel, slice(None), exact.reshape(-1))
    return implied.labels().reshape(spatial)
