"""The record of counted cases: columns, whose first axis is that of the cases."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._labels import Structure
from nnunet_nacl.metrics._means import mean_of_known
from nnunet_nacl.metrics._overlap import dice_of_sizes
from nnunet_nacl.metrics._registry import CalibrationTables
from nnunet_nacl.metrics._settings import Voxels
from nnunet_nacl.typing import Floats, Numbers


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
    """How unsure a model is, for each structure of each case: (cases, structures).

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
    """What the ground truth says about structures, over the voxels that are not ignored.

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
        """(cases, structures) Dice of what ``sums`` take for the segmentation; NaN where a structure is in neither."""
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

    __iter__ = None  # neither over cases nor over voxel sets

    def __getitem__(self, voxels: Voxels) -> CalibrationTables:
        """The tables of a voxel set over all cases; a KeyError if it was not counted."""
        if voxels not in self.calibration:
            counted = ", ".join(self.calibration) or "none"
            raise KeyError(
                f"expected one of the voxel sets that were counted, {counted}; got {voxels}"
            )
        return self.calibration[voxels].sum()

    @classmethod
    def joined(cls, parts: "Iterable[Counts]") -> "Counts":
        """The cases of all parts, in this order.

        They must have been counted alike: with other margins or tolerances, too, the numbers would mean nothing, and
        records do not tell these. Raises a ValueError if there is no part, or if parts differ in structures, voxel
        sets, segmentation metrics, channels, bins or protocol.
        """
        parts = list(parts)
        if not parts:
            raise ValueError("expected one case or more; got none.")
        expected = parts[0]._form
        for part in parts[1:]:
            for what, found in part._form.items():
                if found != expected[what]:
                    raise ValueError(
                        f"expected parts with the same {what}; got {expected[what]} and {found}."
                    )
        return each_column(lambda *columns: np.concatenate(columns), *parts)

    @property
    def _form(self) -> dict[str, str]:
        """What records must share to be joined, in words."""
        tables = self.calibration.values()
        with_expected = [
            voxels for voxels, one in self.calibration.items() if one.expected_top is not None
        ]
        named = {
            "structures": self.structures,
            "ground truth": () if self.truth is None else ("some",),
            "segmentation metrics": self.segmentation_metrics,
            "voxel sets": self.calibration,
            "kind of channels": {one.activation.name for one in tables},
            "number of bins": {one.top.count.shape[-1] for one in tables},
            "voxel sets with expected tables, which the authors' protocol lacks": with_expected,
        }
        return {what: ", ".join(map(str, names)) or "none" for what, names in named.items()}

    def take(self, rows: Sequence[int] | slice) -> "Counts":
        """Some of the cases."""
        return each_column(lambda column: column[rows], self)

    def of_structure(self, number: int) -> "Counts":
        """One structure's sums and truth, whose columns then lack the axis of the structures."""
        sums = replace(self, calibration={}, segmentation_metrics={})
        return each_column(lambda column: column if column.ndim == 1 else column[:, number], sums)

    def without_truth(self) -> "Counts":
        """What is known of the cases without ground truth."""
        return replace(self, truth=None, calibration={}, segmentation_metrics={})

    @property
    def by_structure(self) -> dict[Structure, Numbers]:
        """Segmentation metrics by label or region; means over cases with a value."""
        found: dict[Structure, Numbers] = {structure: {} for structure in self.structures}
        for metric, values in self.segmentation_metrics.items():
            for of_structure, mean in zip(found.values(), mean_of_known(values.T), strict=True):
                of_structure[metric] = float(mean)
        return found

    def foreground_mean(self, metric: str) -> float:
        """Mean over structures of their means over cases; NaN where it was not computed."""
        values = self.segmentation_metrics.get(metric, np.zeros((0, 0)))
        return float(mean_of_known(mean_of_known(values.T)))

    @property
    def Dice(self) -> float:  # noqa: N802 - as in papers
        """Mean over structures, as nnU-Net's ``foreground_mean``."""
        return self.foreground_mean("Dice")
