"""The one pass over a case's probabilities that counts.

In each channel, a voxel belongs to exactly one cell: the byte of its memberships. Sums are taken for each channel, cell
and bin. A voxel set is some of the cells, and its tables, its tables under perfect calibration and its scores are sums
over them. So are the sums of a structure over all voxels, and over those that are not ignored. Without ground truth,
all are.

Held in the size of the image are, of classes: ground truth, segmentation, argmax, whether they agree, and cells (a byte
each), the probability of the background, the largest one and the sum over the classes (four bytes each): 17 bytes a
voxel, however many classes there are.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, islice, product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nnunet_nacl.metrics._counts import CellSums
from nnunet_nacl.metrics._labels import Activation, LabelMeaning
from nnunet_nacl.metrics._loops import (
    FOREGROUND,
    HIT,
    IMAGE,
    NEAR,
    PREDICTED,
    SEGMENTED,
    Bytes,
    update_argmax,
)
from nnunet_nacl.metrics._near import near_core
from nnunet_nacl.metrics._overlap import confusion_matrix
from nnunet_nacl.metrics._settings import CORE_PROBABILITY, Settings
from nnunet_nacl.typing import Floats, Labels, Mask

BLOCK = 1 << 16  # voxels, which fit into the processor's cache
SUM_TOLERANCE = 1e-3
"""By how much a voxel's sum may differ from 1; in half precision, it differs by up to 0.00025."""

Block = tuple[int, slice, Floats]
"""A channel, some of its voxels, and their values (n,)."""

Blocks = Iterator[Block]


class Channels:
    """Probabilities (C, *spatial) that are read in order: here, of an array in memory."""

    def __init__(self, probabilities: Floats) -> None:
        self.name = "the probabilities"
        self.shape = probabilities.shape
        self.dtype = check_dtype(probabilities.dtype, self.name)
        self._probabilities = probabilities

    @property
    def parts(self) -> list[slice]:
        """The voxels of each block of a channel."""
        size = math.prod(self.shape[1:])
        return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]

    def blocks(self) -> Blocks:
        """Yield channel, voxels and values (n,) of each block, channel by channel, in C order. Can be called again."""
        for (channel, part), block in zip(
            product(range(self.shape[0]), self.parts), self._blocks(), strict=True
        ):
            yield channel, part, block

    def _blocks(self) -> Iterator[Floats]:
        for channel in self._probabilities:
            voxels = np.ascontiguousarray(channel, self.dtype).reshape(-1)
            yield from (voxels[part] for part in self.parts)


def check_dtype(dtype: "np.dtype[Any]", name: str) -> "np.dtype[np.floating]":
    """Return the dtype in the machine's byte order."""
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ValueError(
            f"{name}: expected an array of dtype float16, float32 or float64; got {dtype}."
        )
    return dtype.newbyteorder("=")


def check_shape(
    channels: Channels, meaning: LabelMeaning, labels_shape: tuple[int, ...], name: str
) -> None:
    """Raise a ValueError unless the first axis has one channel per class or region, and each label has one value."""
    expected = (meaning.num_channels, *labels_shape)
    if channels.shape != expected:
        kind = "classes" if meaning.activation.exclusive else "regions"
        raise ValueError(
            f"{channels.name}: expected the shape {expected}, the {expected[0]} {kind} of the data set and the axes of "
            f"{name}; got {channels.shape}."
        )


def checked_blocks(channels: Channels, activation: Activation) -> Blocks:
    """Yield channel, voxels and values (n,) of each block, float32 at least.

    Raises a ValueError if the file is damaged or values are not probabilities: they must be in [0, 1] and, except for
    regions, sum to 1 in each voxel, which is checked at the end.
    """
    dtype = np.result_type(channels.dtype, np.float32)
    sums = np.zeros(math.prod(channels.shape[1:]) if activation.exclusive else 0, np.float32)
    blocks = channels.blocks()
    for channel, part, stored in blocks:
        block = stored.astype(dtype, copy=False)
        lowest = block.min()
        highest = block.max()
        if not (lowest >= 0 and highest <= 1):
            for _ in blocks:
                # Read on to the checksum: if the file is damaged, that is the better message.
                pass
            raise ValueError(
                f"{channels.name}: expected probabilities in [0, 1], no logits and no NaN; channel {channel} has "
                f"values from {lowest} to {highest}."
            )
        if sums.size:
            sums[part] += block
        yield channel, part, block
    sums -= 1
    wrong = np.flatnonzero(np.abs(sums, out=sums) > SUM_TOLERANCE)
    if wrong.size:
        raise ValueError(
            f"{channels.name}: the probabilities of a voxel must sum to 1 over the {channels.shape[0]} classes; in "
            f"{wrong.size} voxels the sum is off by up to {sums[wrong].max():.3g}."
        )


def above(p: Floats, threshold: float, *, or_equal: bool = False) -> Mask:
    """Mark where p exceeds, or reaches, the float64 threshold, not the threshold rounded to p's dtype."""
    compare = np.greater_equal if or_equal else np.greater
    return compare(p, threshold, signature="dd->?")


class GivenLabels:
    """The labels that probabilities give: ``add`` takes the voxels of each channel in order, then come ``labels()``.

    Without thresholds, classes give their argmax, and each region writes where p > 1/2, over those before it. With
    thresholds, structures write where p exceeds theirs. Where several labels are right, that of the segmentation is
    taken.

    Attributes:
        segmentation: (n,) may follow from the probabilities.
        label: (n,) what the channels so far give; of equally probable classes, the lowest.
    """

    def __init__(
        self,
        segmentation: Labels,
        meaning: LabelMeaning,
        dtype: DTypeLike,
        thresholds: Sequence[float] | None = None,
    ) -> None:
        self.segmentation = segmentation
        self.label = np.zeros_like(segmentation)
        self._meaning = meaning
        self._agrees = np.zeros(0, bool)
        is_exclusive = meaning.activation.exclusive
        self._by_argmax = is_exclusive and thresholds is None
        if self._by_argmax:
            self._rule = "the argmax"
            self._largest = np.full(segmentation.size, -1, np.result_type(dtype, np.float32))
            self._agrees = np.zeros(segmentation.size, bool)
            return
        self._rule = "given by the thresholds that it was decoded with"
        if thresholds is None:
            self._rule = "each region where p exceeds 1/2"
            thresholds = [0.5] * meaning.num_channels
        written = meaning.known[1:] if is_exclusive else meaning.written
        self._writes = [(0, np.inf)] * meaning.activation.first_structure
        self._writes += zip(written, thresholds, strict=True)

    def add(self, channel: int, part: slice, p: Floats) -> None:
        """Take a channel's probabilities (n,), float32 at least, of some of the voxels."""
        segmentation, label = self.segmentation[part], self.label[part]
        if self._by_argmax:
            update_argmax(p, channel, segmentation, self._largest[part], label, self._agrees[part])
            return
        written, threshold = self._writes[channel]
        may_be_there = above(p, threshold, or_equal=True) & (segmentation == written)
        there = above(p, threshold) | may_be_there
        if self._meaning.activation.exclusive:
            there &= (label == 0) | (label != segmentation)
        label[there] = written

    def labels(self) -> Labels:
        """Return the labels (n,), after the last channel."""
        if self._by_argmax:
            return np.where(self._agrees, self.segmentation, self.label)
        return self.label

    def check(self, name: str) -> None:
        """Raise a ValueError unless the segmentation has these labels, postprocessed or not."""
        pairs = confusion_matrix(self.labels(), self.segmentation, self._meaning.ignored + 1)
        if wrong := int(pairs[:, 1:].sum() - np.trace(pairs[1:, 1:])):
            voxels = f"{wrong} of {self.segmentation.size} voxels"
            what = f"has another label than these probabilities give in {voxels}"
        elif pairs[1:].any() and not pairs[:, 1:].any():
            what = "is empty, and these probabilities give structures"
        else:
            return
        raise ValueError(
            f"{name}: the segmentation {what}; expected {self._rule}, but for components that postprocessing removed. "
            "Was it predicted again without --save_probabilities (in training: --npz), are they of another case or "
            "another model, or is the orientation read wrongly? The reader that plans.json names decides it."
        )


def segment(probabilities: Floats, meaning: LabelMeaning) -> Labels:
    """Label voxels (*spatial) as nnU-Net does, from p (C, *spatial): by argmax, or each region over earlier ones."""
    spatial = probabilities.shape[1:]
    # Of equally probable classes the first wins, and of a region at exactly 1/2 the background
    background = np.zeros(spatial, np.min_scalar_type(max(meaning.known))).reshape(-1)
    given = GivenLabels(background, meaning, probabilities.dtype)
    for channel, p in enumerate(probabilities):
        exact = p.astype(np.result_type(p, np.float32), copy=False)
        given.add(channel, slice(None), exact.reshape(-1))
    return given.labels().reshape(spatial)


@dataclass(frozen=True)
class CaseArrays:
    """A case to count, with canonical labels (*spatial).

    ``truth`` is None without ground truth. If ``must_agree``, the segmentation must follow from the probabilities, by
    the thresholds if there are any.
    """

    channels: Channels
    truth: Labels | None
    segmentation: Labels
    meaning: LabelMeaning
    spacing: Sequence[float]
    voxel_ml: float
    settings: Settings
    must_agree: bool = False
    thresholds: tuple[float, ...] | None = None

    def flat(self) -> tuple[Labels, Labels]:
        """Return ground truth (the ignored label everywhere if there is none) and segmentation, (n,) each."""
        truth = self.truth
        if truth is None:
            ignored = self.meaning.ignored
            truth = np.full_like(self.segmentation, ignored, np.min_scalar_type(ignored))
        return truth.reshape(-1), self.segmentation.reshape(-1)


def count_classes(case: CaseArrays) -> tuple[CellSums, CellSums]:
    """Return a case's sums by the segmentation and by the argmax, which postprocessing may have changed.

    Raises a ValueError if values are not probabilities, or give another segmentation than they must.
    """
    meaning = case.meaning
    truth, segmentation = case.flat()
    sums = CellSums(meaning, case.settings, case.channels.dtype)
    blocks = checked_blocks(case.channels, meaning.activation)
    # The first channel says which voxels are near, before any of them is counted
    background = list(islice(blocks, len(case.channels.parts)))
    near = _near(background, case)
    cells = np.empty(truth.size, np.uint8)
    for part in case.channels.parts:
        cells[part] = _cells(
            {
                IMAGE: truth[part] != meaning.ignored,
                FOREGROUND: truth[part] > 0,
                PREDICTED: segmentation[part] > 0,
                NEAR: near[part],
            }
        )
    del near
    p_0_at = {part.start: p for _, part, p in background}
    argmax = GivenLabels(segmentation, meaning, case.channels.dtype)
    takers = [argmax]
    if case.thresholds is not None:
        takers.append(GivenLabels(segmentation, meaning, case.channels.dtype, case.thresholds))
    for channel, part, p in chain(background, blocks):
        for taker in takers:
            taker.add(channel, part, p)
        of_class = _cells({SEGMENTED: segmentation[part] == channel, HIT: truth[part] == channel})
        sums.add(channel, p, cells[part] | of_class, p_0_at[part.start])
    if case.must_agree:
        takers[-1].check(case.channels.name)
    if np.array_equal(argmax.label, segmentation):
        return sums, sums
    # The argmax is known only now, after the pass
    by_argmax = replace(
        case,
        segmentation=argmax.label.reshape(case.segmentation.shape),
        must_agree=False,
        thresholds=None,
    )
    return sums, count_classes(by_argmax)[0]


def count_regions(case: CaseArrays) -> CellSums:
    """Return a case's sums; errors as for classes."""
    meaning = case.meaning
    truth, segmentation = case.flat()
    sums = CellSums(meaning, case.settings, case.channels.dtype)
    given = None
    if case.must_agree:  # without, it need not be known which labels regions write
        given = GivenLabels(segmentation, meaning, case.channels.dtype, case.thresholds)
    blocks = checked_blocks(case.channels, meaning.activation)
    for number in range(meaning.num_channels):
        of_region = list(islice(blocks, len(case.channels.parts)))
        near = _near(of_region, case)
        for channel, part, p in of_region:
            if given is not None:
                given.add(channel, part, p)
            is_within = meaning.mask(truth[part], number)
            cells = _cells(
                {
                    IMAGE: truth[part] != meaning.ignored,
                    FOREGROUND: is_within,
                    PREDICTED: p > 0.5,
                    NEAR: near[part],
                    SEGMENTED: meaning.mask(segmentation[part], number),
                    HIT: is_within,
                }
            )
            sums.add(channel, p, cells)
    for _ in blocks:  # to the end, which checks the file
        pass
    if given is not None:
        given.check(case.channels.name)
    return sums


def _near(channel: list[Block], case: CaseArrays) -> Mask:
    """Mark the voxels (n,) near those where 1 − p_0, or a region's p, exceeds the core's probability."""
    foreground = case.meaning.activation.foreground
    core = np.concatenate([foreground(p) > CORE_PROBABILITY for _, _, p in channel])
    image = core.reshape(case.segmentation.shape)
    near = near_core(image, case.spacing, case.settings.margin_mm)
    return near.reshape(-1)


def _cells(members: dict[int, Mask]) -> Bytes:
    """Return the cells (n,) of voxels with these memberships."""
    bits = (member.view(np.uint8) * np.uint8(chosen) for chosen, member in members.items())
    return reduce(np.bitwise_or, bits)
