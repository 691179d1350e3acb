"""A case as nnU-Net has saved it, without ground truth: its segmentation, and its probabilities as they pass."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._agreement import GivenLabels, Labels, check_agreement
from nnunet_nacl.evaluation._checks import (
    canonical_labels,
    check_channels,
    check_declared_shape,
    check_shape,
    checked_blocks,
)
from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import BLOCK, CaseFiles, DataSet, LabelMeaning, NpzChannels, read_labels


class SavedCase:
    """A case's saved segmentation and probabilities, which must belong together.

    Attributes:
        files: of the case; ground truth is not looked at.
        shape: (C, Z, Y, X) of the probabilities.
        dtype: of the probabilities.
        labels: (Z, Y, X) canonical labels of the segmentation.
        geometry: of the segmentation.
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
        whose = f"that of {files.prediction.name}"
        check_declared_shape(files.prediction, self._channels, whose=whose)
        saved = read_labels(files.prediction, data_set.reader)
        check_shape(self.shape, saved.labels.shape, self._channels.name, whose=whose)
        self.labels = canonical_labels(saved.labels, self._meaning, None, str(files.prediction))
        self.geometry = saved.geometry

    def blocks(self) -> Iterator[tuple[int, slice, NDArray[np.floating]]]:
        """Yield channel, voxels and values (n,) of each block of the probabilities, in order.

        Raises:
            ValueError: the file is damaged, values are no probabilities, or the segmentation is not what they give:
                their argmax up to postprocessing, or what their thresholds give if it was decoded.
        """
        files = self.files
        given = GivenLabels(self.labels, self._meaning, files.thresholds, self.dtype, str(files.prediction))
        for channel, part, block in checked_blocks(self._channels, regions=self._meaning.regions is not None):
            given.add(channel, part, block)
            yield channel, part, block
        check_agreement(given.labels(), self.labels, files)

    def probabilities(self, dtype: "np.dtype[np.floating] | type[np.floating] | None" = None) -> NDArray[Any]:
        """(C, Z, Y, X) of that dtype, by default their own, all of them in memory; errors as for :meth:`blocks`."""
        probabilities = np.empty(self.shape, self.dtype if dtype is None else dtype)
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
    given = GivenLabels(labels, meaning, files.thresholds, channels.dtype, str(files.prediction))
    blocks = channels.blocks()
    for channel in range(channels.shape[0]):
        for start in range(0, labels.size, BLOCK):
            block = next(blocks)
            given.add(channel, slice(start, start + block.size), block)
    check_agreement(given.labels(), labels, files)
