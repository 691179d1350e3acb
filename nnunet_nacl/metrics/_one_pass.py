"""The one pass over a case's probabilities that adds each voxel to its cell, and the record that follows.

Held in the size of the image are, of classes: ground truth, segmentation, argmax, whether they agree, and cells (a byte
each), the probability of the background, the largest one and the sum over the classes (four bytes each): 17 bytes a
voxel, however many classes there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from nnunet_nacl.metrics._cells import (
    FOREGROUND,
    HIT,
    IMAGE,
    NEAR,
    PREDICTED,
    SEGMENTED,
    CellSums,
    cells_of,
)
from nnunet_nacl.metrics._channels import Block, Channels, checked_blocks
from nnunet_nacl.metrics._counts import Counts
from nnunet_nacl.metrics._decision import ImpliedLabels
from nnunet_nacl.metrics._from_cells import counts_of
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._near import near_core
from nnunet_nacl.metrics._settings import CORE_PROBABILITY, Settings
from nnunet_nacl.metrics._surfaces import measure_surfaces
from nnunet_nacl.typing import Labels, Mask


@dataclass(frozen=True)
class CaseArrays:
    """A case to count, with canonical labels (*spatial).

    Without ground truth, ``truth`` is the ignored label everywhere. If ``must_agree``, the segmentation must follow
    from the probabilities, by the thresholds if there are any.
    """

    channels: Channels
    truth: Labels
    segmentation: Labels
    meaning: LabelMeaning
    spacing: Sequence[float]
    voxel_ml: float
    settings: Settings
    has_truth: bool = True
    must_agree: bool = False
    thresholds: tuple[float, ...] | None = None


def evaluate_arrays(case: CaseArrays) -> Counts:
    """Return the record of one case, whose labels are canonical.

    Raises a ValueError if values are not probabilities, or give another segmentation than they must.
    """
    if case.meaning.activation.exclusive:
        sums, by_argmax = _count_classes(case)
    else:
        sums = by_argmax = _count_regions(case)
    counts = counts_of(sums, by_argmax, case.voxel_ml, has_truth=case.has_truth)
    truth = counts.truth
    if truth is None:
        return counts
    is_known = truth.ignored[:, np.newaxis] < 1
    is_there = truth.voxels > 0
    is_predicted = truth.sums.segmented > 0
    metrics = {
        "Dice": truth.dice,
        "Missed": np.where(is_there, ~is_predicted, np.nan),
        "Spurious": np.where(is_known & ~is_there, is_predicted, np.nan),
    }
    if case.settings.surface:
        metrics |= measure_surfaces(
            case.truth, case.segmentation, case.meaning, case.spacing, case.settings.tolerance_mm
        )
    return replace(counts, segmentation_metrics=metrics)


def _count_classes(case: CaseArrays) -> tuple[CellSums, CellSums]:
    """Return a case's sums by the segmentation and by the argmax, which postprocessing may have changed."""
    meaning = case.meaning
    truth = case.truth.reshape(-1)
    segmentation = case.segmentation.reshape(-1)
    sums = CellSums(meaning, case.settings, case.channels.dtype)
    blocks = checked_blocks(case.channels, meaning.activation)
    # The first channel says which voxels are near, before any of them is counted
    background = list(islice(blocks, len(case.channels.parts)))
    near = _mark_near(background, case)
    cells = np.empty(truth.size, np.uint8)
    for part in case.channels.parts:
        cells[part] = cells_of(
            {
                IMAGE: truth[part] != meaning.ignored,
                FOREGROUND: truth[part] > 0,
                PREDICTED: segmentation[part] > 0,
                NEAR: near[part],
            }
        )
    del near
    p_0_at = {part.start: p for _, part, p in background}
    argmax = ImpliedLabels(segmentation, meaning, case.channels.dtype)
    rules = [argmax]
    if case.thresholds is not None:
        rules.append(ImpliedLabels(segmentation, meaning, case.channels.dtype, case.thresholds))
    for channel, part, p in chain(background, blocks):
        for rule in rules:
            rule.add(channel, part, p)
        of_class = cells_of({SEGMENTED: segmentation[part] == channel, HIT: truth[part] == channel})
        sums.add(channel, p, cells[part] | of_class, p_0_at[part.start])
    if case.must_agree:
        rules[-1].check(case.channels.name)
    if np.array_equal(argmax.lowest_label, segmentation):
        return sums, sums
    # The argmax is known only now, after the pass
    by_argmax = replace(
        case,
        segmentation=argmax.lowest_label.reshape(case.segmentation.shape),
        must_agree=False,
        thresholds=None,
    )
    return sums, _count_classes(by_argmax)[0]


def _count_regions(case: CaseArrays) -> CellSums:
    meaning = case.meaning
    truth = case.truth.reshape(-1)
    segmentation = case.segmentation.reshape(-1)
    sums = CellSums(meaning, case.settings, case.channels.dtype)
    implied = ImpliedLabels(segmentation, meaning, case.channels.dtype, case.thresholds)
    blocks = checked_blocks(case.channels, meaning.activation)
    for number in range(meaning.num_channels):
        of_region = list(islice(blocks, len(case.channels.parts)))
        near = _mark_near(of_region, case)
        for channel, part, p in of_region:
            implied.add(channel, part, p)
            is_within = meaning.mask(truth[part], number)
            cells = cells_of(
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
    if case.must_agree:
        implied.check(case.channels.name)
    return sums


def _mark_near(channel: list[Block], case: CaseArrays) -> Mask:
    """Mark the voxels (n,) near those where 1 − p_0, or a region's p, exceeds the core's probability."""
    foreground = case.meaning.activation.foreground
    core = np.concatenate([foreground(p) > CORE_PROBABILITY for _, _, p in channel])
    image = core.reshape(case.segmentation.shape)
    near = near_core(image, case.spacing, case.settings.margin_mm)
    return near.reshape(-1)
