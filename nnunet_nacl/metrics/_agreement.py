"""The segmentation that probabilities give, and whether a saved one follows from them.

nnU-Net's segmentation is the argmax of its probabilities; with regions, each region writes its label where p > 1/2, in
the order of ``regions_class_order``. Postprocessing then sets whole structures to background, but never all. Any other
segmentation belongs to another case or model, or was read in another orientation. Where the highest probabilities are
equal as stored, or a region's p is exactly 1/2, any of the labels is right: half precision may have rounded them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from nnunet_nacl.metrics._channels import above
from nnunet_nacl.metrics._compiled import follow
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._overlap import confusion_matrix
from nnunet_nacl.typing import Floats, Labels


class DisagreementError(ValueError):
    """A segmentation does not follow from the probabilities."""


class GivenLabels(ABC):
    """The labels that probabilities give: ``add`` takes the voxels of each channel in order, then come ``labels()``.

    Attributes:
        rule: how they follow from the probabilities, in errors.
        segmentation: (n,) may follow from them: where several labels are right, its label is taken.
        label: (n,) what the channels so far give.
    """

    rule: str

    def __init__(self, segmentation: Labels, meaning: LabelMeaning) -> None:
        self.segmentation = segmentation
        self.label = np.zeros_like(segmentation)
        self._meaning = meaning

    @abstractmethod
    def add(self, channel: int, part: slice, p: Floats) -> None:
        """Take a channel's probabilities (n,), float32 at least, of some of the voxels."""

    def labels(self) -> Labels:
        """The labels (n,), after the last channel."""
        return self.label

    def check(self) -> None:
        """Raise a DisagreementError unless the segmentation has these labels, postprocessed or not."""
        pairs = confusion_matrix(self.labels(), self.segmentation, self._meaning.ignored + 1)
        if wrong := int(pairs[:, 1:].sum() - np.trace(pairs[1:, 1:])):
            voxels = f"{wrong} of {self.segmentation.size} voxels"
            what = f"has another label than these probabilities give in {voxels}"
        elif pairs[1:].any() and not pairs[:, 1:].any():
            what = "is empty, and these probabilities give structures"
        else:
            return
        raise DisagreementError(
            f"the segmentation {what}; expected {self.rule}, but for components that postprocessing removed."
        )


class Argmax(GivenLabels):
    """Of classes, the label of the largest p; in ``label``, of equally probable ones it is the first."""

    rule = "the argmax"

    def __init__(self, segmentation: Labels, meaning: LabelMeaning, dtype: DTypeLike) -> None:
        super().__init__(segmentation, meaning)
        self._largest = np.full(segmentation.size, -1, np.result_type(dtype, np.float32))
        self._agrees = np.zeros_like(segmentation, bool)

    def add(self, channel: int, part: slice, p: Floats) -> None:
        follow(
            p,
            channel,
            self.segmentation[part],
            self._largest[part],
            self.label[part],
            self._agrees[part],
        )

    def labels(self) -> Labels:
        return np.where(self._agrees, self.segmentation, self.label)


class Thresholded(GivenLabels):
    """Of structures with a threshold each, by default 1/2: the label that each writes where p exceeds it.

    A region writes over those before it. Where several classes exceed theirs, any of them is right.
    """

    def __init__(
        self, segmentation: Labels, meaning: LabelMeaning, thresholds: Sequence[float] | None
    ) -> None:
        super().__init__(segmentation, meaning)
        self.rule = "given by the thresholds that it was decoded with"
        if thresholds is None:
            self.rule = "each region where p exceeds 1/2"
            thresholds = [0.5] * meaning.num_channels
        of_background = [(0, np.inf)] * meaning.activation.first_structure
        written = meaning.structures if meaning.activation.exclusive else meaning.written
        if len(written) != len(meaning.structures):
            raise ValueError(
                f"meaning: expected in written the label that each of the {len(meaning.structures)} regions writes to "
                f"a segmentation, as regions_class_order of dataset.json; got {len(written)} labels."
            )
        self._writes = [*of_background, *zip(written, thresholds, strict=True)]

    def add(self, channel: int, part: slice, p: Floats) -> None:
        written, threshold = self._writes[channel]
        segmentation = self.segmentation[part]
        label = self.label[part]
        may_be_there = above(p, threshold, or_equal=True) & (segmentation == written)
        there = above(p, threshold) | may_be_there
        if self._meaning.activation.exclusive:
            there &= (label == 0) | (label != segmentation)
        label[there] = written


def labels_given(
    segmentation: Labels,
    meaning: LabelMeaning,
    thresholds: Sequence[float] | None,
    dtype: DTypeLike,
) -> GivenLabels:
    """The object that derives the labels from a case's probabilities of this dtype."""
    if meaning.activation.exclusive and thresholds is None:
        return Argmax(segmentation, meaning, dtype)
    return Thresholded(segmentation, meaning, thresholds)


def segment(probabilities: Floats, meaning: LabelMeaning) -> Labels:
    """Labels (*spatial) as nnU-Net makes them of (C, *spatial): the argmax, or each region over earlier ones."""
    spatial = probabilities.shape[1:]
    # Of equally probable classes the first wins, and of a region at exactly 1/2 the background
    background = np.zeros(spatial, np.min_scalar_type(max(meaning.known))).reshape(-1)
    given = labels_given(background, meaning, None, probabilities.dtype)
    for channel, p in enumerate(probabilities):
        exact = p.astype(np.result_type(p, np.float32), copy=False)
        given.add(channel, slice(None), exact.reshape(-1))
    return given.labels().reshape(spatial)
