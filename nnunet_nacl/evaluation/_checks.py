"""What a case's arrays must fulfil before numbers are made of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._counting import mark_labels
from nnunet_nacl.nnunet import (
    BLOCK,
    CaseFiles,
    Channels,
    DataSet,
    Geometry,
    LabelMeaning,
    check_geometry,
    declared_shape,
    read_labels,
)

SUM_TOLERANCE = 1e-3
_FEW_CLASSES = 48
_ONE = 32_500
"""What a probability of 1 is in 16 bits: two of them and a little more still fit."""
_SMALL_LABELS = 1 << 16


def check_shape(
    shape: tuple[int, ...], labels_shape: tuple[int, ...], name: str, *, whose: str = "the ground truth's"
) -> None:
    """Raise a ValueError that names the axes unless ``shape`` is (C, *labels_shape)."""
    if shape[1:] == labels_shape:
        return
    hint = ""
    if len(shape) != len(labels_shape) + 1:
        hint = f": expected {len(labels_shape) + 1} axes, classes first, and got {len(shape)}"
    elif shape[:-1] == labels_shape:
        hint = ": the classes seem to be the last axis, but nnU-Net's files have them first"
    else:
        differ = [axis for axis, (a, b) in enumerate(zip(shape[1:], labels_shape, strict=True)) if a != b]
        hint = ": " + ", ".join(f"axis {axis} is {shape[1 + axis]}, not {labels_shape[axis]}" for axis in differ)
        if sorted(shape[1:]) == sorted(labels_shape):
            hint += "; the same sizes in another order, so is it transposed?"
    raise ValueError(f"{name}: the shape {shape} does not match {whose}, {labels_shape}{hint}.")


def check_declared_shape(file: Path, channels: Channels, *, whose: str = "the ground truth's") -> None:
    """Raise a ValueError if the header of a label map declares another number of voxels than the probabilities have.

    So no more memory is taken for either than the other one has voxels for.
    """
    shape = declared_shape(file)
    if shape is not None and math.prod(shape) != math.prod(channels.shape[1:]):
        check_shape(channels.shape, shape, channels.name, whose=whose)


@dataclass(frozen=True)
class CaseLabels:
    """A case's label maps, with canonical labels.

    Attributes:
        ground_truth: (Z, Y, X).
        prediction: (Z, Y, X), the saved segmentation.
        geometry: of the ground truth; of the segmentation, if only that says something.
    """

    ground_truth: NDArray[np.unsignedinteger]
    prediction: NDArray[np.unsignedinteger]
    geometry: Geometry


def read_case_labels(
    files: CaseFiles, channels: Channels, data_set: DataSet, *, ignore_geometry: bool = False
) -> CaseLabels:
    """Read ground truth and saved segmentation of a case, and compare them with each other and the probabilities.

    Args:
        files: of the case.
        channels: its probabilities.
        data_set: how to read them.
        ignore_geometry: take them as they are, though their spacing, origin or direction differ.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or does not fit the others or the data set.
    """
    meaning = data_set.meaning
    check_declared_shape(files.ground_truth, channels)
    truth = read_labels(files.ground_truth, data_set.reader)
    check_shape(channels.shape, truth.labels.shape, channels.name)
    check_channels(channels, meaning)
    labels = canonical_labels(truth.labels, meaning, data_set.ignore_label, str(files.ground_truth))
    geometry = truth.geometry
    del truth
    declared = declared_shape(files.prediction)
    if declared is None or math.prod(declared) == labels.size:
        saved = read_labels(files.prediction, data_set.reader)
        declared = saved.labels.shape
    if declared != labels.shape:
        raise ValueError(f"{files.prediction}: the shape {declared} does not match the ground truth's, {labels.shape}.")
    prediction = canonical_labels(saved.labels, meaning, None, str(files.prediction))
    if not ignore_geometry:
        check_geometry(files.prediction, saved.geometry, files.ground_truth, geometry)
    if not geometry.known:
        geometry = saved.geometry
    return CaseLabels(labels, prediction, geometry)


def check_channels(channels: Channels, meaning: LabelMeaning) -> None:
    """Raise a ValueError unless there is one channel for each class or region."""
    if channels.shape[0] != meaning.num_channels:
        kind = "labels" if meaning.has_background else "regions"
        raise ValueError(
            f"{channels.name}: shape {channels.shape} has {channels.shape[0]} channels (the first axis), but the data "
            f"set has {meaning.num_channels} {kind}."
        )


def canonical_labels(
    labels: NDArray[np.integer], meaning: LabelMeaning, ignore_label: int | None, name: str
) -> NDArray[np.unsignedinteger]:
    """Labels in the smallest unsigned dtype, ignored voxels as ``meaning.ignored``.

    Raises:
        ValueError: labels that are not known.
    """
    _check_labels(labels, meaning.known if ignore_label is None else (*meaning.known, ignore_label), name)
    dtype = np.min_scalar_type(meaning.ignored)
    if ignore_label is None or ignore_label == meaning.ignored:
        return labels.astype(dtype, copy=False)
    return np.where(labels == ignore_label, meaning.ignored, labels).astype(dtype)


def _check_labels(labels: NDArray[np.integer], known: Sequence[int], name: str) -> None:
    if labels.dtype.kind not in "iub":
        raise ValueError(f"{name}: expected labels of an integer dtype; got {labels.dtype}.")
    dtype = np.uint8 if labels.dtype.kind == "b" else labels.dtype.newbyteorder("=")
    native = labels.astype(dtype, copy=False).reshape(-1)
    occurs = np.zeros(_SMALL_LABELS, bool)
    present = np.flatnonzero(occurs) if mark_labels(native, occurs) else np.unique(native)
    unknown = sorted(set(present.tolist()) - set(known))
    if unknown:
        raise ValueError(
            f"{name} holds labels that are not in the data set: {', '.join(map(str, unknown[:10]))}; "
            f"known are {', '.join(map(str, sorted(known)))}."
        )


def checked_blocks(channels: Channels, *, regions: bool) -> Iterator[tuple[int, slice, NDArray[np.floating]]]:
    """Read probabilities, and check that they are some: in [0, 1] and, for classes, with a sum of 1 in each voxel.

    Args:
        channels: (C, *spatial).
        regions: whether the channels are regions, which do not sum to 1.

    Yields:
        Channel, voxels and values (n,) of each block. Sums and checksum are checked after the last one.

    Raises:
        ValueError: the file is damaged, or values are no probabilities.
    """
    voxels = math.prod(channels.shape[1:])
    sums = None if regions else SumCheck(channels)
    blocks = channels.blocks()
    try:
        for channel in range(channels.shape[0]):
            for number, start in enumerate(range(0, voxels, BLOCK)):
                block = next(blocks)
                check_block(block, channel, channels.name)
                if sums is not None:
                    sums.add(number, block)
                yield channel, slice(start, start + block.size), block
        next(blocks, None)  # reading to the end checks the file
        if sums is not None:
            sums.check()
    except ValueError:
        for _ in channels.blocks():
            pass  # if the values are wrong because the file is damaged, reading on to its checksum says so
        raise


def check_block(block: NDArray[np.floating], channel: int, name: str) -> None:
    """Raise a ValueError if values are not in [0, 1]."""
    lowest, highest = block.min(), block.max()
    if lowest >= 0 and highest <= 1:
        return
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        raise ValueError(f"{name}: NaN or infinite values in channel {channel}.")
    raise ValueError(
        f"{name}: expected probabilities in [0, 1]; channel {channel} has values from {lowest} to {highest}. "
        "Are these logits?"
    )


class SumCheck:
    """Adds up the probabilities of each voxel, which must give 1.

    For few classes in 16 bits: a float32 for each voxel would be a quarter of a case of four classes. Rounding to steps
    of 1 / 32,500 can be off by 7e-4 in the sum of 48 classes; where that leaves a doubt, all is read and added again
    exactly.
    Each block has an array of its own: such small ones fit into what reading the label maps has left free.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        coarse = channels.shape[0] <= _FEW_CLASSES
        self._one = _ONE if coarse else 1
        self._sums = _zeros(channels, np.uint16 if coarse else np.float32)
        self._scratch = np.empty(BLOCK, np.float32)
        self._too_large = False

    def add(self, number: int, block: NDArray[np.floating]) -> None:
        """Add block ``number`` of one channel."""
        sums = self._sums[number]
        if self._one == 1:
            sums += block
            return
        scratch = np.multiply(block, np.float32(self._one), out=self._scratch[: block.size], casting="same_kind")
        scratch += np.float32(0.5)
        sums += scratch.astype(np.uint16)
        if sums.max() > 1.01 * self._one:  # stop before they pass 16 bits and look right again
            self._too_large = True
            sums[:] = self._one

    def check(self) -> None:
        """Raise a ValueError if a sum is off by more than the tolerance."""
        rounding = self._channels.shape[0] / 2 / self._one if self._one > 1 else 0.0
        deviation = _deviation(self._sums, self._one)
        if self._too_large or deviation > SUM_TOLERANCE - rounding:
            deviation = self._exact_deviation()
        if not deviation <= SUM_TOLERANCE:
            raise ValueError(
                f"{self._channels.name}: the probabilities of a voxel must sum to 1 over the "
                f"{self._channels.shape[0]} classes; a sum is off by {deviation:.3g}."
            )

    def _exact_deviation(self) -> float:
        sums = _zeros(self._channels, np.float32)
        blocks = self._channels.blocks()
        for _ in range(self._channels.shape[0]):
            for number in range(len(sums)):
                sums[number] += next(blocks)
        return _deviation(sums, 1)


def _zeros(channels: Channels, dtype: type[np.generic]) -> list[NDArray[Any]]:
    voxels = math.prod(channels.shape[1:])
    return [np.zeros(min(BLOCK, voxels - start), dtype) for start in range(0, voxels, BLOCK)]


def _deviation(sums: list[NDArray[Any]], one: int) -> float:
    return max((max(float(block.max()) - one, one - float(block.min())) / one for block in sums), default=0.0)
