"""The one pass over a case's probabilities that counts.

Each voxel belongs to exactly one cell: the byte of its memberships. Sums are taken for each channel, cell and bin. A
voxel set is some of the cells, and its tables, its tables under perfect calibration and its scores are sums over them.
So are the sums of a structure over all voxels, and over those that are not ignored. Without ground truth, all are.

Held in the size of the image are, of classes: ground truth, segmentation, argmax, whether they agree, and cells (a byte
each), background and largest probability (four bytes each): 13 bytes a voxel, however many classes there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from nnunet_nacl.metrics._agreement import Argmax, GivenLabels, Thresholded
from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._channels import Block, Channels, checked_blocks
from nnunet_nacl.metrics._compiled import (
    FOREGROUND,
    IMAGE,
    NEAR,
    PREDICTED,
    TOP,
    Bytes,
    count_class,
    count_region,
)
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._near import near_core
from nnunet_nacl.metrics._record import Counts
from nnunet_nacl.metrics._settings import CORE_PROBABILITY, THRESHOLDS, Settings
from nnunet_nacl.metrics._sums import CellSums
from nnunet_nacl.typing import Floats, Labels, Mask


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

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the image."""
        return self.channels.shape[1:]

    def flat(self) -> tuple[Labels, Labels]:
        """(n,) the ground truth, or without any the ignored label everywhere; and the segmentation."""
        truth = self.truth
        if truth is None:
            ignored = self.meaning.ignored
            truth = np.full(self.shape, ignored, np.min_scalar_type(ignored))
        return truth.reshape(-1), self.segmentation.reshape(-1)


def count_case(case: CaseArrays) -> Counts:
    """Count a case, except for segmentation metrics.

    Raises a ValueError if values are not probabilities, a DisagreementError if they give another segmentation.
    """
    if case.meaning.activation.exclusive:
        sums, argmax = _count_classes(case)
        by_argmax = sums
        # Postprocessed: tables need the predicted class, which is known only after the pass.
        if argmax is not None:
            unchecked = replace(case, segmentation=argmax, must_agree=False, thresholds=None)
            by_argmax, _ = _count_classes(unchecked)
    else:
        sums = _count_regions(case)
        by_argmax = sums
    return sums.counts(by_argmax, case.voxel_ml, has_truth=case.truth is not None)


def _count_classes(case: CaseArrays) -> tuple[CellSums, Labels | None]:
    """The sums by the segmentation, and the argmax (*spatial) if it differs."""
    meaning = case.meaning
    truth, segmentation = case.flat()
    dtype = np.result_type(case.channels.dtype, np.float32)
    edges = _edges(case.settings.num_bins, case.channels.dtype, dtype)
    sums = CellSums(meaning, case.settings)
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
    argmax = Argmax(segmentation, meaning, dtype)
    takers: list[GivenLabels] = [argmax]
    if case.thresholds is not None:
        takers.append(Thresholded(segmentation, meaning, case.thresholds))
    for channel, part, p in chain(background, blocks):
        for taker in takers:
            taker.add(channel, part, p)
        if channel > 0:
            sums.add_structure(channel, p, truth[part] != meaning.ignored)
        sums.entropy[channel] += count_class(
            channel,
            p,
            p_0_at[part.start],
            truth[part],
            segmentation[part],
            cells[part],
            edges,
            THRESHOLDS,
            sums.channels[channel],
            sums.nll[channel],
            sums.missed[channel],
        )
    if case.must_agree:
        takers[-1].check()
    sums.add_tops()
    is_argmax = np.array_equal(argmax.label, segmentation)
    return sums, None if is_argmax else argmax.label.reshape(case.shape)


def _count_regions(case: CaseArrays) -> CellSums:
    meaning = case.meaning
    truth, segmentation = case.flat()
    dtype = np.result_type(case.channels.dtype, np.float32)
    edges = _edges(case.settings.num_bins, case.channels.dtype, dtype)
    # 1 − p is not rounded to the dtype of the file
    top_edges = _edges(case.settings.num_bins, dtype, dtype)
    sums = CellSums(meaning, case.settings)
    given = None
    if case.must_agree:  # without, it need not be known which labels regions write
        given = Thresholded(segmentation, meaning, case.thresholds)
    blocks = checked_blocks(case.channels, meaning.activation)
    for number in range(meaning.num_channels):
        of_region = list(islice(blocks, len(case.channels.parts)))
        near = _near(of_region, case)
        for channel, part, p in of_region:
            if given is not None:
                given.add(channel, part, p)
            counted = truth[part] != meaning.ignored
            cells = _cells(
                {
                    IMAGE: counted,
                    FOREGROUND: meaning.mask(truth[part], number),
                    PREDICTED: p > 0.5,
                    NEAR: near[part],
                    TOP: meaning.mask(segmentation[part], number),
                }
            )
            sums.add_structure(channel, p, counted)
            sums.entropy[channel] += count_region(
                p,
                cells,
                edges,
                THRESHOLDS,
                sums.channels[channel],
                sums.nll[channel],
                sums.missed[channel],
                top_edges,
                sums.top[channel],
            )
    for _ in blocks:  # to the end, which checks the file
        pass
    if given is not None:
        given.check()
    return sums


def _edges(
    num_bins: int, stored: "np.dtype[np.floating]", dtype: "np.dtype[np.floating]"
) -> Floats:
    """The edges, from 0, in the dtype that p is stored in, so that k/M lies on an edge."""
    return BinCounts.edges(num_bins, stored).clip(0).astype(dtype)


def _near(channel: list[Block], case: CaseArrays) -> Mask:
    """(n,) where 1 − p_0, or a region's p, exceeds the core's probability, and around that."""
    foreground = case.meaning.activation.foreground
    core = np.concatenate([foreground(p) > CORE_PROBABILITY for _, _, p in channel])
    near = near_core(core.reshape(case.shape), case.spacing, case.settings.margin_mm)
    return near.reshape(-1)


def _cells(members: dict[int, Mask]) -> Bytes:
    """(n,) the numbers of the cells of voxels with these memberships."""
    bits = [np.uint8(member) * chosen for member, chosen in members.items()]
    cells: Bytes = np.bitwise_or.reduce(bits)
    return cells
