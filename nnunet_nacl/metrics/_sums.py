"""What the pass sums in cells, and the record that follows from it."""

import numpy as np

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._columns import each_column
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
)
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._record import Counts, Doubt, StructureSums, TruthCounts
from nnunet_nacl.metrics._registry import CalibrationTables
from nnunet_nacl.metrics._settings import THRESHOLDS, Settings, Voxels
from nnunet_nacl.typing import Floats, Mask

_CELLS = np.arange(NUM_CELLS)
_COUNTED = _CELLS & IMAGE > 0
_HIT = _CELLS & HIT > 0
_TOP = _CELLS & TOP > 0
_PREDICTED = _COUNTED & (_CELLS & PREDICTED > 0)
_MEMBERS: dict[Voxels, int] = {
    "foreground": FOREGROUND,
    "union": FOREGROUND | PREDICTED,
    "near": NEAR,
    "image": IMAGE,
}
# A voxel is unsure if the structure's probability lies between these two
_UNSURE_FROM = 0.1
_UNSURE_TO = 0.9


class CellSums:
    """What is counted of a case; C channels.

    Attributes:
        channels: (C, NUM_CELLS, M + 1, COLUMNS) of each channel's probability.
        top: (T, NUM_CELLS, M + 1, COLUMNS) of the predicted label's: T = 1 of classes, C of regions.
        nll: (C, NUM_CELLS) of the hits.
        missed: (C, thresholds + 1) voxels of the structure by how many thresholds their p reaches.
        highest: (2, C) the largest p, of all voxels and of those that are not ignored.
        unsure: (C,) unsure voxels.
        entropy: (C,) over near.
    """

    def __init__(self, meaning: LabelMeaning, settings: Settings) -> None:
        shape = (NUM_CELLS, settings.num_bins + 1, COLUMNS)
        self._meaning = meaning
        self._settings = settings
        self._first = meaning.activation.first_structure
        self.channels = np.zeros((meaning.num_channels, *shape))
        self.top = np.zeros((meaning.num_tops, *shape))
        self.nll = np.zeros((meaning.num_channels, NUM_CELLS))
        self.missed = np.zeros((meaning.num_channels, THRESHOLDS.size + 1), np.int64)
        self.highest = np.zeros((2, meaning.num_channels))
        self.unsure = np.zeros(meaning.num_channels, np.int64)
        self.entropy = np.zeros(meaning.num_channels)

    def add_structure(self, channel: int, p: Floats, counted: Mask) -> None:
        """Add what takes NumPy less time than a loop."""
        highest = float(p.max())
        of_counted = highest if counted.all() else float(p[counted].max(initial=0))
        known = self.highest[:, channel]
        self.highest[:, channel] = np.maximum(known, [highest, of_counted])
        self.unsure[channel] += np.count_nonzero((p > _UNSURE_FROM) & (p < _UNSURE_TO))

    def add_tops(self) -> None:
        """Of classes: the predicted label's sums are those of its channel."""
        self.top[0, _TOP] = self.channels[:, _TOP].sum(0)

    def counts(self, by_argmax: "CellSums", voxel_ml: float, *, has_truth: bool) -> Counts:
        """The record of one case; tables, and which voxels are near, follow from the sums by the argmax."""
        case = Counts(
            structures=tuple(self._meaning.structures),
            voxel_ml=np.array(voxel_ml),
            sums=self._structure_sums(np.ones_like(_COUNTED), self.highest[0]),
            doubt=by_argmax._doubt(),
            truth=self._truth() if has_truth else None,
            calibration=by_argmax.tables() if has_truth else {},
            segmentation_metrics={},
        )
        return each_column(lambda column: column[np.newaxis], case)

    def _of_tops(self, channels: Floats) -> Floats:
        """(T, ...) of (C, ...); classes share it."""
        shared: Floats = channels.reshape(len(self.top), -1, *channels.shape[1:]).sum(1)
        return shared

    def _structure_sums(self, cells: Mask, highest: Floats) -> StructureSums:
        sums = self.channels[self._first :].sum(2)
        return StructureSums(
            probability=sums[:, cells, CONFIDENCE].sum(1),
            segmented=sums[:, cells & _TOP, COUNT].sum(1).astype(np.int64),
            overlap=sums[:, cells & _TOP, CONFIDENCE].sum(1),
            max_probability=highest[self._first :],
        )

    def _doubt(self) -> Doubt:
        unsure = self.unsure[self._first :]
        near = self.top[:, _CELLS & NEAR > 0].sum((1, 2))
        voxels = near[:, COUNT]
        return Doubt(
            unsure=unsure,
            near=np.broadcast_to(voxels.astype(np.int64), unsure.shape),
            errors=np.broadcast_to(voxels - near[:, CONFIDENCE], unsure.shape),
            entropy=np.broadcast_to(self._of_tops(self.entropy), unsure.shape),
        )

    def _truth(self) -> TruthCounts:
        voxels = self.channels[..., COUNT].sum(2).astype(np.int64)
        of_image = voxels[0]
        structures = voxels[self._first :]
        return TruthCounts(
            ignored=np.array(1 - of_image[_COUNTED].sum() / max(of_image.sum(), 1)),
            sums=self._structure_sums(_COUNTED, self.highest[1]),
            voxels=structures[:, _HIT].sum(1),
            found=structures[:, _HIT & _TOP].sum(1),
            missed=self.missed[self._first :][:, :-1].cumsum(1),
        )

    def tables(self) -> dict[Voxels, CalibrationTables]:
        """The tables of each voxel set."""
        settings = self._settings
        activation = self._meaning.activation
        channels, top = self.channels.copy(), self.top.copy()
        if settings.counts_all_voxels:  # p = 0 is in the first bin
            for sums in (channels, top):
                sums[..., 1, :] += sums[..., 0, :]
                sums[..., 0, :] = 0
        num_classes = len(channels)
        if settings.protocol == "authors" and activation.exclusive:
            # Those up to the highest label of the case
            has_hits = channels[:, _HIT].any((1, 2, 3))
            num_classes = int(np.flatnonzero(has_hits).max(initial=0)) + 1
        nll = self._of_tops(self.nll)
        found = {}
        for voxels in settings.voxels:
            inside = _COUNTED & (_CELLS & _MEMBERS[voxels] > 0)
            expected_top, expected_classwise = self._expected_tables(voxels, channels, top)
            # Σ(c − hit)² = Σc² − 2 Σ c·hit + Σ hit; of classes, over the channels
            all_of_set = channels[:, inside].sum((1, 2))
            hits = channels[:, inside & _HIT].sum((1, 2))
            brier = all_of_set[:, SQUARES] - 2 * hits[:, CONFIDENCE] + hits[:, COUNT]
            found[voxels] = CalibrationTables(
                top=_observed(top, inside),
                classwise=_observed(channels, inside),
                nll=nll[:, inside].sum(1),
                brier=self._of_tops(brier),
                num_classes=np.array(num_classes),
                activation=activation,
                image_voxels=top[..., COUNT][:, _COUNTED].sum((1, 2)).astype(np.int64),
                expected_top=expected_top,
                expected_classwise=expected_classwise,
            )
        return found

    def _expected_tables(
        self, voxels: Voxels, channels: Floats, top: Floats
    ) -> tuple[BinCounts | None, BinCounts | None]:
        """Of the label and of each channel, if the probabilities are right; None for sets without a closed form."""
        if not self._settings.counts_all_voxels or voxels not in {"foreground", "union"}:
            return None, None
        surely = _PREDICTED & (voxels == "union")
        right = np.tile(_COUNTED, (len(channels), 1))
        right[: self._first] = surely  # only voxels that are surely in the set can be background
        of_label = _expected(top, surely, _PREDICTED[np.newaxis])
        return of_label, _expected(channels, surely, right)


def no_counts(meaning: LabelMeaning, settings: Settings, *, has_truth: bool) -> Counts:
    """A record without cases."""
    sums = CellSums(meaning, settings)
    return sums.counts(sums, 0.0, has_truth=has_truth).take(slice(0))


def _observed(sums: Floats, inside: Mask) -> BinCounts:
    """Tables (T, M) of some cells of sums (T, NUM_CELLS, M + 1, COLUMNS); the first row is p = 0 if that has no bin."""
    of_set = sums[:, inside].sum(1)
    count = of_set[..., COUNT].astype(np.int64)
    hits = sums[:, inside & _HIT].sum(1)[..., COUNT].astype(np.int64)
    return BinCounts(count[:, 1:], hits[:, 1:], of_set[:, 1:, CONFIDENCE], count[:, 0])


def _expected(sums: Floats, surely: Mask, right: Mask) -> BinCounts:
    """Tables (T, M) that are expected if the labels are drawn from the probabilities.

    A voxel is in the foreground with probability q; the union surely holds what is predicted, and other voxels with
    probability q. With probability c a voxel is in the set, and right.

    Args:
        sums: (T, NUM_CELLS, M + 1, COLUMNS).
        surely: (NUM_CELLS,) cells that are in the set whatever the labels.
        right: (T or 1, NUM_CELLS) cells of which a voxel, if it is right, is in the set.
    """
    sure = sums[:, surely, 1:].sum(1)
    perhaps = sums[:, _COUNTED & ~surely, 1:].sum(1)
    hits = (sums[:, :, 1:, CONFIDENCE] * right[..., None]).sum(1)
    voxels = perhaps[..., CHANCE] + sure[..., COUNT]
    confidence = perhaps[..., PRODUCTS] + sure[..., CONFIDENCE]
    return BinCounts(voxels, hits, confidence, np.zeros(len(sums), np.int64))
