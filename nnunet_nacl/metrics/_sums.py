"""What the pass sums in cells, and the record that follows from it."""

import numpy as np

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._compiled import (
    CHANCE,
    COLUMNS,
    CONFIDENCE,
    COUNT,
    ENTROPY,
    FOREGROUND,
    HIT,
    IMAGE,
    NEAR,
    NLL,
    NUM_CELLS,
    PREDICTED,
    PRODUCTS,
    SCORES,
    SQUARES,
    TOP,
)
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._record import Counts, StructureSums, TruthCounts
from nnunet_nacl.metrics._settings import THRESHOLDS, Settings, Voxels
from nnunet_nacl.metrics._tables import CalibrationTables
from nnunet_nacl.typing import Floats, Mask

_CELLS = np.arange(HIT)
_COUNTED = (_CELLS & IMAGE) > 0
_PREDICTED = _COUNTED & ((_CELLS & PREDICTED) > 0)
_MEMBERS: dict[Voxels, int] = {
    "foreground": FOREGROUND,
    "union": FOREGROUND | PREDICTED,
    "near": NEAR,
    "image": IMAGE,
}
_ALL_CELLS = np.arange(NUM_CELLS)
_IS_COUNTED = _ALL_CELLS & IMAGE > 0
_IS_NEAR = _ALL_CELLS & NEAR > 0
_IS_TOP = _ALL_CELLS & TOP > 0
_IS_HIT = _ALL_CELLS & HIT > 0
# A voxel is unsure if the structure's probability lies between these two
_UNSURE_FROM = 0.1
_UNSURE_TO = 0.9


class CellSums:
    """What the compiled loops add to; C channels.

    Attributes:
        activation: of classes or of regions.
        channels: (C, NUM_CELLS, M + 1, COLUMNS) of each channel's probability.
        top: (T, NUM_CELLS, M + 1, COLUMNS) of the predicted label's: T = 1 of classes, C of regions.
        scores: (C, NUM_CELLS, SCORES) what is summed without bins.
        unsure: (2, C) unsure voxels, without and with ignored ones, as ``highest``, the largest p.
        missed: (C, thresholds + 1) voxels of the structure by how many thresholds their p reaches.
    """

    def __init__(self, meaning: LabelMeaning, settings: Settings) -> None:
        shape = (NUM_CELLS, settings.num_bins + 1, COLUMNS)
        self._meaning = meaning
        self._settings = settings
        self.activation = meaning.activation
        self.channels = np.zeros((meaning.num_channels, *shape))
        self.top = np.zeros((meaning.num_tops, *shape))
        self.scores = np.zeros((meaning.num_channels, NUM_CELLS, SCORES))
        self.unsure = np.zeros((2, meaning.num_channels), np.int64)
        self.highest = np.zeros((2, meaning.num_channels))
        self.missed = np.zeros((meaning.num_channels, THRESHOLDS.size + 1), np.int64)

    def add_structure(self, channel: int, p: Floats, counted: Mask) -> None:
        """Add what is not summed in cells: it takes NumPy less time than a loop."""
        inside = p if counted.all() else p[counted]
        for row, voxels in enumerate((inside, p)):
            if row == 0 or inside is not p:
                unsure = np.count_nonzero((voxels > _UNSURE_FROM) & (voxels < _UNSURE_TO))
                highest = float(voxels.max(initial=0))
            self.unsure[row, channel] += unsure
            self.highest[row, channel] = max(highest, self.highest[row, channel])

    def add_tops(self) -> None:
        """Of classes: the predicted label's sums are those of its channel."""
        self.top[0, _IS_TOP] = self.channels[:, _IS_TOP].sum(0)

    def of_tops(self, score: int) -> Floats:
        """(T, NUM_CELLS) a score; classes share it."""
        shared: Floats = self.scores[..., score].reshape(len(self.top), -1, NUM_CELLS).sum(1)
        return shared

    def counts(self, by_argmax: "CellSums", voxel_ml: float, *, has_truth: bool) -> Counts:
        """The record of one case; tables, and which voxels are near, follow from the sums by the argmax."""
        case = Counts(
            structures=tuple(self._meaning.structures),
            voxel_ml=np.array(voxel_ml),
            sums=self._structure_sums(by_argmax, with_ignored=True),
            truth=self._truth(by_argmax) if has_truth else None,
            calibration=by_argmax.tables() if has_truth else {},
            segmentation_metrics={},
        )
        return each_column(lambda _, column: column[np.newaxis], case)

    def _structure_sums(self, by_argmax: "CellSums", *, with_ignored: bool) -> StructureSums:
        cells = _IS_COUNTED | with_ignored
        row = int(with_ignored)
        first = self.activation.first_structure
        structures = self.channels[first:].sum(2)
        is_top = cells & _IS_TOP
        near = by_argmax.top[:, cells & _IS_NEAR].sum((1, 2))
        of_all = (len(structures),)  # classes share it
        return StructureSums(
            probability=structures[:, cells, CONFIDENCE].sum(1),
            segmented=structures[:, is_top, COUNT].sum(1).astype(np.int64),
            overlap=structures[:, is_top, CONFIDENCE].sum(1),
            unsure=self.unsure[row, first:],
            max_probability=self.highest[row, first:],
            near=np.broadcast_to(near[:, COUNT].astype(np.int64), of_all),
            doubt=np.broadcast_to(near[:, COUNT] - near[:, CONFIDENCE], of_all),
            entropy=np.broadcast_to(self.of_tops(ENTROPY)[:, cells].sum(1), of_all),
        )

    def _truth(self, by_argmax: "CellSums") -> TruthCounts:
        first = self.activation.first_structure
        voxels = self.channels[..., COUNT].sum(2).astype(np.int64)
        of_image = voxels[0]
        return TruthCounts(
            ignored=np.array(1 - of_image[_IS_COUNTED].sum() / max(of_image.sum(), 1)),
            sums=self._structure_sums(by_argmax, with_ignored=False),
            voxels=voxels[first:, _IS_HIT].sum(1),
            found=voxels[first:, _IS_HIT & _IS_TOP].sum(1),
            missed=self.missed[first:, :-1].cumsum(1),
        )

    def tables(self) -> dict[Voxels, CalibrationTables]:
        """The tables of each voxel set."""
        settings = self._settings
        # (T or C, 2, HIT, ...): misses and hits, and the cells without them
        channels, top, nll = (
            sums.reshape(len(sums), 2, HIT, *sums.shape[2:]).copy()
            for sums in (self.channels, self.top, self.of_tops(NLL))
        )
        if settings.counts_all_voxels:  # p = 0 is in the first bin
            for sums in (channels, top):
                sums[..., 1, :] += sums[..., 0, :]
                sums[..., 0, :] = 0
        # Σ(c − hit)² = Σc² − 2 Σ c·hit + Σ hit; of classes, over the channels
        hits = channels[:, 1].sum(2)
        squared = channels.sum((1, 3))[..., SQUARES] - 2 * hits[..., CONFIDENCE] + hits[..., COUNT]
        brier = squared.reshape(len(top), -1, HIT).sum(1)
        num_classes = len(channels)
        if settings.protocol == "authors" and self.activation.exclusive:
            # Those up to the highest label of the case
            num_classes = int(np.flatnonzero(hits[..., COUNT].sum(1)).max(initial=0)) + 1
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
                if self.activation.exclusive:
                    right[0] = surely
                expected_channels = _expected(channels.sum(1), surely, right)
                expected_top = _expected(top.sum(1), surely, np.tile(_PREDICTED, (len(top), 1)))
            found[voxels] = CalibrationTables(
                top=_observed(top[:, :, inside].sum(2)),
                classwise=_observed(channels[:, :, inside].sum(2)),
                nll=nll.sum(1)[:, inside].sum(1),
                brier=brier[:, inside].sum(1),
                num_classes=np.array(num_classes),
                activation=self.activation,
                image_voxels=image_voxels,
                expected_top=expected_top,
                expected_classwise=expected_channels,
            )
        return found


def no_counts(meaning: LabelMeaning, settings: Settings, *, has_truth: bool) -> Counts:
    """A record without cases."""
    sums = CellSums(meaning, settings)
    return sums.counts(sums, 0.0, has_truth=has_truth).take(slice(0))


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
