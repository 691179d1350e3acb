"""Whether a saved segmentation is the one that the saved probabilities give.

nnU-Net's segmentation is the argmax of its probabilities; with regions, each writes its label where p > 1/2, in the
order of ``regions_class_order``. Postprocessing then sets whole structures to background, but never all. Anything else
is of another case or model, or was read in another orientation. Where the highest probabilities are equal as stored, or
a region's p is exactly 1/2, any of the labels is right: half precision may have rounded them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._compiled import Labels, follow
from nnunet_nacl.nnunet import DECODED_NAME, CaseFiles, LabelMeaning


class Argmax:
    """Of classes: the largest probability (n,), the first class that has it, and whether the saved one has it."""

    def __init__(self, saved: Labels, dtype: "np.dtype[np.floating]") -> None:
        self._saved = saved
        self.largest, self.label = np.full(saved.size, -1, dtype), np.zeros_like(saved)
        self.agrees = np.zeros(saved.size, bool)

    def add(self, channel: int, part: slice, p: NDArray[np.floating]) -> None:
        follow(p, channel, self._saved[part], self.largest[part], self.label[part], self.agrees[part])

    def labels(self) -> Labels:
        return np.where(self.agrees, self._saved, self.label)


class Thresholded:
    """Of structures with a threshold each: the label that each writes where p exceeds it.

    A region writes over those before it. Where several classes exceed theirs, any of them is right.
    """

    def __init__(self, saved: Labels, meaning: LabelMeaning, thresholds: Sequence[float]) -> None:
        written = meaning.structures if meaning.regions is None else meaning.written
        self._saved, self._label, self._has_background = saved, np.zeros_like(saved), meaning.has_background
        self._rules = list(zip(written, thresholds, strict=True))

    def add(self, channel: int, part: slice, p: NDArray[np.floating]) -> None:
        if self._has_background and channel == 0:
            return
        written, threshold = self._rules[channel - self._has_background]
        saved, label = self._saved[part], self._label[part]
        exact = p.astype(np.float64)  # or the threshold would be rounded
        there = (exact > threshold) | ((exact == threshold) & (saved == written))
        if self._has_background:
            there &= (label == 0) | (label != saved)
        label[there] = written

    def labels(self) -> Labels:
        return self._label


def labels_given(
    saved: Labels, meaning: LabelMeaning, files: CaseFiles, dtype: "np.dtype[np.floating]"
) -> Argmax | Thresholded:
    """What gives the labels of a case's probabilities, which are its saved ones (n,) where these are as right.

    ``add(channel, part, p)`` takes the voxels of each channel in order; ``labels()`` then returns all (n,).
    """
    if files.thresholds is not None:
        return Thresholded(saved, meaning, files.thresholds)
    if meaning.regions is not None:
        return Thresholded(saved, meaning, [0.5] * len(meaning.regions))
    return Argmax(saved, dtype)


def check_segmentation(given: Labels, saved: Labels, files: CaseFiles) -> None:
    """Raise a ValueError unless the saved labels (n,) are those given, postprocessed or not."""
    if wrong := int(np.count_nonzero((saved > 0) & (given != saved))):
        what = f"has another label than these probabilities give in {wrong} of {saved.size} voxels"
    elif given.any() and not saved.any():
        what = "is empty, and these probabilities give structures"
    else:
        return
    rule = "the argmax" if files.thresholds is None else f"given by the thresholds in {DECODED_NAME}"
    raise ValueError(
        f"{files.probabilities}: the segmentation {files.prediction.name} {what}; expected {rule}, but for components "
        "that postprocessing removed. Are they of another case or another model, or is the orientation read wrongly? "
        "The reader that plans.json names decides it."
    )
