"""The one pass over a case's probabilities that counts.

Each voxel belongs to exactly one cell: the byte of its memberships. Sums are taken for each channel, cell and bin. A
voxel set is some of the cells, and its tables, its tables under perfect calibration and its scores are sums over them.

Held in the size of the image are, of classes: ground truth, segmentation, argmax, whether they agree, and cells (a byte
each), background and largest probability (four bytes each): 13 bytes a voxel, however many classes there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._agreement import Argmax, SavedAs, Thresholded, labels_given
from nnunet_nacl.metrics._arrays import checked_blocks
from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._channels import Channels
from nnunet_nacl.metrics._compiled import (
    CHANCE,
    COLUMNS,
    CONFIDENCE,
    COUNT,
    FOREGROUND,
    HIT,
    IMAGE,
    NEAR,
    NUM_CELLS,
    PREDICTED,
    PRODUCTS,
    SQUARES,
    TOP,
    Bytes,
    count_class,
    count_region,
)
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._near import near_core
from nnunet_nacl.metrics._settings import CORE_PROBABILITY, Settings, Voxels
from nnunet_nacl.metrics._tables import CalibrationTables
from nnunet_nacl.typing import Floats, Labels, Mask

_CELLS = np.arange(HIT)  # ignored voxels are in cell 0
_COUNTED = (_CELLS & IMAGE) > 0
_PREDICTED = _COUNTED & ((_CELLS & PREDICTED) > 0)
_MEMBERS: dict[Voxels, int] = {
    "foreground": FOREGROUND,
    "union": FOREGROUND | PREDICTED,
    "near": NEAR,
    "image": IMAGE,
}


@dataclass(frozen=True)
class CaseArrays:
    """A case to count, with canonical labels (*spatial).

    If it says what it was saved as, the segmentation must fit the probabilities, by the thresholds if there are any.
    """

    channels: Channels
    truth: Labels
    saved: Labels
    meaning: LabelMeaning
    spacing: Sequence[float]
    settings: Settings
    saved_as: SavedAs | None = None
    thresholds: tuple[float, ...] | None = None


def count_case(case: CaseArrays) -> dict[Voxels, CalibrationTables]:
    """Tables of each voxel set; a ValueError if values are not probabilities or give another segmentation."""
    if case.meaning.activation is Activation.SIGMOID:
        return _count_regions(case).tables(case.settings, case.meaning.num_channels)
    sums, argmax, agrees = _count_classes(case)
    # Postprocessed: the pass needs the predicted class, which is known only after it.
    if not agrees:
        sums, *_ = _count_classes(replace(case, saved=argmax, saved_as=None, thresholds=None))
    num_classes = case.meaning.num_channels
    if case.settings.protocol == "authors":  # those up to the highest label of the case
        num_classes = int(case.truth[case.truth != case.meaning.ignored].max(initial=0)) + 1
    return sums.tables(case.settings, num_classes)


class _Sums:
    """What the compiled loops add to; C channels.

    Attributes:
        activation: of classes or of regions.
        channels: (C, NUM_CELLS, M + 1, COLUMNS) of each channel's probability.
        top: (T, NUM_CELLS, M + 1, COLUMNS) of the predicted label's: T = 1 of classes, C of regions.
        nll: (T, NUM_CELLS) negative log-likelihoods.
    """

    def __init__(self, meaning: LabelMeaning, num_bins: int) -> None:
        shape = (NUM_CELLS, num_bins + 1, COLUMNS)
        self.activation = meaning.activation
        self.channels = np.zeros((meaning.num_channels, *shape))
        self.top = np.zeros((meaning.num_tops, *shape))
        self.nll = np.zeros((meaning.num_tops, NUM_CELLS))

    def tables(self, settings: Settings, num_classes: int) -> dict[Voxels, CalibrationTables]:
        """The tables of each voxel set."""
        # (T or C, 2, HIT, ...): misses and hits, and the cells without them
        channels, top, nll = (
            sums.reshape(len(sums), 2, HIT, *sums.shape[2:]).copy()
            for sums in (self.channels, self.top, self.nll)
        )
        if settings.counts_all_voxels:  # p = 0 is in the first bin
            for sums in (channels, top):
                sums[..., 1, :] += sums[..., 0, :]
                sums[..., 0, :] = 0
        # Σ(c − hit)² = Σc² − 2 Σ c·hit + Σ hit; of classes, over the channels
        hits = channels[:, 1].sum(2)
        squared = channels.sum((1, 3))[..., SQUARES] - 2 * hits[..., CONFIDENCE] + hits[..., COUNT]
        brier = squared.reshape(len(top), -1, HIT).sum(1)
        image_voxels = top[..., COUNT].sum((1, 3))[:, _COUNTED].sum(1).astype(np.int64)
        found = {}
        for voxels in settings.voxels:
            inside = _COUNTED & ((_CELLS & _MEMBERS[voxels]) > 0)
            expected_top = None
            expected_channels = None
            if settings.counts_all_voxels and voxels in {"foreground", "union"}:
                surely = _PREDICTED if voxels == "union" else np.zeros_like(_PREDICTED)
                right = np.tile(_COUNTED, (len(channels), 1))
                # Only voxels that are surely in the set can be background.
                if self.activation is Activation.SOFTMAX:
                    right[0] = surely
                expected_channels = _expected(channels.sum(1), surely, right)
                expected_top = _expected(top.sum(1), surely, np.tile(_PREDICTED, (len(top), 1)))
            found[voxels] = CalibrationTables(
                top=_observed(top[:, :, inside].sum(2)),
                classwise=_observed(channels[:, :, inside].sum(2)),
                nll=nll.sum(1)[:, inside].sum(1),
                brier=brier[:, inside].sum(1),
                num_classes=num_classes,
                activation=self.activation,
                image_voxels=image_voxels,
                expected_top=expected_top,
                expected_classwise=expected_channels,
            )
        return found


def _count_classes(case: CaseArrays) -> tuple[_Sums, Labels, bool]:
    """The sums, if the segmentation is the argmax; the argmax; and whether both agree where voxels count."""
    meaning = case.meaning
    truth = case.truth.reshape(-1)
    saved = case.saved.reshape(-1)
    parts = case.channels.parts
    dtype = np.result_type(case.channels.dtype, np.float32)
    edges = _edges(case.settings.num_bins, case.channels.dtype, dtype)
    sums = _Sums(meaning, case.settings.num_bins)
    background: Floats
    cells = np.empty(truth.size, np.uint8)
    given = labels_given(saved, meaning, case.thresholds, dtype)
    argmax = Argmax(saved, meaning, dtype) if isinstance(given, Thresholded) else given

    def add(k: int, part: slice, p: Floats) -> None:
        count_class(
            k,
            p,
            background[part],
            truth[part],
            saved[part],
            cells[part],
            edges,
            sums.channels[k],
            sums.nll[0],
        )

    for channel, part, p in checked_blocks(case.channels, meaning.activation):
        for taker in {given, argmax}:
            taker.add(channel, part, p)
        if channel > 0:
            add(channel, part, p)
        elif part.stop == truth.size:  # Near is known only after the whole channel.
            near = _near(argmax.largest, case)
            for each in parts:
                counted = truth[each] != meaning.ignored
                cells[each] = _cells(counted, truth[each] > 0, saved[each] > 0, near[each])
            del near
            # So far, the background is the largest
            background = argmax.largest.copy()
            for each in parts:
                add(0, each, background[each])
    if case.saved_as is not None:
        given.check(case.saved_as)
    is_top = (np.arange(NUM_CELLS) & TOP) > 0
    sums.top[0, is_top] = sums.channels[:, is_top].sum(0)
    agrees = all(((argmax.label[part] == saved[part]) | (cells[part] == 0)).all() for part in parts)
    return sums, argmax.label.reshape(case.saved.shape), agrees


def _count_regions(case: CaseArrays) -> _Sums:
    meaning = case.meaning
    truth = case.truth.reshape(-1)
    dtype = np.result_type(case.channels.dtype, np.float32)
    edges = _edges(case.settings.num_bins, case.channels.dtype, dtype)
    # 1 − p is not rounded to the dtype of the file
    top_edges = _edges(case.settings.num_bins, dtype, dtype)
    sums = _Sums(meaning, case.settings.num_bins)
    given = None
    if case.saved_as is not None:
        given = labels_given(case.saved.reshape(-1), meaning, case.thresholds, dtype)
    whole = np.empty(truth.size, dtype)
    for channel, part, p in checked_blocks(case.channels, meaning.activation):
        if given is not None:
            given.add(channel, part, p)
        whole[part] = p
        if part.stop < truth.size:
            continue
        near = _near(whole, case)
        for each in case.channels.parts:
            inside = np.isin(truth[each], meaning.structures[channel])
            cells = _cells(truth[each] != meaning.ignored, inside, whole[each] > 0.5, near[each])
            count_region(
                whole[each],
                cells,
                edges,
                sums.channels[channel],
                top_edges,
                sums.top[channel],
                sums.nll[channel],
            )
    if given is not None and case.saved_as is not None:
        given.check(case.saved_as)
    return sums


def _edges(
    num_bins: int, stored: "np.dtype[np.floating]", dtype: "np.dtype[np.floating]"
) -> Floats:
    """The edges, from 0, in the dtype that p is stored in, so that k/M lies on an edge."""
    edges: Floats = BinCounts.edges(num_bins, stored).clip(0).astype(dtype)
    return edges


def _near(p: Floats, case: CaseArrays) -> Mask:
    """(n,) where 1 − p_0, or a region's p (n,), exceeds the core's probability, and around that, if asked for."""
    core = np.zeros(p.size, bool)
    if "near" not in case.settings.voxels:
        return core
    for part in case.channels.parts:
        core[part] = case.meaning.activation.foreground(p[part]) > CORE_PROBABILITY
    return near_core(core.reshape(case.truth.shape), case.spacing, case.settings.margin_mm).reshape(
        -1
    )


def _cells(counted: Mask, foreground: Mask, predicted: Mask, near: Mask) -> Bytes:
    cells = np.full(counted.size, IMAGE, np.uint8)
    for member, chosen in ((FOREGROUND, foreground), (PREDICTED, predicted), (NEAR, near)):
        cells |= chosen.view(np.uint8) * np.uint8(member)
    return cells * counted


def _observed(sums: Floats) -> BinCounts:
    """Tables (T, M) from sums (T, 2, M + 1, COLUMNS), misses and hits; the first row is p = 0 where that has no bin."""
    counts = sums[..., COUNT].astype(np.int64)
    total = counts.sum(1)
    return BinCounts(total[:, 1:], counts[:, 1, 1:], sums.sum(1)[:, 1:, CONFIDENCE], total[:, 0])


def _expected(sums: Floats, surely: Mask, right: Mask) -> BinCounts:
    """Tables (T, M) that are expected if the labels are drawn from the probabilities.

    A voxel is in the foreground with probability q; the union surely holds what is predicted, and other voxels with
    probability q. With probability c a voxel is in the set, and right.

    Args:
        sums: (T, HIT, M + 1, COLUMNS) by cell.
        surely: (HIT,) cells that are in the set whatever the labels.
        right: (T, HIT) cells of which a voxel, if it is right, is in the set.
    """
    sure = sums[:, surely, 1:].sum(1)
    perhaps = sums[:, _COUNTED & ~surely, 1:].sum(1)
    hits = (sums[:, :, 1:, CONFIDENCE] * right[..., None]).sum(1)
    voxels = perhaps[..., CHANCE] + sure[..., COUNT]
    confidence = perhaps[..., PRODUCTS] + sure[..., CONFIDENCE]
    return BinCounts(voxels, hits, confidence, np.zeros(len(sums), np.int64))
