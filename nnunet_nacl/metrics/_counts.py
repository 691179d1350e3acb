"""The record of counted cases, and how it follows from what the pass sums in cells."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import (
    BinCounts,
    each_column,
    mean_of_known,
    named_columns,
    replace_columns,
)
from nnunet_nacl.metrics._labels import LabelMeaning, Region, Structure
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
    PREDICTED,
    PRODUCTS,
    SEGMENTED,
    SQUARES,
    Bytes,
    add_to_bins,
    count_reached,
)
from nnunet_nacl.metrics._overlap import dice_of_sizes
from nnunet_nacl.metrics._registry import CalibrationTables
from nnunet_nacl.metrics._settings import (
    BY_LABEL,
    ODDS_STEPS,
    THRESHOLDS,
    VOXEL_SETS,
    Settings,
    Voxels,
)
from nnunet_nacl.typing import Floats, Mask, Numbers


@dataclass(frozen=True)
class StructureSums:
    """Sums over voxels for each structure of each case: (cases, structures).

    A structure is a class k ≥ 1, with p its softmax probability, or a region, with p its sigmoid probability; s is 1
    where the segmentation has the structure. ``probability`` times a voxel's volume is the expected volume, unbiased if
    p is calibrated (Popordanoska et al., MICCAI 2021).

    Attributes:
        probability: Σ p.
        segmented: Σ s.
        overlap: Σ p s.
        max_probability: the largest p.
    """

    probability: Floats
    segmented: NDArray[np.int64]
    overlap: Floats
    max_probability: Floats

    @property
    def predicted_dice(self) -> Floats:
        """Soft Dice confidence ``SDC = 2 Σ_i p_i s_i / (Σ_i p_i + Σ_i s_i)``.

        1 where both sums are 0. A softmax is hardly ever 0: if nothing is segmented, SDC is 0 however improbable the
        structure is, and the Dice to expect is ``dice_to_expect``.

        References:
            Borges et al., Soft Dice Confidence, arXiv 2402.10665.
        """
        return np.nan_to_num(
            dice_of_sizes(self.overlap, self.probability + self.segmented), nan=1.0
        )

    @property
    def dice_to_expect(self) -> Floats:
        """Predicted Dice; where nothing is segmented 1 − max p, the chance that the structure is absent, roughly."""
        return np.where(self.segmented > 0, self.predicted_dice, 1 - self.max_probability)


@dataclass(frozen=True)
class Doubt:
    """The uncertainty of a model about each structure of each case: (cases, structures).

    Attributes:
        unsure: voxels with p above 0.1 and below 0.9.
        near: voxels of the set near, which classes share, as the next two.
        errors: over near, Σ (1 − c), the errors to expect: c is max_k p_k, of a region max(p, 1 − p).
        entropy: over near, −Σ Σ_k p_k ln p_k, of a region −Σ (p ln p + (1 − p) ln(1 − p)).
    """

    unsure: NDArray[np.int64]
    near: NDArray[np.int64]
    errors: Floats
    entropy: Floats


@dataclass(frozen=True)
class TruthCounts:
    """Counts of structures in the ground truth, over the voxels that are not ignored.

    Attributes:
        ignored: (cases,) share of the image's voxels that are ignored; above 0, a structure's true size is unknown.
        sums: those without ignored voxels.
        voxels: (cases, structures) size of the structure.
        found: (cases, structures) how many of its voxels the segmentation has, too.
        missed: (cases, structures, T) how many of its voxels masks of p ≥ threshold miss, for ``THRESHOLDS``.
    """

    ignored: Floats
    sums: StructureSums
    voxels: NDArray[np.int64]
    found: NDArray[np.int64]
    missed: NDArray[np.int64]

    @property
    def dice(self) -> Floats:
        """Dice (cases, structures) of the segmentation in ``sums``; NaN where a structure is in neither."""
        return dice_of_sizes(self.found, self.voxels + self.sums.segmented)


@dataclass(frozen=True, repr=False)
class Counts:
    """Everything that is counted of cases, as ``evaluate_case`` returns it; each array's first axis is the cases'.

    ``result["near"]`` are the tables of a voxel set over all cases, such as ``result["near"].ECE``.

    Attributes:
        structures: foreground labels, or regions.
        voxel_ml: (cases,) volume of a voxel.
        sums: over all voxels, as ``doubt``.
        truth: what needs ground truth, as the next two; without it None, and these are empty.
        calibration: tables by voxel set.
        segmentation_metrics: metric -> (cases, structures).
    """

    structures: tuple[Structure, ...]
    voxel_ml: Floats
    sums: StructureSums
    doubt: Doubt
    truth: TruthCounts | None
    calibration: dict[Voxels, CalibrationTables]
    segmentation_metrics: dict[str, Floats]

    def __repr__(self) -> str:
        sets = [f"{voxels}: {self[voxels]}" for voxels in self.calibration]
        return "\n".join([f"Dice {self.Dice:.3f}", *sets])

    @property
    def num_cases(self) -> int:
        return len(self.voxel_ml)

    def __getitem__(self, voxels: Voxels) -> CalibrationTables:
        """The tables of a voxel set over all cases; a KeyError if it was not counted."""
        return self.calibration[voxels].sum()

    @classmethod
    def joined(cls, parts: "Iterable[Counts]") -> "Counts":
        """Return the cases of all parts, one or more, in this order; they must have been counted alike."""
        return each_column(lambda *columns: np.concatenate(columns), *parts)

    def take(self, rows: Sequence[int] | slice) -> "Counts":
        """Return some of the cases."""
        return each_column(lambda column: column[rows], self)

    def to_array(self) -> NDArray[np.void]:
        """Return a row for each case, whose fields are its columns, such as ``calibration.near.top.count``."""
        columns = named_columns(self)
        kinds = [(name, column.dtype, column.shape[1:]) for name, column in columns.items()]
        rows = np.empty(self.num_cases, kinds)
        for name, column in columns.items():
            rows[name] = column
        return rows

    @classmethod
    def of_array(
        cls, rows: NDArray[np.void], meaning: LabelMeaning, settings: Settings, *, has_truth: bool
    ) -> "Counts":
        """Return what ``to_array`` made rows of; a ValueError if it was not counted in these settings."""
        prefix = "segmentation_metrics."
        names = [name for name in rows.dtype.names or () if name.startswith(prefix)]
        metrics: dict[str, Floats] = {name.removeprefix(prefix): rows[name] for name in names}
        empty = _no_counts(meaning.known, meaning.regions, settings, has_truth)
        like = replace(empty, segmentation_metrics=metrics)
        return replace_columns(lambda name, _: rows[name], like)

    def of_structure(self, number: int) -> "Counts":
        """Select one structure's sums and truth, whose columns then lack the axis of the structures."""
        sums = replace(self, calibration={}, segmentation_metrics={})
        return each_column(lambda column: column if column.ndim == 1 else column[:, number], sums)

    @property
    def by_structure(self) -> dict[Structure, Numbers]:
        """Segmentation metrics by label or region; means over cases with a value."""
        means = {
            metric: mean_of_known(values.T) for metric, values in self.segmentation_metrics.items()
        }
        return {
            structure: {metric: float(of_all[number]) for metric, of_all in means.items()}
            for number, structure in enumerate(self.structures)
        }

    @property
    def Dice(self) -> float:  # noqa: N802 - as in papers
        """Mean over structures of their means over cases, as nnU-Net's ``foreground_mean``; NaN if unknown."""
        values = self.segmentation_metrics.get("Dice", np.zeros((0, 0)))
        return float(mean_of_known(mean_of_known(values.T)))


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

    Attributes:
        channels: (C, NUM_CELLS, M + 1, COLUMNS) of each channel's probability.
        rests: the same of 1 − p of each region; 0 for classes, whose other classes are the rest.
        missed: (C, thresholds + 1) voxels of the structure by how many thresholds their p reaches.
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
        self.missed = np.zeros((meaning.num_channels, THRESHOLDS.size + 1), np.int64)
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
        guesses = odds * ODDS_STEPS + (THRESHOLDS.size // 2 + 1)
        count_reached(hits, guesses, THRESHOLDS, self.missed[channel])

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
            missed=self.missed[self._first :][:, :-1].cumsum(1),
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


@lru_cache(maxsize=8)
def _no_counts(
    known: tuple[int, ...], regions: tuple[Region, ...] | None, settings: Settings, has_truth: bool
) -> Counts:
    """Return a record without cases, of labels as in ``LabelMeaning``."""
    sums = CellSums(LabelMeaning(known, regions), settings, np.dtype(np.float32))
    return sums.counts(sums, 0.0, has_truth=has_truth).take(slice(0))


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
