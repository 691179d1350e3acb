"""A case as nnU-Net has saved it: its label maps and probabilities, read, checked, and compared with each other."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._agreement import check_segmentation, labels_given
from nnunet_nacl.evaluation._compiled import Labels, translate
from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import (
    BLOCK,
    CaseFiles,
    Channels,
    DataSet,
    Geometry,
    LabelMeaning,
    NpzChannels,
    check_geometry,
    read_labels,
)

SUM_TOLERANCE = 1e-3

Blocks = Iterator[tuple[int, slice, NDArray[np.floating]]]


class SavedCase:
    """A case's segmentation and probabilities, which belong together.

    Attributes:
        files: of the case.
        channels: the probabilities, of that ``shape`` (C, Z, Y, X) and ``dtype``; not read yet.
        labels: (Z, Y, X) canonical labels of the segmentation.
        geometry: of the segmentation.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is damaged, or does not fit the others or the data set.
    """

    def __init__(self, files: CaseFiles, data_set: DataSet) -> None:
        if reason := files.missing(truth=False):
            raise FileNotFoundError(reason)
        self.files, self._data_set = files, data_set
        self.channels = NpzChannels(files.probabilities)
        self.shape, self.dtype = self.channels.shape, self.channels.dtype
        saved = read_labels(files.prediction, data_set.reader)
        check_shape(self.channels, data_set.meaning, saved.labels.shape, files.prediction.name)
        self.labels = canonical_labels(saved.labels, data_set.meaning, None, str(files.prediction))
        self.geometry = saved.geometry

    def read_truth(self, *, ignore_geometry: bool = False) -> tuple[Labels, Geometry]:
        """Canonical labels of the ground truth, which must lie where the segmentation does, and where that is."""
        file = self.files.ground_truth
        check_input(file, ": no ground truth.")
        if file.samefile(self.files.prediction):
            raise ValueError(f"{self.files.prediction} is the ground truth itself; expected what a model predicted.")
        read = read_labels(file, self._data_set.reader)
        if read.labels.shape != self.labels.shape:
            shapes = f"the shape {self.labels.shape} does not match the ground truth's, {read.labels.shape}."
            raise ValueError(f"{self.files.prediction}: {shapes}")
        if not ignore_geometry:
            check_geometry(self.files.prediction, self.geometry, file, read.geometry)
        labels = canonical_labels(read.labels, self._data_set.meaning, self._data_set.ignore_label, str(file))
        return labels, read.geometry if read.geometry.known else self.geometry

    def blocks(self) -> Blocks:
        """Yield channel, voxels and values (n,) of each block of the probabilities, in order.

        Raises a ValueError at the end unless the segmentation is what they give: their argmax, up to postprocessing, or
        what their thresholds give if it was decoded.
        """
        saved, meaning = self.labels.reshape(-1), self._data_set.meaning
        given = labels_given(saved, meaning, self.files, np.result_type(self.dtype, np.float32))
        for channel, part, block in checked_blocks(self.channels, regions=meaning.regions is not None):
            given.add(channel, part, block)
            yield channel, part, block
        check_segmentation(given.labels(), saved, self.files)

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
    are of regions, sum to 1, which is checked of each block's mean at the end.
    """
    dtype = np.result_type(channels.dtype, np.float32)
    starts = range(0, math.prod(channels.shape[1:]), BLOCK)
    means = np.full(len(starts), float(regions))  # of the sum over the channels
    blocks = channels.blocks()
    try:
        for channel, (number, start) in product(range(channels.shape[0]), enumerate(starts)):
            block = next(blocks).astype(dtype, copy=False)
            _check_range(block, channel, channels.name)
            if not regions:
                means[number] += block.mean()
            yield channel, slice(start, start + block.size), block
        next(blocks, None)  # reading to the end checks the file
        _check_sums(means, channels)
    except ValueError:
        for _ in blocks:
            pass  # if the values are wrong because the file is damaged, reading on to its checksum says so
        raise


def _check_sums(means: NDArray[np.float64], channels: Channels) -> None:
    deviation = np.abs(means - 1).max(initial=0)
    if not deviation <= SUM_TOLERANCE:
        raise ValueError(
            f"{channels.name}: the probabilities of a voxel must sum to 1 over the {channels.shape[0]} classes; over "
            f"{BLOCK} voxels the sums are off by {deviation:.3g} on average."
        )


def _check_range(block: NDArray[np.floating], channel: int, name: str) -> None:
    lowest, highest = block.min(), block.max()
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        raise ValueError(f"{name}: NaN or infinite values in channel {channel}.")
    if lowest < 0 or highest > 1:
        logits = " Are these logits?" if max(-lowest, highest - 1) > SUM_TOLERANCE else ""
        found = f"channel {channel} has values from {lowest} to {highest}.{logits}"
        raise ValueError(f"{name}: expected probabilities in [0, 1]; {found}")


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
    if labels.dtype.kind not in "iub":
        raise ValueError(f"{name}: expected labels of an integer dtype; got {labels.dtype}.")
    known = {label: label for label in meaning.known}
    if ignore_label is not None:
        known[ignore_label] = meaning.ignored
    table = np.full(max(known) + 1, -1)
    table[list(known)] = list(known.values())
    canonical = np.empty(labels.shape, np.min_scalar_type(meaning.ignored))
    integers = labels.astype(np.uint8) if labels.dtype.kind == "b" else labels
    if not translate(integers.reshape(-1), table, canonical.reshape(-1)):
        unknown = np.setdiff1d(labels, list(known))[:10]
        raise ValueError(
            f"{name} holds labels that are not in the data set: {', '.join(map(str, unknown))}; "
            f"known are {', '.join(map(str, sorted(known)))}."
        )
    return canonical
