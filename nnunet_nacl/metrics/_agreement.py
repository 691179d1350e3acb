"""The segmentation that probabilities give, and whether a saved one follows from them.

nnU-Net's segmentation is the argmax of its probabilities; with regions, each region writes its label where p > 1/2, in
the order of ``regions_class_order``. Postprocessing then sets whole structures to background, but never all. Any other
segmentation belongs to another case or model, or was read in another orientation. Where the highest probabilities are
equal as stored, or a region's p is exactly 1/2, any of the labels is right: half precision may have rounded them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from nnunet_nacl.metrics._compiled import follow
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._overlap import confusion_matrix
from nnunet_nacl.typing import Floats, Labels


@dataclass(frozen=True)
class SavedAs:
    """The names of the files of probabilities and segmentation in errors."""

    probabilities: str
    segmentation: str


class Argmax:
    """Of classes: ``add`` takes the voxels of each channel in order; then ``labels()`` are those of the largest p.

    Among equally probable classes it keeps the saved label.
    """

    rule = "the argmax"

    def __init__(self, saved: Labels, meaning: LabelMeaning, dtype: DTypeLike) -> None:
        self._saved = saved
        self._meaning = meaning
        self.label = np.zeros_like(saved)
        self.largest = np.full(saved.size, -1, np.result_type(dtype, np.float32))
        self._agrees = np.zeros_like(saved, bool)

    def add(self, channel: int, part: slice, p: Floats) -> None:
        follow(
            p, channel, self._saved[part], self.largest[part], self.label[part], self._agrees[part]
        )

    def labels(self) -> Labels:
        return np.where(self._agrees, self._saved, self.label)

    def check(self, saved_as: SavedAs) -> None:
        """Raise a ValueError unless the saved labels equal the given ones, postprocessed or not."""
        pairs = confusion_matrix(self.labels(), self._saved, self._meaning.ignored + 1)
        if wrong := int(pairs[:, 1:].sum() - np.trace(pairs[1:, 1:])):
            what = f"has another label than these probabilities give in {wrong} of {self._saved.size} voxels"
        elif pairs[1:].any() and not pairs[:, 1:].any():
            what = "is empty, and these probabilities give structures"
        else:
            return
        raise ValueError(
            f"{saved_as.probabilities}: the segmentation {saved_as.segmentation} {what}; expected {self.rule}, but for "
            "components that postprocessing removed. Are they of another case or another model, or is the orientation "
            "read wrongly? The reader that plans.json names decides it."
        )


class Thresholded(Argmax):
    """Of structures with a threshold each: the label that each writes where p exceeds it.

    A region writes over those before it. Where several classes exceed theirs, any of them is right.
    """

    rule = "each region where p exceeds 1/2"

    def __init__(
        self, saved: Labels, meaning: LabelMeaning, thresholds: Sequence[float] | None
    ) -> None:
        self._saved = saved
        self._meaning = meaning
        self.label = np.zeros_like(saved)
        if thresholds is None:
            thresholds = [0.5] * meaning.num_channels
        else:
            self.rule = "given by the thresholds that it was decoded with"
        of_background = [(0, np.inf)] * meaning.activation.first_structure
        written = meaning.structures if meaning.activation.exclusive else meaning.written
        if len(written) != len(meaning.structures):
            raise ValueError(
                f"meaning: expected in written the label that each of the {len(meaning.structures)} regions writes to "
                f"a segmentation, as regions_class_order of dataset.json; got {len(written)} labels."
            )
        self._rules = [*of_background, *zip(written, thresholds, strict=True)]

    def add(self, channel: int, part: slice, p: Floats) -> None:
        written, threshold = self._rules[channel]
        saved = self._saved[part]
        label = self.label[part]
        exact = p.astype(np.float64)  # or the threshold would be rounded
        there = (exact > threshold) | ((exact == threshold) & (saved == written))
        if self._meaning.activation.exclusive:
            there &= (label == 0) | (label != saved)
        label[there] = written

    def labels(self) -> Labels:
        return self.label


def labels_given(
    saved: Labels, meaning: LabelMeaning, thresholds: Sequence[float] | None, dtype: DTypeLike
) -> Argmax:
    """The object that derives the labels from a case's probabilities of this dtype."""
    if meaning.activation.exclusive and thresholds is None:
        return Argmax(saved, meaning, dtype)
    return Thresholded(saved, meaning, thresholds)


def segment(probabilities: Floats, meaning: LabelMeaning) -> Labels:
    """Labels (*spatial) as nnU-Net makes them of (C, *spatial): the argmax, or each region over earlier ones."""
    spatial = probabilities.shape[1:]
    nothing = np.zeros(spatial, np.min_scalar_type(max(meaning.known))).reshape(-1)
    given = labels_given(nothing, meaning, None, probabilities.dtype)
    for channel, p in enumerate(probabilities):
        exact = p.astype(np.result_type(p, np.float32), copy=False)
        given.add(channel, slice(None), exact.reshape(-1))
    return given.labels().reshape(spatial)
