"""The one pass over a case's probabilities that counts.

Each voxel belongs to exactly one cell: the byte of its memberships. Sums are taken for each channel, cell and bin. A
voxel set is some of the cells, and its tables, its tables under perfect calibration and its scores are sums over them.

Held in the size of the image are, of classes: ground truth, segmentation, argmax, whether they agree, and cells (a byte
each), background and largest probability (four bytes each): 13 bytes a voxel, however many classes there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._agreement import Argmax, SavedAs, Thresholded, labels_given
from nnunet_nacl.metrics._arrays import checked_blocks
from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._channels import Channels
from nnunet_nacl.metrics._compiled import (
    CHANCE,
    COLUMNS,
    CONFIDENCE,
    COUNT,
    HIT,
    LANES,
    PRODUCTS,
    SQUARES,
    Bytes,
    Floats,
    Mask,
    count,
)  # fmt: skip
from nnunet_nacl.metrics._labels import LabelMeaning, Labels
from nnunet_nacl.metrics._near import near_core
from nnunet_nacl.metrics._settings import CORE_PROBABILITY, Settings, Voxels
from nnunet_nacl.metrics._tables import CalibrationTables

# Memberships, all below HIT. A voxel that is ignored has none, and is in cell 0. TOP: the class is the predicted one.
IMAGE = 1
FOREGROUND = 2
NEAR = 4
PREDICTED = 8
TOP = 16
_COUNTED = [cell for cell in range(HIT) if cell & IMAGE]
_PREDICTED = [cell for cell in _COUNTED if cell & PREDICTED]
_MEMBERS: dict[Voxels, int] = {"foreground": FOREGROUND, "union": FOREGROUND | PREDICTED, "near": NEAR, "image": IMAGE}


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
    """Tables of each voxel set; a ValueError tells of values that are no probabilities or give another segmentation.

    Which class is predicted must be known from the start, but shows only when all channels have passed. So it is taken
    from the segmentation, and where that was wrong (postprocessing), the channels are read once more.
    """
    found = _count(case)
    return found if isinstance(found, dict) else _count(replace(case, saved=found, saved_as=None, thresholds=None))  # type: ignore[return-value]


def _count(case: CaseArrays) -> dict[Voxels, CalibrationTables] | Labels:
    """The tables; or, of classes, the argmax if it is not the segmentation."""
    meaning = case.meaning
    regions = case.meaning.regions
    num_bins = case.settings.num_bins
    truth = case.truth.reshape(-1)
    saved = case.saved.reshape(-1)
    dtype = np.result_type(case.channels.dtype, np.float32)
    # Confidences are binned in the dtype of the file, where k/M is on an edge; a region's 1 − p is not rounded to it.
    edges, top_edges = (BinCounts.edges(num_bins, of).clip(0).astype(dtype) for of in (case.channels.dtype, dtype))
    given = labels_given(saved, meaning, case.thresholds, dtype)
    argmax = Argmax(saved, meaning, dtype) if regions is None and isinstance(given, Thresholded) else given
    sums = _Sums(meaning, num_bins)
    whole = np.empty(truth.size, dtype)
    cells = np.empty(truth.size, np.uint8)  # of p_0, or of each region's p
    parts = case.channels.parts

    def add_class(channel: int, part: slice, p: Floats) -> None:
        cells_and_top = cells[part] | (saved[part] == channel).view(np.uint8) * np.uint8(TOP)
        sums.add(channel, p, truth[part] == channel, cells_and_top, whole[part], edges)

    def add_region(channel: int, part: slice, p: Floats) -> None:
        exact = p.astype(np.float64)
        inside = cells[part] & FOREGROUND > 0
        sums.add(channel, p, inside, cells[part], 1 - exact, edges)
        right = (p > 0.5) == inside
        sums.add(meaning.num_channels + channel, np.maximum(exact, 1 - exact), right, cells[part], 1 - exact, top_edges)

    add = add_class if regions is None else add_region
    for channel, part, p in checked_blocks(case.channels, regions=regions is not None):
        for taker in {given, argmax}:
            taker.add(channel, part, p)
        if regions is None and channel > 0:
            add(channel, part, p)
            continue
        whole[part] = p
        if part.stop == truth.size:  # near is known only when all of the channel has passed
            near = _near(whole, case)
            for each in parts:
                inside = truth[each] > 0 if regions is None else np.isin(truth[each], regions[channel])
                predicted = saved[each] > 0 if regions is None else whole[each] > 0.5
                cells[each] = _cells(truth[each] != meaning.ignored, inside, predicted, near[each])
                add(channel, each, whole[each])
            del near
    if case.saved_as is not None:
        given.check(case.saved_as)
    num_classes = meaning.num_channels
    if regions is None:
        if any(((argmax.label[part] != saved[part]) & (cells[part] > 0)).any() for part in parts):
            return argmax.label
        if case.settings.protocol == "authors":  # those up to the highest label of the case
            num_classes = int(truth[truth != meaning.ignored].max(initial=0)) + 1
    return sums.tables(case.settings, num_classes)


def _near(p: Floats, case: CaseArrays) -> Mask:
    """(n,) where 1 − p_0, or a region's p (n,), exceeds the core's probability, and around that, if asked for."""
    core = np.zeros(p.size, bool)
    if "near" not in case.settings.voxels:
        return core
    for part in case.channels.parts:
        exact = p[part].astype(np.float64)
        core[part] = (1 - exact if case.meaning.has_background else exact) > CORE_PROBABILITY
    return near_core(core.reshape(case.truth.shape), case.spacing, case.settings.margin_mm).reshape(-1)


def _cells(counted: Mask, foreground: Mask, predicted: Mask, near: Mask) -> Bytes:
    cells = np.full(counted.size, IMAGE, np.uint8)
    for member, chosen in ((FOREGROUND, foreground), (PREDICTED, predicted), (NEAR, near)):
        cells |= chosen.view(np.uint8) * np.uint8(member)
    return cells * counted


class _Sums:
    """What the loop adds to: tables of the C channels, then of regions their top-label tables."""

    def __init__(self, meaning: LabelMeaning, num_bins: int) -> None:
        self._channels = meaning.num_channels
        self._has_background = meaning.has_background
        tops, scored = (0, 1) if meaning.has_background else (meaning.num_channels, meaning.num_channels)
        self._sums = np.zeros((self._channels + tops, LANES, 2 * HIT, num_bins + 1, COLUMNS))
        self._logs = np.tile([0.0, 1.0], (scored + 1, LANES, 2 * HIT, 1))

    def add(self, table: int, p: Floats, hits: Mask, cells: Bytes, background: Floats, edges: Floats) -> None:  # noqa: PLR0917
        """Add confidences (n,) to a table. Logarithms are a region's, or of all classes; the last are for nothing."""
        is_channel = table < self._channels
        logs = self._logs[-1 if not is_channel else 0 if self._has_background else table]
        binary = is_channel and not self._has_background
        count(p, cells | hits * np.uint8(HIT), background, edges, binary, self._sums[table], logs)

    def tables(self, settings: Settings, num_classes: int) -> dict[Voxels, CalibrationTables]:
        """The tables of each voxel set."""
        channels = self._channels
        has_background = self._has_background
        # (tables, 2, HIT, M + 1, columns): misses and hits, cells, p = 0 and the bins
        sums = self._sums.sum(1).reshape(len(self._sums), 2, HIT, -1, COLUMNS)
        if has_background:  # the top-label table is of each class where it is predicted
            is_top = np.arange(HIT) & TOP > 0
            sums = np.concatenate([sums, np.where(is_top[:, None, None], sums, 0).sum(0, keepdims=True)])
        if settings.counts_all_voxels:  # p = 0 is in the first bin
            sums[..., 1, :] += sums[..., 0, :]
            sums[..., 0, :] = 0
        logs = self._logs[:-1, ..., 0] + np.log(self._logs[:-1, ..., 1])
        nll = -logs.sum(1).reshape(-1, 2, HIT).sum(1)
        hits = sums[:channels, 1].sum(-2)
        brier = sums[:channels, ..., SQUARES].sum((1, -1)) - 2 * hits[..., CONFIDENCE] + hits[..., COUNT]
        if has_background:
            brier = brier.sum(0, keepdims=True)
        found = {}
        for voxels in settings.voxels:
            inside = [cell for cell in _COUNTED if cell & _MEMBERS[voxels]]
            observed = _observed(sums[:, :, inside].sum(2))
            expected = None
            if settings.counts_all_voxels and voxels in {"foreground", "union"}:
                expected = _expected(sums.sum(1)[:, :, 1:], voxels, channels, has_background=has_background)
            found[voxels] = CalibrationTables(
                top=observed[channels:],
                classwise=observed[:channels],
                nll=nll[:, inside].sum(1),
                brier=brier[:, inside].sum(1),
                num_classes=num_classes,
                has_background=has_background,
                image_voxels=sums[channels:, ..., COUNT][:, :, _COUNTED].sum((1, 2, 3)).astype(np.int64),
                expected_top=None if expected is None else expected[channels:],
                expected_classwise=None if expected is None else expected[:channels],
            )
        return found


def _observed(sums: NDArray[np.float64]) -> BinCounts:
    """Tables (T, M) from sums (T, 2, M + 1, columns), misses and hits; the first row is p = 0 where that has no bin."""
    counts = sums[..., COUNT].astype(np.int64)
    total = counts.sum(1)
    return BinCounts(total[:, 1:], counts[:, 1, 1:], sums.sum(1)[:, 1:, CONFIDENCE], total[:, 0])


def _expected(sums: NDArray[np.float64], voxels: Voxels, channels: int, *, has_background: bool) -> BinCounts:
    """Tables (T, M) that are expected if the labels are drawn from the probabilities, from sums (T, HIT, M, columns).

    A voxel is in the foreground with probability q; in the union too, unless it is predicted and so surely there. With
    probability c it is there and right: any of a structure's channel, where a structure is predicted of the top label,
    and of the background's channel if it is surely in the union.
    """
    surely = _PREDICTED if voxels == "union" else []
    sure = sums[:, surely].sum(1)
    perhaps = sums[:, [cell for cell in _COUNTED if cell not in surely]].sum(1)
    confidence = sums[..., CONFIDENCE]
    hits = confidence[:, _COUNTED].sum(1)
    hits[channels:] = confidence[channels:, _PREDICTED].sum(1)
    if has_background:
        hits[0] = confidence[0, surely].sum(0)
    voxels_there = perhaps[..., CHANCE] + sure[..., COUNT]
    confidence = perhaps[..., PRODUCTS] + sure[..., CONFIDENCE]
    return BinCounts(voxels_there, hits, confidence, np.zeros(len(sums), np.int64))
