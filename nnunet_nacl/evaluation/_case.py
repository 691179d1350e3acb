"""A case as nnU-Net saved it, its files checked against each other."""

from pathlib import Path

import numpy as np

from nnunet_nacl.files import check_input
from nnunet_nacl.metrics import (
    Blocks,
    ImpliedLabels,
    canonical_labels,
    check_shape,
    checked_blocks,
)
from nnunet_nacl.nnunet import CaseFiles, DataSet, LabelMap, NpzChannels
from nnunet_nacl.typing import Floats


class SavedCase:
    """A case's segmentation, and the ``channels`` (C, Z, Y, X) of its probabilities, not read yet.

    ``labels`` (Z, Y, X) are the canonical labels of the segmentation, ``geometry`` is where it lies. Raises an OSError
    if a file cannot be read, a ValueError if it is damaged, or does not fit the others or the data set.
    """

    def __init__(self, files: CaseFiles, data_set: DataSet) -> None:
        files.check_predicted()
        self.files = files
        self._data_set = data_set
        self.channels = NpzChannels(files.probabilities)
        saved, self.geometry = data_set.reader.read_labels(files.prediction)
        check_shape(self.channels, data_set.meaning, saved.shape, files.prediction.name)
        self.labels = canonical_labels(saved, data_set.meaning, None, str(files.prediction))

    def read_like(
        self, file: Path, *, ignore_label: int | None = None, ignore_geometry: bool = False
    ) -> LabelMap:
        """Read another label map of the case, which must lie like the segmentation: canonical labels and geometry."""
        labels, geometry = self._data_set.reader.read_labels(file)
        geometry.check_same(self.geometry, ignore_geometry=ignore_geometry)
        canonical = canonical_labels(labels, self._data_set.meaning, ignore_label, str(file))
        return LabelMap(canonical, self.geometry if self.geometry.known else geometry)

    def read_truth(self, *, ignore_geometry: bool = False) -> LabelMap:
        """Read the ground truth: canonical labels and geometry."""
        file = self.files.ground_truth
        assert file is not None
        check_input(file, ": no ground truth.")
        if file.samefile(self.files.prediction):
            raise ValueError(
                f"{self.files.prediction} is the ground truth itself; expected what a model predicted."
            )
        return self.read_like(
            file, ignore_label=self._data_set.ignore_label, ignore_geometry=ignore_geometry
        )

    def blocks(self) -> Blocks:
        """Yield channel, voxels and values (n,) of each block of the probabilities, in order.

        Raises a ValueError at the end unless the segmentation follows from them: it must be their argmax, up to
        postprocessing, or follow from the thresholds if it was decoded.
        """
        meaning = self._data_set.meaning
        channels = self.channels
        implied = ImpliedLabels(
            self.labels.reshape(-1), meaning, channels.dtype, self.files.thresholds
        )
        for channel, part, block in checked_blocks(channels, meaning.activation):
            implied.add(channel, part, block)
            yield channel, part, block
        implied.check(channels.name)

    def probabilities(self) -> Floats:
        """Return all probabilities (C, Z, Y, X); errors as for ``blocks``."""
        probabilities = np.empty(self.channels.shape, self.channels.dtype)
        flat = probabilities.reshape(len(probabilities), -1)
        for channel, part, block in self.blocks():
            flat[channel, part] = block
        return probabilities
