"""The record of counted cases, and its form as rows of named columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import BinCounts, mean_of_known
from nnunet_nacl.metrics._columns import each_column, named_columns
from nnunet_nacl.metrics._labels import LabelMeaning, Structure
from nnunet_nacl.metrics._overlap import dice_of_sizes
from nnunet_nacl.metrics._registry import measure
from nnunet_nacl.metrics._settings import VOXEL_SETS, Voxels
from nnunet_nacl.metrics._tables import CalibrationTables
from nnunet_nacl.typing import ByName, Floats


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

    ``near``, ``errors`` and ``entropy`` are sums over the voxel set near, which is the same for all classes.

    Attributes:
        unsure: number of voxels of the image with p above 0.1 and below 0.9.
        near: number of voxels.
        errors: Σ (1 − c), the expected number of errors, with c = max_k p_k, or max(p, 1 − p) for a region.
        entropy: −Σ Σ_k p_k ln p_k, or −Σ (p ln p + (1 − p) ln(1 − p)) for a region.
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
        missed: (cases, structures, thresholds) how many of its voxels masks of p ≥ each of ``RECALL_THRESHOLDS`` miss.
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
    """The record of cases, as ``evaluate_case`` returns it; the first axis of each array is that of the cases.

    ``result["near"]`` are the tables of a voxel set over all cases, such as ``result["near"].ECE``.

    Attributes:
        structures: foreground labels, or regions.
        voxel_ml: (cases,) volume of a voxel.
        sums: over all voxels, ignored ones included.
        doubt: over all voxels, too.
        truth: None without ground truth; ``calibration`` and ``segmentation_metrics`` are then empty.
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
        lines = [f"Dice {self.Dice:.3f}"]
        for voxels in self.calibration:
            values = measure(self[voxels]).items()
            lines.append(f"{voxels}: {', '.join(f'{name} {value:.3f}' for name, value in values)}")
        return "\n".join(lines)

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
        rows = np.empty(len(self.voxel_ml), kinds)
        for name, column in columns.items():
            rows[name] = column
        return rows

    @classmethod
    def of_array(cls, rows: NDArray[np.void], meaning: LabelMeaning) -> "Counts":
        """Return what ``to_array`` made rows of; a KeyError or a TypeError if columns are missing."""
        parts: ByName = {}
        for name in rows.dtype.names or ():
            *path, column = name.split(".")
            home = parts
            for step in path:
                home = home.setdefault(step, {})
            home[column] = rows[name]
        truth = None
        calibration = {}
        if of_truth := parts.get("truth"):
            truth = TruthCounts(**of_truth | {"sums": StructureSums(**of_truth["sums"])})
            for voxels in VOXEL_SETS:
                columns: ByName = {
                    name: BinCounts(**part) if isinstance(part, dict) else part
                    for name, part in parts["calibration"][voxels].items()
                }
                calibration[voxels] = CalibrationTables(activation=meaning.activation, **columns)
        return cls(
            structures=tuple(meaning.structures),
            voxel_ml=parts["voxel_ml"],
            sums=StructureSums(**parts["sums"]),
            doubt=Doubt(**parts["doubt"]),
            truth=truth,
            calibration=calibration,
            segmentation_metrics=parts.get("segmentation_metrics", {}),
        )

    def of_structure(self, number: int) -> "Counts":
        """Select one structure's sums and truth, whose columns then lack the axis of the structures."""
        sums = replace(self, calibration={}, segmentation_metrics={})
        return each_column(lambda column: column if column.ndim == 1 else column[:, number], sums)

    @property
    def by_structure(self) -> dict[Structure, dict[str, float]]:
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
