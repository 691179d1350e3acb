"""A case as nnU-Net has saved it, without ground truth: its segmentation, and its probabilities as they pass."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._agreement import Labels, check_agreement, write_region, written_labels
from nnunet_nacl.evaluation._checks import canonical_labels, check_channels, check_shape, checked_blocks
from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import BLOCK, CaseFiles, DataSet, LabelMeaning, NpzChannels, read_labels


class SavedCase:
    """A case's saved segmentation and probabilities, which must belong together.

    Attributes:
        files: of the case; ground truth is not looked at.
        shape: (C, Z, Y, X) of the probabilities.
        dtype: of the probabilities.
        labels: (Z, Y, X) canonical labels of the segmentation.
        spacing: distance between voxel centers along each axis, in mm.
    """

    def __init__(self, files: CaseFiles, data_set: DataSet) -> None:
        """Open it.

        Args:
            files: of the case.
            data_set: how to read them.

        Raises:
            OSError: a file is missing or cannot be read.
            ValueError: a file is damaged, or does not fit the others or the data set.
        """
        check_input(files.probabilities)
        check_input(files.prediction)
        self.files = files
        self._meaning = data_set.meaning
        self._channels = NpzChannels(files.probabilities)
        check_channels(self._channels, self._meaning)
        self.shape, self.dtype = self._channels.shape, self._channels.dtype
        labels, self.spacing = read_labels(files.prediction, data_set.reader)
        check_shape(self.shape, labels.shape, self._channels.name, whose=f"that of {files.prediction.name}")
        self.labels = canonical_labels(labels, self._meaning, None, str(files.prediction))

    def blocks(self) -> Iterator[tuple[int, slice, NDArray[np.floating]]]:
        """Yield channel, voxels and values (n,) of each block of the probabilities, in order.

        Raises:
            ValueError: the file is damaged, values are no probabilities, or the segmentation is not what they give:
                their argmax up to postprocessing, or what their thresholds give if it was decoded.
        """
        given = _Given(self.labels, self._meaning, self.files, self.dtype)
        for channel, part, block in checked_blocks(self._channels, regions=self._meaning.regions is not None):
            given.add(channel, part, block)
            yield channel, part, block
        given.check()

    def probabilities(self) -> NDArray[np.floating]:
        """(C, Z, Y, X), all of them in memory; errors as for :meth:`blocks`."""
        probabilities = np.empty(self.shape, self.dtype)
        flat = probabilities.reshape(self.shape[0], -1)
        for channel, part, block in self.blocks():
            flat[channel, part] = block
        return probabilities


def check_decoded(channels: NpzChannels, labels: Labels, meaning: LabelMeaning, files: CaseFiles) -> None:
    """Raise a ValueError unless a decoded segmentation is what its thresholds give, in a pass over the channels.

    Args:
        channels: the probabilities; they are not checked themselves.
        labels: (Z, Y, X) canonical labels of the segmentation.
        meaning: of the labels.
        files: with the thresholds; also for the message.
    """
    given = _Given(labels, meaning, files, channels.dtype)
    blocks = channels.blocks()
    for channel in range(channels.shape[0]):
        for start in range(0, labels.size, BLOCK):
            block = next(blocks)
            given.add(channel, slice(start, start + block.size), block)
    given.check()


class _Given:
    """The labels that probabilities give, from blocks of them as they pass, compared with the saved ones at the end.

    nnU-Net's labels are the argmax, or each region's where p > 1/2. Where the probabilities leave several labels open,
    any of them is right. Of a decoded segmentation that is so where several structures exceed their thresholds. It is
    background only where the most probable structure does not exceed its threshold: so it is with each rule by which
    one of several structures is chosen.
    """

    def __init__(self, saved: Labels, meaning: LabelMeaning, files: CaseFiles, dtype: "np.dtype[np.floating]") -> None:
        self._shape, self._files = saved.shape, files
        self._saved = saved.reshape(-1)
        self._thresholds = files.thresholds
        self._label = np.zeros_like(self._saved)
        self._written: tuple[int, ...] | None = None
        if self._thresholds is not None and len(self._thresholds.values) != len(meaning.structures):
            raise ValueError(
                f"{files.prediction}: the mark of its folder should have a threshold for each of "
                f"{len(meaning.structures)} structures; it has {len(self._thresholds.values)}."
            )
        if meaning.regions is not None:
            self._written = tuple(written_labels(meaning))
        else:
            self._largest = np.full(saved.size, -1 if self._thresholds is None else 0, dtype)
            self._of_saved = np.zeros(saved.size, dtype)

    def add(self, channel: int, part: slice, p: NDArray[np.floating]) -> None:
        """Add a block of a channel; channels come in order."""
        label, saved = self._label[part], self._saved[part]
        if self._written is not None:
            if self._thresholds is None:
                write_region(label, p, self._written[channel], saved)
            else:
                label[self._thresholds.are_exceeded(p, channel)] = self._written[channel]
            return
        if self._thresholds is None or channel > 0:
            larger = p > self._largest[part]
            np.copyto(self._largest[part], p, where=larger)
            np.copyto(label, label.dtype.type(channel), where=larger)
            np.copyto(self._of_saved[part], p, where=saved == channel)

    def check(self) -> None:
        """Raise a ValueError unless the saved segmentation is what the probabilities give, postprocessed or not."""
        if self._written is None:
            for start in range(0, self._saved.size, BLOCK):
                self._settle(slice(start, start + BLOCK))
        check_agreement(self._label.reshape(self._shape), self._saved.reshape(self._shape), self._files)

    def _settle(self, part: slice) -> None:
        """Take the saved label where it is as right as the one found; of decoded ones, none below its threshold."""
        label, saved = self._label[part], self._saved[part]
        largest, of_saved = self._largest[part], self._of_saved[part]
        if self._thresholds is None:
            label[of_saved == largest] = saved[of_saved == largest]
            return
        label[(label > 0) & ~self._thresholds.are_exceeded(largest, np.maximum(label, 1) - 1)] = 0
        right = (saved > 0) & self._thresholds.are_exceeded(of_saved, np.maximum(saved, 1) - 1)
        label[right] = saved[right]
