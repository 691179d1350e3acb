"""Fit predicted Dice, volume intervals and recall thresholds to predictions with ground truth."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from nnunet_nacl import __version__
from nnunet_nacl.calibrate import FOLD_CHECKPOINT, Calibration, calibration_of, split_cases
from nnunet_nacl.cases import Skipped
from nnunet_nacl.files import check_output, read_json, write_json
from nnunet_nacl.nnunet import DECODED_NAME, Model, PredictionFolder, Predictions
from nnunet_nacl.use._conformal import (
    THRESHOLDS,
    DiceFit,
    VolumeFit,
    check_enough,
    fit_dice,
    fit_volume,
    recall_threshold,
)
from nnunet_nacl.use._counting import CountedCase, CountSettings, StructureCounts, counted_cases
from nnunet_nacl.use._judging import ALL, Row, ignored_note, judge_structures, judgement_table
from nnunet_nacl.use._quantities import StructureSums

FIT_NAME = "review_fit.json"
_EPSILON_VOXELS = 10  # a difference in volume that does not matter


@dataclass(frozen=True)
class StructureFit:
    """What was fitted for a structure.

    ``volume`` is None if too few cases are without ignored voxels, ``dice`` if too few have something segmented.
    ``missed`` (T,) is the mean share of the structure that
    masks of p ≥ threshold miss, for ``THRESHOLDS``, over the ``num_present`` cases that have it.
    """

    volume: VolumeFit | None
    dice: DiceFit | None
    missed: tuple[float, ...]
    num_present: int

    @classmethod
    def to(cls, rows: Sequence[StructureCounts], coverage: float) -> "StructureFit":
        """Fit to what was counted of the structure in calibration cases; a ValueError if they are too few."""
        try:
            check_enough(len(rows), coverage)
        except ValueError as error:
            raise ValueError(f"{rows[0].structure}: {error}") from error
        of_cases = [judged(row, None) for row in rows]
        known = [row for row in of_cases if row["true_ml"] is not None]
        volume = None
        with suppress(ValueError):  # too few are without ignored voxels
            volume = fit_volume(
                [row["expected_ml"] for row in known],
                [row["true_ml"] for row in known],
                epsilon_ml=_EPSILON_VOXELS * median(row.voxel_ml for row in rows),
                coverage=coverage,
            )
        truths = [row.truth for row in rows if row.truth is not None]
        segmented = [truth for truth in truths if truth.sums.segmented]
        dice = None
        with suppress(ValueError):  # too few have something segmented
            dice = fit_dice(
                [truth.sums.predicted_dice for truth in segmented],
                [truth.dice for truth in segmented],
                coverage=coverage,
            )
        rates = [np.array(truth.missed) / truth.voxels for truth in truths if truth.voxels]
        missed = tuple(np.mean(rates, axis=0).tolist()) if rates else ()
        return cls(volume, dice, missed, len(rates))


@dataclass(frozen=True)
class ReviewFit:
    """What ``fit_review`` returns; ``held_out`` judges each part of the cases, say a fold, by a fit to the rest.

    ``ignored`` is the share of ignored voxels in each of the ``cases``.
    """

    model: Model
    calibration: Calibration | None
    decoded: str | None
    coverage: float
    structures: dict[str, StructureFit]
    held_out: list[Row]
    cases: list[str]
    ignored: list[float]
    gt_folder: str
    pred_folders: list[str]
    skipped: list[Skipped]
    version: str = __version__
    format: Literal["review fit of nnunet_nacl"] = "review fit of nnunet_nacl"
    file: Path | None = field(default=None, compare=False)

    @classmethod
    def read(cls, file: str | Path) -> "ReviewFit":
        """Read what ``fit_review`` wrote."""
        return replace(read_json(Path(file), cls), file=Path(file))

    def recall_threshold(self, structure: str, alpha: float) -> float:
        """The largest threshold λ whose masks p ≥ λ miss at most a share alpha of a structure, on average over cases.

        Raises:
            ValueError: no such structure, or fewer than 1/alpha − 1 calibration cases have it.
        """
        if structure not in self.structures:
            raise ValueError(
                f"{self.file} has no structure {structure!r}; it has {', '.join(self.structures)}."
            )
        fit = self.structures[structure]
        try:
            return recall_threshold(fit.missed, fit.num_present, alpha)
        except ValueError as error:
            raise ValueError(f"{self.file}: {structure}: {error}") from error

    def check(self, predictions: PredictionFolder, *, segmented: bool = True) -> list[str]:
        """Warnings to print before the fit is used for a folder of predictions; a ValueError if it must not be used.

        ``segmented`` says whether it is used for segmentations or for probabilities alone.
        """
        folder = predictions.folder
        refused = f"{self.file} cannot be used for {folder}: it was fitted to"
        predictions.check_unseen(self.model, self.cases, refused)
        decoded = decoding_of(folder)
        if segmented and decoded != self.decoded:
            raise ValueError(
                f"{refused} {_told('decoded', self.decoded)}; these are {_told('decoded', decoded)}."
            )
        ranks = [
            row["spearman"]
            for row in self.held_out
            if row["structure"] != ALL and row["spearman"] is not None
        ]
        told = "the rank correlation on other cases is unknown"
        if ranks:
            told = (
                "on held-out cases, predicted and true Dice have a rank correlation of "
                f"{min(ranks):.2f} to {max(ranks):.2f} (Spearman)"
            )
        notes = [
            f"The fit uses {len(self.cases)} cases; {told}.",
            *self.shortfalls(),
            *self.sparse_notes(),
        ]
        unknown = f"The folder {folder} does not say which checkpoint made it: the fit is valid only for the"
        calibration = calibration_of(folder)
        if calibration == self.calibration:
            twins = [Path(own).with_name(FOLD_CHECKPOINT) for own in self.pred_folders]
            if calibration is None and any(twin.exists() for twin in twins):
                notes.append(f"The fit is to predictions as trained. {unknown} one as trained.")
            return notes
        of_folds = set[str]()  # the methods, if each fold has a fit of its own
        if self.calibration is not None and self.calibration.fingerprint is None:
            of_folds.update(self.calibration.methods)
        if calibration is None and of_folds:
            note = f"The fit is to calibrated predictions ({self.calibration})."
            return [*notes, f"{note} {unknown} calibrated one."]
        if calibration is None or not of_folds.issuperset(calibration.methods):
            expected = _told("calibrated", self.calibration)
            raise ValueError(f"{refused} {expected}; these are {_told('calibrated', calibration)}.")
        return notes

    def sparse_notes(self) -> list[str]:
        """A warning, if the ground truth of the cases ignores voxels."""
        ignored = ignored_note(self.ignored, "The ground truth of the fit's cases")
        if ignored is None:
            return []
        note = (
            f"{ignored}. Recall and Dice are fitted to the labelled voxels: in whole images, masks may miss more than "
            "alpha on average."
        )
        if any(fit.volume is None for fit in self.structures.values()):
            note += " Volumes have no intervals, since too few cases are labelled as a whole."
        return [note]

    def shortfalls(self) -> list[str]:
        """Warnings: bounds and intervals that held in too few held-out cases, by more than two standard errors."""
        notes = []
        for row in self.held_out:
            variance = self.coverage * (1 - self.coverage) / row["num_cases"]
            for what, of in (("bound", "Dice"), ("interval", "volume")):
                held = row[f"{what}_coverage"]
                structure = row["structure"]
                if (
                    structure != ALL
                    and held is not None
                    and held < self.coverage - 2 * math.sqrt(variance)
                ):
                    notes.append(
                        f"Do not rely on the {what} of the {of} of {structure}: it held in {100 * held:.0f} % of the "
                        f"held-out cases, not in {100 * self.coverage:.0f} %."
                    )
        return notes

    def summary(self) -> str:
        """A text: what was fitted, and how well it works on held-out cases."""
        held_out = "Too few cases to hold some out: the quality of the fit is unknown."
        if self.held_out:
            lines = ["On held-out cases:", judgement_table(self.held_out), *self.shortfalls()]
            held_out = "\n".join(lines)
        fitted = f"Fitted to {len(self.cases)} cases, for a coverage of {self.coverage:g}."
        return "\n".join([fitted, held_out, *self.sparse_notes()])


def fit_review(
    predictions: Predictions,
    *,
    coverage: float = 0.9,
    output: str | Path | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> ReviewFit:
    """Fit predicted Dice, volume intervals and recall thresholds of each structure; write them as JSON.

    A case that cannot be used is in ``skipped`` with the reason. With several folds, each fold is held out in turn; a
    folder's cases are split into five parts. After an interruption, a second call continues with the remaining cases.

    Args:
        predictions: with ground truth: a folder, or the validation cases of a model, but not of fold ``all``.
        coverage: of the volume intervals and of the lower bound of the Dice, in (0, 1).
        output: the file; by default ``review_fit.json`` in the folder of predictions, or of the model.
        num_processes: how many cases are counted at a time.
        overwrite: replace an output that exists.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be above 0 and below 1; got {coverage}.")
    if "fold all" in predictions.groups:
        raise ValueError(
            "fold all is validated on the cases that it was trained with, which look better than new ones."
        )
    home = predictions.model_folder or predictions.pred_folders[0]
    file = check_output(output or home / FIT_NAME, overwrite=overwrite)
    predicted = predictions.to_fit_to()
    folders = predictions.pred_folders
    calibration = _shared_calibration(folders)
    decoded = {decoding_of(folder) for folder in folders}
    if len(decoded) > 1:
        raise ValueError(f"The folders are not decoded alike: {', '.join(map(str, folders))}.")
    data_set = predicted.read_data_set()
    with counted_cases(
        predicted.cases,
        data_set,
        CountSettings(truth=True),
        output=file,
        num_processes=num_processes,
    ) as (counted, skipped):
        parts = [
            [case.name for case in cases if case.name in counted]
            for cases in predicted.groups.values()
        ]
        if sum(map(bool, parts)) == 1:
            parts = split_cases(list(counted))
        result = ReviewFit(
            model=Model.of_folder(home, predictions.plans, data_set),
            calibration=calibration,
            decoded=decoded.pop(),
            coverage=coverage,
            structures=_fit_structures(_rows(counted, counted), coverage),
            held_out=_hold_out([_rows(counted, part) for part in parts], coverage),
            cases=sorted(counted),
            ignored=[ignored_share(counted[name]) for name in sorted(counted)],
            gt_folder=str(predictions.gt_folder),
            pred_folders=list(map(str, folders)),
            skipped=skipped,
        )
        write_json(file, asdict(result))
    return replace(result, file=file)


def predict(fit: StructureFit | None, sums: StructureSums, voxel_ml: float) -> Row:
    """Interval of the volume; where something is segmented, the fitted Dice and its bound; None without a fit."""
    found: Row = dict.fromkeys(["volume_low_ml", "volume_high_ml", "fitted_dice", "dice_low"])
    if fit is None:
        return found
    if fit.volume is not None:
        volume = voxel_ml * sums.probability
        found["volume_low_ml"], found["volume_high_ml"] = fit.volume.interval_ml(volume)
    if fit.dice is not None and sums.segmented:
        found["fitted_dice"] = float(fit.dice.expected(sums.predicted_dice))
        found["dice_low"] = float(fit.dice.lower_bound(sums.predicted_dice))
    return found


def judged(row: StructureCounts, fit: StructureFit | None) -> Row:
    """What is predicted of a structure, by the fit if there is one, and what is true, without ignored voxels.

    If there are such voxels, the true volume is unknown: it is None, and so is its interval.
    """
    assert row.truth is not None
    sums = row.truth.sums
    found = {
        "case": row.case,
        "structure": row.structure,
        "predicted_dice": sums.dice_to_expect,
        "dice": row.truth.dice,
        "expected_ml": row.voxel_ml * sums.probability,
        "true_ml": row.voxel_ml * row.truth.voxels,
        **predict(fit, sums, row.voxel_ml),
        "missed": None,
    }
    if row.truth.ignored:
        found |= dict.fromkeys(("true_ml", "volume_low_ml", "volume_high_ml"))
    return found


def ignored_share(case: CountedCase) -> float:
    """The share of a case's voxels that its ground truth, which was counted, ignores."""
    truth = case.structures[0].truth
    assert truth is not None
    return truth.ignored


def _rows(counted: Mapping[str, CountedCase], cases: Iterable[str]) -> list[StructureCounts]:
    return [row for case in cases for row in counted[case].structures]


def _fit_structures(rows: Sequence[StructureCounts], coverage: float) -> dict[str, StructureFit]:
    names = dict.fromkeys(row.structure for row in rows)
    return {
        name: StructureFit.to([row for row in rows if row.structure == name], coverage)
        for name in names
    }


def _hold_out(parts: Sequence[Sequence[StructureCounts]], coverage: float) -> list[Row]:
    """Judge each part of the cases with a fit to the others; empty if any part leaves too few others to fit to."""
    found = []
    for part in parts:
        others = [row for other in parts if other is not part for row in other]
        try:
            fits = _fit_structures(others, coverage)
        except ValueError:
            return []
        for row in part:
            fit = fits[row.structure]
            judgement = judged(row, fit)
            with suppress(ValueError):  # too few cases have the structure
                threshold = recall_threshold(fit.missed, fit.num_present, 1 - coverage)
                if row.truth is not None and row.truth.voxels:
                    missed = row.truth.missed[int(np.searchsorted(THRESHOLDS, threshold))]
                    judgement["missed"] = missed / row.truth.voxels
            found.append(judgement)
    return judge_structures(found)


def decoding_of(folder: Path) -> str | None:
    """What a folder of predictions was decoded for, such as ``dice``; None for nnU-Net's own segmentations."""
    if not (folder / DECODED_NAME).exists():
        return None
    mark = read_json(folder / DECODED_NAME, dict[str, Any])
    metric = str(mark["metric"])
    return metric if mark["alpha"] is None else f"{metric}, alpha {mark['alpha']:g}"


def _shared_calibration(folders: Sequence[Path]) -> Calibration | None:
    """How the predictions were calibrated: all alike, or each folder by its own fit."""
    found = {folder: calibration_of(folder) for folder in folders}
    calibrations = {how for how in found.values() if how is not None}
    if not calibrations:
        return None
    if None in found.values():
        listed = ", ".join(f"{folder} ({how or 'not calibrated'})" for folder, how in found.items())
        raise ValueError(f"Some of the folders are calibrated, and some are not: {listed}.")
    if len(calibrations) > 1 or all(folder.name == "validation_calibrated" for folder in folders):
        methods = {method for how in calibrations for method in how.methods}
        return Calibration(tuple(sorted(methods)), None)
    return calibrations.pop()


def _told(done: str, how: Calibration | str | None) -> str:
    return (
        f"predictions that are not {done}"
        if how is None
        else f"predictions that are {done} ({how})"
    )
