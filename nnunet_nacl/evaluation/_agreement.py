"""Whether a saved segmentation is the one that the saved probabilities give.

nnU-Net's segmentation is the argmax of its probabilities; with regions, each writes its label where p > 1/2, in the
order of ``regions_class_order``. Postprocessing then sets components to background: all but the largest of a label, of
a region, or of the foreground, so that nothing is removed that touches a voxel of the same label which is kept, and
never all. Anything else is of another case or model, or was read in another orientation.

The probabilities leave open which label wins where the highest are equal as stored, and whether a region is there where
its p is exactly 1/2, to which half precision may have rounded: then any of them is right.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.nnunet import BLOCK, DECODED_NAME, CaseFiles, LabelMeaning, Thresholds

Labels = NDArray[np.unsignedinteger]


class GivenLabels:
    """The labels that probabilities give, from blocks of them as they pass.

    Where the probabilities leave several labels open, the saved one is taken if it is one of them. In a decoded
    segmentation that is so where several structures exceed their thresholds, and it is background only where the most
    probable structure does not exceed its own: each rule by which one of several structures is chosen does this.

    Args:
        saved: (...) canonical labels of the saved segmentation.
        meaning: of the labels.
        thresholds: of a decoded segmentation; None for nnU-Net's own.
        dtype: of the probabilities.
        name: of the segmentation, for errors.
    """

    def __init__(
        self,
        saved: Labels,
        meaning: LabelMeaning,
        thresholds: Thresholds | None,
        dtype: "np.dtype[np.floating]",
        name: str = "the segmentation",
    ) -> None:
        self._shape, self._saved, self._thresholds = saved.shape, saved.reshape(-1), thresholds
        self._label = np.zeros_like(self._saved)
        self._written = None if meaning.regions is None else written_labels(meaning)
        if thresholds is not None and len(thresholds.values) != len(meaning.structures):
            raise ValueError(
                f"{name}: the mark of its folder should have a threshold for each of {len(meaning.structures)} "
                f"structures; it has {len(thresholds.values)}."
            )
        if self._written is None:
            self._largest = np.full(saved.size, -1 if thresholds is None else 0, dtype)
            self._of_saved = np.zeros(saved.size, dtype)

    def add(self, channel: int, part: slice, p: NDArray[np.floating]) -> None:
        """Add voxels (n,) of a channel; channels come in order."""
        label, saved = self._label[part], self._saved[part]
        if self._written is not None and self._thresholds is None:
            write_region(label, p, self._written[channel], saved)
        elif self._written is not None and self._thresholds is not None:
            label[self._thresholds.are_exceeded(p, channel)] = self._written[channel]
        elif self._thresholds is None or channel > 0:
            larger = p > self._largest[part]
            np.copyto(self._largest[part], p, where=larger)
            np.copyto(label, label.dtype.type(channel), where=larger)
            np.copyto(self._of_saved[part], p, where=saved == channel)

    def labels(self) -> Labels:
        """(...) of the dtype of ``saved``, once all channels have passed."""
        if self._written is None:
            for start in range(0, self._saved.size, BLOCK):
                self._settle(slice(start, start + BLOCK))
        return self._label.reshape(self._shape)

    def _settle(self, part: slice) -> None:
        label, saved = self._label[part], self._saved[part]
        largest, of_saved = self._largest[part], self._of_saved[part]
        if self._thresholds is None:
            right = of_saved == largest
        else:
            label[(label > 0) & ~self._thresholds.are_exceeded(largest, np.maximum(label, 1) - 1)] = 0
            right = (saved > 0) & self._thresholds.are_exceeded(of_saved, np.maximum(saved, 1) - 1)
        label[right] = saved[right]


def given_labels(
    probabilities: NDArray[np.floating], saved: Labels, meaning: LabelMeaning, thresholds: Thresholds | None = None
) -> Labels:
    """The labels that probabilities give, which are the saved ones where these are as right: see ``GivenLabels``.

    Args:
        probabilities: (C, ...).
        saved: (...) labels of the saved segmentation.
        meaning: of the labels.
        thresholds: of a decoded segmentation; None for nnU-Net's own.

    Returns:
        (...) of the dtype of ``saved``.
    """
    given = GivenLabels(saved, meaning, thresholds, probabilities.dtype)
    for channel, p in enumerate(probabilities):
        given.add(channel, slice(None), p.reshape(-1))
    return given.labels()


def written_labels(meaning: LabelMeaning) -> Sequence[int]:
    """The label that each region writes; raises a ValueError if ``dataset.json`` does not say."""
    if meaning.regions is not None and len(meaning.written) != len(meaning.regions):
        raise ValueError(
            f"expected a label in regions_class_order of dataset.json for each of the {len(meaning.regions)} regions; "
            f"got {len(meaning.written)}."
        )
    return meaning.written


def write_region(given: Labels, p: NDArray[np.floating], label: int, saved: Labels) -> None:
    """Write a region's label over those of the regions before it."""
    given[(p > 0.5) | ((p == 0.5) & (saved == label))] = label


def check_agreement(given: Labels, saved: Labels, files: CaseFiles) -> None:
    """Raise a ValueError unless the saved segmentation is what the probabilities give, postprocessed or not.

    Args:
        given: (Z, Y, X) labels as of :func:`given_labels`.
        saved: (Z, Y, X) labels of the saved segmentation.
        files: for the message.
    """
    is_kept = saved > 0
    check_kept(is_kept & (given != saved), files)
    if ((given > 0) > is_kept).any():
        check_removed(np.where(is_kept, saved, given), is_kept, files)


def check_drawn(given: Labels, saved: Labels, files: CaseFiles, *, is_empty: bool) -> None:
    """As :func:`check_agreement`, of some voxels (n,) only: whether removed components are whole cannot be seen.

    Args:
        given: labels as of :func:`given_labels`.
        saved: labels of the saved segmentation.
        files: for the message.
        is_empty: whether all of the segmentation is background.
    """
    wrong = int(np.count_nonzero((saved > 0) & (given != saved)))
    if wrong:
        _refuse(files, f"has another label than these probabilities give in {wrong} of {saved.size} voxels")
    if is_empty and given.any():
        _refuse(files, "is empty, and these probabilities give structures")


def check_kept(wrong: NDArray[np.bool_], files: CaseFiles) -> None:
    """Raise a ValueError if there are voxels whose saved label is not what the probabilities give."""
    count = int(np.count_nonzero(wrong))
    if count:
        first = _place(np.unravel_index(int(wrong.argmax()), wrong.shape))
        _refuse(files, f"has another label than these probabilities give in {count} voxel(s), the first at {first}")


def check_removed(labels: Labels, is_kept: NDArray[np.bool_], files: CaseFiles) -> None:
    """Raise a ValueError unless what postprocessing has removed are whole components, and not all.

    Args:
        labels: (Z, Y, X) that the probabilities give.
        is_kept: bool (Z, Y, X), where the saved segmentation has a structure.
        files: for the message.
    """
    if not is_kept.any():
        _refuse(files, "is empty, and these probabilities give structures")
    for z in range(len(labels)):  # two slices at a time, which needs little memory
        two, kept = labels[z : z + 2], is_kept[z : z + 2]
        for axis in range(labels.ndim):
            first, second = ((slice(None),) * axis + (part,) for part in (slice(None, -1), slice(1, None)))
            torn = (two[first] == two[second]) & (two[first] > 0) & (kept[first] != kept[second])
            if torn.any():
                place = np.argwhere(torn)[0]
                place[0] += z
                _refuse(files, f"lacks a part of a structure that these probabilities give, at {_place(place)}")


def _refuse(files: CaseFiles, what: str) -> NoReturn:
    rule = "nnU-Net's is their argmax"
    if files.thresholds is not None:
        rule = f"by {DECODED_NAME} it is where they exceed their thresholds"
    raise ValueError(
        f"{files.probabilities}: the segmentation {files.prediction.name} {what}; {rule}, of which postprocessing "
        "removes whole components. Are they of another case or another model, or is the orientation read wrongly? The "
        "latter is decided by the reader that plans.json (-pfile) names."
    )


def _place(index: Any) -> str:
    return f"({', '.join(str(int(number)) for number in index)})"
