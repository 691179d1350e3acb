"""The sums of a case by cell and bin, and the record that follows from them."""

import numpy as np

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._counts import Counts, Doubt, StructureSums, TruthCounts
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._loops import (
    CHANCE,
    COLUMNS,
    CONFIDENCE,
    COUNT,
    ENTROPY,
    FOREGROUND,
    HIT,
    IMAGE,
    LOGS,
    NEAR,
    NUM_CELLS,
    ODDS_STEPS,
    PREDICTED,
    PRODUCTS,
    RECALL_THRESHOLDS,
    SEGMENTED,
    SQUARES,
    Bytes,
    add_to_bins,
    count_reached,
)
from nnunet_nacl.metrics._settings import (
    BY_LABEL,
    VOXEL_SETS,
    Settings,
    Voxels,
)
from nnunet_nacl.metrics._tables import CalibrationTables
from nnunet_nacl.typing import Floats, Mask

_CELLS = np.arange(NUM_CELLS)
_COUNTED = _CELLS & IMAGE > 0
_HIT = _CELLS & HIT > 0
_SEGMENTED = _CELLS & SEGMENTED > 0
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
    """The sums of a case by cell, over C channels.

    The sum of p over a voxel set, or over what the segmentation has, is that of some cells, over all bins:
    ``channels[:, cells, :, CONFIDENCE].sum((1, 2))``.

    Attributes:
        channels: (C, NUM_CELLS, M + 1, COLUMNS) of each channel's probability.
        rests: the same of 1 − p of each region; 0 for classes, whose other classes are the rest.
        reached: (C, thresholds + 1) voxels of the structure by how many thresholds their p reaches.
        highest: (2, C) the largest p, of all voxels and of those that are not ignored.
        unsure: (C,) unsure voxels.
    """

    def __init__(
        self, meaning: LabelMeaning, settings: Settings, stored: "np.dtype[np.floating]"
    ) -> None:
        """Start with zeros; ``stored`` is the dtype of the file's probabilities."""
        shape = (meaning.num_channels, NUM_CELLS, settings.num_bins + 1, COLUMNS)
        self._meaning = meaning
        self._settings = settings
        self._first = meaning.activation.first_structure
        self.channels = np.zeros(shape)
        self.rests = np.zeros(shape)
        self.reached = np.zeros((meaning.num_channels, RECALL_THRESHOLDS.size + 1), np.int64)
        self.highest = np.zeros((2, meaning.num_channels))
        self.unsure = np.zeros(meaning.num_channels, np.int64)
        # In the dtype that p is stored in, so that k/M lies on an edge; 1 − p is not rounded to it
        counted = np.result_type(stored, np.float32)
        self._edges, self._edges_of_rest = (
            BinCounts.edges(settings.num_bins, dtype).clip(0).astype(counted)
            for dtype in (stored, counted)
        )

    @np.errstate(divide="ignore")  # ln 0
    def add(self, channel: int, p: Floats, cells: Bytes, background: Floats | None = None) -> None:
        """Add voxels (n,) of a channel to their cells; of classes, with the probability of the background."""
        if channel >= self._first:
            self._add_to_structure(channel, p, cells)
        sums = self.channels[channel]
        # NumPy computes several at a time, which a compiled loop does not
        logs = np.log(p, dtype=np.float64)
        if background is not None:
            add_to_bins(p, logs, background, True, cells, self._edges, sums)
            return
        add_to_bins(p, logs, p, False, cells, self._edges, sums)
        rest = 1 - p.astype(np.float64)
        opposite = cells ^ np.uint8(HIT)  # what is no hit inside is one outside
        rests = self.rests[channel]
        add_to_bins(rest, np.log(rest), p, False, opposite, self._edges_of_rest, rests)

    def _add_to_structure(self, channel: int, p: Floats, cells: Bytes) -> None:
        """Add voxels to a structure's largest p, its unsure voxels, and those that masks by threshold miss."""
        counted = cells & IMAGE > 0
        highest = float(p.max())
        counted_highest = highest if counted.all() else float(p[counted].max(initial=0))
        known = self.highest[:, channel]
        self.highest[:, channel] = np.maximum(known, [highest, counted_highest])
        self.unsure[channel] += np.count_nonzero((p > _UNSURE_FROM) & (p < _UNSURE_TO))
        hits = p[cells & HIT > 0]
        # How many thresholds p reaches, by its odds, in the precision of the file; count_reached makes it exact
        odds = np.log(hits / (1 - hits))
        guesses = odds * ODDS_STEPS + (RECALL_THRESHOLDS.size // 2 + 1)
        count_reached(hits, guesses, RECALL_THRESHOLDS, self.reached[channel])

    def counts(self, by_argmax: "CellSums", voxel_ml: float, *, has_truth: bool) -> Counts:
        """Return the record of one case; tables, and which voxels are near, follow from the sums by the argmax."""
        voxels = self.channels[..., COUNT].sum(2).astype(np.int64)
        of_image = voxels[0]
        of_structures = voxels[self._first :]
        truth = TruthCounts(
            ignored=np.array(1 - of_image[_COUNTED].sum() / max(of_image.sum(), 1)),
            sums=self._structure_sums(_COUNTED, self.highest[1]),
            voxels=of_structures[:, _HIT].sum(1),
            found=of_structures[:, _HIT & _SEGMENTED].sum(1),
            missed=self.reached[self._first :][:, :-1].cumsum(1),
        )
        case = Counts(
            structures=tuple(self._meaning.structures),
            voxel_ml=np.array(voxel_ml),
            sums=self._structure_sums(np.ones_like(_COUNTED), self.highest[0]),
            doubt=by_argmax._doubt(),
            truth=truth if has_truth else None,
            calibration=by_argmax.tables() if has_truth else {},
            segmentation_metrics={},
        )
        return each_column(lambda column: column[np.newaxis], case)

    def _by_prediction(self, channels: Floats) -> Floats:
        """Sum channels (C, ...) to predictions (T, ...): classes share one."""
        shared: Floats = channels.sum(0, keepdims=True)
        return shared if self._meaning.activation.exclusive else channels

    def _top(self) -> Floats:
        """Return the sums of the confidence, the probability of what is predicted: (T, NUM_CELLS, M + 1, COLUMNS)."""
        chosen = _CELLS & (SEGMENTED if self._meaning.activation.exclusive else PREDICTED) > 0
        return self._by_prediction(
            np.where(chosen[:, np.newaxis, np.newaxis], self.channels, self.rests)
        )

    def _structure_sums(self, cells: Mask, highest: Floats) -> StructureSums:
        sums = self.channels[self._first :].sum(2)
        return StructureSums(
            probability=sums[:, cells, CONFIDENCE].sum(1),
            segmented=sums[:, cells & _SEGMENTED, COUNT].sum(1).astype(np.int64),
            overlap=sums[:, cells & _SEGMENTED, CONFIDENCE].sum(1),
            max_probability=highest[self._first :],
        )

    def _doubt(self) -> Doubt:
        unsure = self.unsure[self._first :]
        is_near = _CELLS & NEAR > 0
        top = self._top()[:, is_near].sum((1, 2))
        voxels = top[:, COUNT]
        terms = self.channels[..., ENTROPY] + self.rests[..., ENTROPY]
        entropy = -terms[:, is_near].sum((1, 2))
        return Doubt(
            unsure=unsure,
            near=np.broadcast_to(voxels.astype(np.int64), unsure.shape),
            errors=np.broadcast_to(voxels - top[:, CONFIDENCE], unsure.shape),
            entropy=np.broadcast_to(self._by_prediction(entropy), unsure.shape),
        )

    def tables(self) -> dict[Voxels, CalibrationTables]:
        """Return the tables of each voxel set."""
        settings = self._settings
        activation = self._meaning.activation
        channels = self.channels.copy()
        top = self._top()
        if settings.protocol == "standard":  # p = 0 is in the first bin
            for sums in (channels, top):
                sums[..., 1, :] += sums[..., 0, :]
                sums[..., 0, :] = 0
        num_classes = len(channels)
        if settings.protocol == "authors" and activation.exclusive:
            # Those up to the highest label of the case
            has_hits = channels[:, _HIT].any((1, 2, 3))
            num_classes = int(np.flatnonzero(has_hits).max(initial=0)) + 1
        logs = (self.channels[..., LOGS] + self.rests[..., LOGS]).sum(2)
        found = {}
        for voxels in VOXEL_SETS:
            inside = _COUNTED & (_CELLS & _MEMBERS[voxels] > 0)
            expected_top, expected_classwise = self._expected_tables(voxels, channels, top)
            # Σ(c − hit)² = Σc² − 2 Σ c·hit + Σ hit; of classes, over the channels
            all_of_set = channels[:, inside].sum((1, 2))
            hits = channels[:, inside & _HIT].sum((1, 2))
            brier = all_of_set[:, SQUARES] - 2 * hits[:, CONFIDENCE] + hits[:, COUNT]
            found[voxels] = CalibrationTables(
                top=_observed(top, inside),
                classwise=_observed(channels, inside),
                nll=-self._by_prediction(logs[:, inside & _HIT].sum(1)),
                brier=self._by_prediction(brier),
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
        """Return the expected tables of label and channels if p is right; None for sets without a closed form."""
        if self._settings.protocol != "standard" or voxels not in BY_LABEL:
            return None, None
        surely = _PREDICTED & (voxels == "union")
        right = np.tile(_COUNTED, (len(channels), 1))
        right[: self._first] = surely  # only voxels that are surely in the set can be background
        of_label = _expected(top, surely, _PREDICTED[np.newaxis])
        return of_label, _expected(channels, surely, right)


def _observed(sums: Floats, inside: Mask) -> BinCounts:
    """Sum some cells of sums (T, NUM_CELLS, M + 1, COLUMNS) to tables (T, M); row 0 is p = 0 if that has no bin."""
    of_set = sums[:, inside].sum(1)
    count = of_set[..., COUNT].astype(np.int64)
    hits = sums[:, inside & _HIT].sum(1)[..., COUNT].astype(np.int64)
    return BinCounts(count[:, 1:], hits[:, 1:], of_set[:, 1:, CONFIDENCE], count[:, 0])


def _expected(sums: Floats, surely: Mask, right: Mask) -> BinCounts:
    """Compute the tables (T, M) that are expected if the labels are drawn from the probabilities.

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
