"""A case as nnU-Net has saved it: its label maps and probabilities, read, checked, and compared with each other."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._agreement import labels_given
from nnunet_nacl.evaluation._compiled import translate
from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import CaseFiles, Channels, DataSet, LabelMeaning, Labels

SUM_TOLERANCE = 1e-3
"""By how much a voxel's sum may differ from 1; in half precision, it differs by up to 0.00025."""

Blocks = Iterator[tuple[int, slice, NDArray[np.floating]]]


class SavedCase:
    """A case's segmentation, and its probabilities, of that ``shape`` (C, Z, Y, X) and ``dtype``, not read yet.

    ``labels`` (Z, Y, X) are the canonical labels of the segmentation, ``geometry`` is where it lies. Raises an OSError
    if a file cannot be read, a ValueError if it is damaged, or does not fit the others or the data set.
    """

    def __init__(self, files: CaseFiles, data_set: DataSet) -> None:
        files.check_predicted()
        self.files, self._data_set = files, data_set
        self.channels = Channels.of_file(files.probabilities)
        self.shape, self.dtype = self.channels.shape, self.channels.dtype
        saved, self.geometry = data_set.reader.read_labels(files.prediction)
        check_shape(self.channels, data_set.meaning, saved.shape, files.prediction.name)
        self.labels = canonical_labels(saved, data_set.meaning, None, str(files.prediction))

    def read_like(
        self, file: Path, *, ignore_label: int | None = None, ignore_geometry: bool = False
    ) -> tuple[Labels, Any]:
        """Canonical labels of another label map of the case, which must lie where the segmentation does, and where."""
        labels, geometry = self._data_set.reader.read_labels(file)
        if labels.shape != self.labels.shape:
            raise ValueError(f"{file}: the shape {labels.shape} is not the segmentation's, {self.labels.shape}.")
        if not ignore_geometry:
            geometry.check_same(self.geometry)
        canonical = canonical_labels(labels, self._data_set.meaning, ignore_label, str(file))
        return canonical, geometry if geometry.known else self.geometry

    def read_truth(self, *, ignore_geometry: bool = False) -> tuple[Labels, Any]:
        """Canonical labels of the ground truth, and where it lies."""
        file = self.files.ground_truth
        check_input(file, ": no ground truth.")
        if file.samefile(self.files.prediction):
            raise ValueError(f"{self.files.prediction} is the ground truth itself; expected what a model predicted.")
        return self.read_like(file, ignore_label=self._data_set.ignore_label, ignore_geometry=ignore_geometry)

    def blocks(self) -> Blocks:
        """Yield channel, voxels and values (n,) of each block of the probabilities, in order.

        Raises a ValueError at the end unless the segmentation is what they give: their argmax, up to postprocessing, or
        what their thresholds give if it was decoded.
        """
        given = labels_given(self.labels.reshape(-1), self._data_set.meaning, self.files.thresholds, self.dtype)
        for channel, part, block in checked_blocks(self.channels, regions=self._data_set.meaning.regions is not None):
            given.add(channel, part, block)
            yield channel, part, block
        given.check(self.files)

    def probabilities(self, dtype: "np.dtype[np.floating] | type[np.floating] | None" = None) -> NDArray[Any]:
        """(C, Z, Y, X) of that dtype, by default their own, all of them in memory; errors as for :meth:`blocks`."""
        probabilities = np.empty(self.shape, self.dtype if dtype is None else dtype)
        flat = probabilities.reshape(self.shape[0], -1)
        for channel, part, block in self.blocks():
            flat[channel, part] = block
        return probabilities


def checked_blocks(channels: Channels, *, regions: bool) -> Blocks:
    """Channel, voxels and values (n,) of each block, float32 at least.

    Raises a ValueError if the file is damaged or values are no probabilities: they must be in [0, 1] and, unless they
    are of regions, sum to 1 in each voxel, which is checked at the end.
    """
    dtype = np.result_type(channels.dtype, np.float32)
    sums = np.zeros(0 if regions else math.prod(channels.shape[1:]), np.float32)
    blocks = channels.blocks()
    try:
        for channel, part, stored in blocks:
            block = stored.astype(dtype, copy=False)
            _check_range(block, channel, channels.name)
            if not regions:
                sums[part] += block
            yield channel, part, block
    except ValueError:
        for _ in blocks:
            pass  # if the values are wrong because the file is damaged, reading on to its checksum says so
        raise
    sums -= 1
    wrong = np.flatnonzero(np.abs(sums, out=sums) > SUM_TOLERANCE)
    if wrong.size:
        raise ValueError(
            f"{channels.name}: the probabilities of a voxel must sum to 1 over the {channels.shape[0]} classes; in "
            f"{wrong.size} voxels the sum is off by up to {sums[wrong].max():.3g}."
        )


def _check_range(block: NDArray[np.floating], channel: int, name: str) -> None:
    lowest, highest = block.min(), block.max()
    if not (lowest >= 0 and highest <= 1):
        found = f"channel {channel} has values from {lowest} to {highest}"
        raise ValueError(f"{name}: expected probabilities in [0, 1], no logits and no NaN; {found}.")


def check_shape(channels: Channels, meaning: LabelMeaning, labels_shape: tuple[int, ...], name: str) -> None:
    """Raise a ValueError unless there is one channel for each class or region, first, and one value for each label."""
    expected = (meaning.num_channels, *labels_shape)
    if channels.shape != expected:
        kind = f"{expected[0]} {'classes' if meaning.has_background else 'regions'} of the data set"
        raise ValueError(
            f"{channels.name}: expected the shape {expected}, the {kind} and the axes of {name}; got {channels.shape}."
        )


def canonical_labels(labels: NDArray[np.integer], meaning: LabelMeaning, ignore_label: int | None, name: str) -> Labels:
    """Labels in the smallest unsigned dtype, ignored voxels as ``meaning.ignored``; a ValueError tells unknown ones."""
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected labels of an integer dtype; got {labels.dtype}.")
    known = {label: label for label in meaning.known}
    if ignore_label is not None:
        known[ignore_label] = meaning.ignored
    table = np.full(max(known) + 1, -1)
    table[list(known)] = list(known.values())
    canonical = np.empty(labels.shape, np.min_scalar_type(meaning.ignored))
    if not translate(labels.reshape(-1), table, canonical.reshape(-1)):
        unknown = np.setdiff1d(labels, list(known))[:10]
        raise ValueError(
            f"{name} holds labels that are not in the data set: {', '.join(map(str, unknown))}; "
            f"known are {', '.join(map(str, sorted(known)))}."
        )
    return canonical
