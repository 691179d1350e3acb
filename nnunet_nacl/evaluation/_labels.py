"""A case's label maps and probabilities: read, checked, and compared with each other.

nnU-Net's segmentation is the argmax of its probabilities; with regions, each writes its label where p > 1/2, in the
order of ``regions_class_order``. Postprocessing then sets whole structures to background, but never all. Anything else
is of another case or model, or was read in another orientation. The probabilities leave open which label wins where the
highest are equal as stored, and whether a region is there where its p is exactly 1/2, to which half precision may have
rounded: then any of them is right.
"""

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._compiled import follow, mark_labels
from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import (
    BLOCK,
    DECODED_NAME,
    CaseFiles,
    Channels,
    DataSet,
    Geometry,
    LabelMeaning,
    NpzChannels,
    Thresholds,
    check_geometry,
    read_labels,
)

Labels = NDArray[np.unsignedinteger]

SUM_TOLERANCE = 1e-3
_MOST_LABELS = 1 << 16


# Probabilities


def checked_blocks(channels: Channels, *, regions: bool) -> Iterator[tuple[int, slice, NDArray[np.floating]]]:
    """Channel, voxels and values (n,) of each block, float32 at least, while a thread reads ahead.

    They must be in [0, 1] and, unless they are of regions, sum to 1 in each voxel, which is checked after the last one.

    Raises:
        ValueError: the file is damaged, or values are no probabilities.
    """
    voxels = math.prod(channels.shape[1:])
    dtype = np.result_type(channels.dtype, np.float32)
    sums = None if regions else np.zeros(voxels, np.float32)
    blocks = _read_ahead(channels.blocks())
    try:
        for channel in range(channels.shape[0]):
            for start in range(0, voxels, BLOCK):
                block = next(blocks).astype(dtype, copy=False)
                _check_block(block, channel, channels.name)
                part = slice(start, start + block.size)
                if sums is not None:
                    sums[part] += block
                yield channel, part, block
        next(blocks, None)  # reading to the end checks the file
        if sums is not None and voxels:
            _check_sums(sums, channels)
    except ValueError:
        for _ in blocks:
            pass  # if the values are wrong because the file is damaged, reading on to its checksum says so
        raise


def _check_sums(sums: NDArray[np.float32], channels: Channels) -> None:
    deviation = max(float(sums.max()) - 1, 1 - float(sums.min()))
    if not deviation <= SUM_TOLERANCE:
        raise ValueError(
            f"{channels.name}: the probabilities of a voxel must sum to 1 over the {channels.shape[0]} classes; a sum "
            f"is off by {deviation:.3g}."
        )


def _read_ahead(blocks: Iterator[NDArray[np.floating]]) -> Iterator[NDArray[np.floating]]:
    with ThreadPoolExecutor(1) as thread:
        ahead = deque(thread.submit(_some_of, blocks) for _ in range(2))
        while some := ahead.popleft().result():
            ahead.append(thread.submit(_some_of, blocks))
            yield from some


def _some_of(blocks: Iterator[NDArray[np.floating]]) -> list[NDArray[np.floating]]:
    return list(islice(blocks, 4))


def _check_block(block: NDArray[np.floating], channel: int, name: str) -> None:
    lowest, highest = block.min(), block.max()
    if lowest >= 0 and highest <= 1:
        return
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        raise ValueError(f"{name}: NaN or infinite values in channel {channel}.")
    logits = " Are these logits?" if lowest < -SUM_TOLERANCE or highest > 1 + SUM_TOLERANCE else ""
    raise ValueError(
        f"{name}: expected probabilities in [0, 1]; channel {channel} has values from {lowest} to {highest}.{logits}"
    )


def check_channels(channels: Channels, meaning: LabelMeaning) -> None:
    """Raise a ValueError unless there is one channel for each class or region."""
    if channels.shape[0] != meaning.num_channels:
        kind = "labels" if meaning.has_background else "regions"
        raise ValueError(
            f"{channels.name}: shape {channels.shape} has {channels.shape[0]} channels (the first axis), but the data "
            f"set has {meaning.num_channels} {kind}."
        )


def check_shape(
    shape: tuple[int, ...], labels_shape: tuple[int, ...], name: str, *, whose: str = "the ground truth's"
) -> None:
    """Raise a ValueError that names the axes unless ``shape`` is (C, *labels_shape)."""
    if shape[1:] == labels_shape:
        return
    hint = ": expected one axis more, classes first"
    if len(shape) == len(labels_shape) + 1:
        differ = [axis for axis, (a, b) in enumerate(zip(shape[1:], labels_shape, strict=True)) if a != b]
        hint = ": " + ", ".join(f"axis {axis} is {shape[1 + axis]}, not {labels_shape[axis]}" for axis in differ)
    if (len(shape) > 1 and sorted(shape[1:]) == sorted(labels_shape)) or shape[:-1] == labels_shape:
        hint += "; is it transposed? nnU-Net's files have the classes first"
    raise ValueError(f"{name}: the shape {shape} does not match {whose}, {labels_shape}{hint}.")


# Label maps


@dataclass(frozen=True)
class CaseLabels:
    """A case's label maps (Z, Y, X) with canonical labels: ground truth, saved segmentation, and where they lie."""

    ground_truth: Labels
    prediction: Labels
    geometry: Geometry


def read_case_labels(
    files: CaseFiles, channels: Channels, data_set: DataSet, *, ignore_geometry: bool = False
) -> CaseLabels:
    """Read ground truth and saved segmentation of a case, and compare them with each other and the probabilities.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or does not fit the others or the data set, or the segmentation is the ground
            truth's own file.
    """
    meaning = data_set.meaning
    if files.prediction.samefile(files.ground_truth):
        raise ValueError(f"{files.prediction} is the ground truth itself; expected what a model predicted.")
    truth = read_labels(files.ground_truth, data_set.reader)
    check_shape(channels.shape, truth.labels.shape, channels.name)
    check_channels(channels, meaning)
    labels = canonical_labels(truth.labels, meaning, data_set.ignore_label, str(files.ground_truth))
    geometry = truth.geometry
    del truth
    saved = read_labels(files.prediction, data_set.reader)
    if saved.labels.shape != labels.shape:
        raise ValueError(
            f"{files.prediction}: the shape {saved.labels.shape} does not match the ground truth's, {labels.shape}."
        )
    prediction = canonical_labels(saved.labels, meaning, None, str(files.prediction))
    if not ignore_geometry:
        check_geometry(files.prediction, saved.geometry, files.ground_truth, geometry)
    return CaseLabels(labels, prediction, geometry if geometry.known else saved.geometry)


def canonical_labels(labels: NDArray[np.integer], meaning: LabelMeaning, ignore_label: int | None, name: str) -> Labels:
    """Labels in the smallest unsigned dtype, ignored voxels as ``meaning.ignored``.

    Raises:
        ValueError: labels that are not known.
    """
    if labels.dtype.kind not in "iub":
        raise ValueError(f"{name}: expected labels of an integer dtype; got {labels.dtype}.")
    native = np.uint8 if labels.dtype.kind == "b" else labels.dtype.newbyteorder("=")
    labels = labels.astype(native, copy=False)
    known = {*meaning.known, *(() if ignore_label is None else (ignore_label,))}
    occurs = np.zeros(_MOST_LABELS, bool)
    present = np.flatnonzero(occurs) if mark_labels(labels.reshape(-1), occurs) else np.unique(labels)
    unknown = sorted(set(present.tolist()) - known)
    if unknown:
        raise ValueError(
            f"{name} holds labels that are not in the data set: {', '.join(map(str, unknown[:10]))}; "
            f"known are {', '.join(map(str, sorted(known)))}."
        )
    dtype = np.min_scalar_type(meaning.ignored)
    if ignore_label is None or ignore_label == meaning.ignored:
        return labels.astype(dtype, copy=False)
    return np.where(labels == ignore_label, meaning.ignored, labels).astype(dtype)


# Whether a saved segmentation is the one that the saved probabilities give


class Argmax:
    """Of classes: the largest probability (n,), the first class that has it, and whether the saved one has it."""

    def __init__(self, saved: Labels, dtype: "np.dtype[np.floating]") -> None:
        self._saved = saved
        self.largest, self.label = np.empty(saved.size, dtype), np.empty_like(saved)
        self.agrees = np.empty(saved.size, bool)

    def add(self, channel: int, part: slice, p: NDArray[np.floating]) -> None:
        follow(p, channel, self._saved[part], self.largest[part], self.label[part], self.agrees[part])

    def labels(self) -> Labels:
        return np.where(self.agrees, self._saved, self.label)


class _Written:
    """Of regions: the label that each writes over those of the regions before it, where p > 1/2."""

    def __init__(self, saved: Labels, meaning: LabelMeaning, thresholds: Thresholds | None) -> None:
        if len(meaning.written) != meaning.num_channels:
            raise ValueError(
                f"expected a label in regions_class_order of dataset.json for each of the {meaning.num_channels} "
                f"regions; got {len(meaning.written)}."
            )
        self._saved, self._written, self._thresholds = saved, meaning.written, thresholds
        self._label = np.zeros_like(saved)

    def add(self, channel: int, part: slice, p: NDArray[np.floating]) -> None:
        label = self._written[channel]
        if self._thresholds is None:
            self._label[part][(p > 0.5) | ((p == 0.5) & (self._saved[part] == label))] = label
        else:
            self._label[part][self._thresholds.are_exceeded(p, channel)] = label

    def labels(self) -> Labels:
        return self._label


class _Decoded:
    """Of classes with thresholds: the most probable structure, if it exceeds its own.

    Where several structures exceed theirs, any of them is right: each rule by which one is chosen has such labels.
    """

    def __init__(self, saved: Labels, thresholds: Thresholds, dtype: "np.dtype[np.floating]") -> None:
        self._saved, self._thresholds = saved, thresholds
        self._label = np.zeros_like(saved)
        self._largest, self._of_saved = np.zeros(saved.size, dtype), np.zeros(saved.size, dtype)

    def add(self, channel: int, part: slice, p: NDArray[np.floating]) -> None:
        if channel > 0:
            larger = p > self._largest[part]
            np.copyto(self._largest[part], p, where=larger)
            np.copyto(self._label[part], self._label.dtype.type(channel), where=larger)
            np.copyto(self._of_saved[part], p, where=self._saved[part] == channel)

    def labels(self) -> Labels:
        for start in range(0, self._saved.size, BLOCK):
            part = slice(start, start + BLOCK)
            label, saved = self._label[part], self._saved[part]
            label[(label > 0) & ~self._exceeds(self._largest[part], label)] = 0
            right = (saved > 0) & self._exceeds(self._of_saved[part], saved)
            label[right] = saved[right]
        return self._label

    def _exceeds(self, p: NDArray[np.floating], label: Labels) -> NDArray[np.bool_]:
        return self._thresholds.are_exceeded(p, np.maximum(label, 1) - 1)


GivenLabels: TypeAlias = Argmax | _Written | _Decoded
"""The labels that probabilities give, which are the saved ones where these are as right.

``add(channel, part, p)`` takes the voxels of each channel in order; ``labels()`` then returns all (n,).
"""


def labels_given(
    saved: Labels,
    meaning: LabelMeaning,
    thresholds: Thresholds | None,
    dtype: "np.dtype[np.floating]",
    name: str = "the segmentation",
) -> GivenLabels:
    """What takes probabilities as they pass, given (n,) canonical labels as saved, and how they were decoded."""
    if thresholds is not None and len(thresholds.values) != len(meaning.structures):
        raise ValueError(
            f"{name}: the mark of its folder should have a threshold for each of {len(meaning.structures)} "
            f"structures; it has {len(thresholds.values)}."
        )
    if meaning.regions is not None:
        return _Written(saved, meaning, thresholds)
    return Argmax(saved, dtype) if thresholds is None else _Decoded(saved, thresholds, dtype)


def given_labels(
    probabilities: NDArray[np.floating], saved: Labels, meaning: LabelMeaning, thresholds: Thresholds | None = None
) -> Labels:
    """The labels (...) that probabilities (C, ...) give; arguments as of :func:`labels_given`."""
    dtype = np.result_type(probabilities.dtype, np.float32)
    given = labels_given(saved.reshape(-1), meaning, thresholds, dtype)
    for channel, p in enumerate(probabilities):
        given.add(channel, slice(None), p.reshape(-1).astype(dtype, copy=False))
    return given.labels().reshape(saved.shape)


def check_drawn(given: Labels, saved: Labels, files: CaseFiles, *, is_empty: bool) -> None:
    """Raise a ValueError unless saved labels (n,), of all voxels or some, are those given, postprocessed or not.

    ``is_empty`` says whether all of the segmentation is background.
    """
    wrong = int(np.count_nonzero((saved > 0) & (given != saved)))
    if wrong:
        _refuse(files, f"has another label than these probabilities give in {wrong} of {saved.size} voxels")
    if is_empty and given.any():
        _refuse(files, "is empty, and these probabilities give structures")


def _refuse(files: CaseFiles, what: str) -> NoReturn:
    rule = "nnU-Net's is their argmax"
    if files.thresholds is not None:
        rule = f"by {DECODED_NAME} it is where they exceed their thresholds"
    raise ValueError(
        f"{files.probabilities}: the segmentation {files.prediction.name} {what}; {rule}, of which postprocessing "
        "removes whole components. Are they of another case or another model, or is the orientation read wrongly? The "
        "latter is decided by the reader that plans.json (-pfile) names."
    )


class SavedCase:
    """A case as nnU-Net has saved it, without ground truth: segmentation and probabilities, which belong together.

    Attributes:
        files: of the case; ground truth is not looked at.
        shape: (C, Z, Y, X) of the probabilities.
        dtype: of the probabilities.
        labels: (Z, Y, X) canonical labels of the segmentation.
        geometry: of the segmentation.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is damaged, or does not fit the others or the data set.
    """

    def __init__(self, files: CaseFiles, data_set: DataSet) -> None:
        check_input(files.probabilities)
        check_input(files.prediction)
        self.files = files
        self._meaning = data_set.meaning
        self._channels = NpzChannels(files.probabilities)
        check_channels(self._channels, self._meaning)
        self.shape, self.dtype = self._channels.shape, self._channels.dtype
        saved = read_labels(files.prediction, data_set.reader)
        check_shape(self.shape, saved.labels.shape, self._channels.name, whose=f"that of {files.prediction.name}")
        self.labels = canonical_labels(saved.labels, self._meaning, None, str(files.prediction))
        self.geometry = saved.geometry

    def blocks(self) -> Iterator[tuple[int, slice, NDArray[np.floating]]]:
        """Yield channel, voxels and values (n,) of each block of the probabilities, in order.

        Raises:
            ValueError: the file is damaged, values are no probabilities, or the segmentation is not what they give:
                their argmax up to postprocessing, or what their thresholds give if it was decoded.
        """
        files, saved = self.files, self.labels.reshape(-1)
        dtype = np.result_type(self.dtype, np.float32)
        given = labels_given(saved, self._meaning, files.thresholds, dtype, str(files.prediction))
        for channel, part, block in checked_blocks(self._channels, regions=self._meaning.regions is not None):
            given.add(channel, part, block)
            yield channel, part, block
        check_drawn(given.labels(), saved, files, is_empty=not saved.any())

    def probabilities(self, dtype: "np.dtype[np.floating] | type[np.floating] | None" = None) -> NDArray[Any]:
        """(C, Z, Y, X) of that dtype, by default their own, all of them in memory; errors as for :meth:`blocks`."""
        probabilities = np.empty(self.shape, self.dtype if dtype is None else dtype)
        flat = probabilities.reshape(self.shape[0], -1)
        for channel, part, block in self.blocks():
            flat[channel, part] = block
        return probabilities
