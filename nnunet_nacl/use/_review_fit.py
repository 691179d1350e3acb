"""Fit predicted Dice, volume intervals and recall thresholds to predictions with ground truth."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from nnunet_nacl import __version__
from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.evaluation import FolderResult, count_for_review
from nnunet_nacl.files import check_output, read_json, write_json
from nnunet_nacl.nnunet import (
    FOLD_CHECKPOINT,
    FOLD_FIT,
    FOLD_VALIDATION,
    Predictions,
    Provenance,
    calibration_of,
)
from nnunet_nacl.patients import cases_of_patients, shuffled, split_cases
from nnunet_nacl.typing import ByName
from nnunet_nacl.use._conformal import TooFewCasesError, conformal_order, recall_threshold
from nnunet_nacl.use._judgement import (
    ALL,
    ignored_text,
    judge_structures,
    judgement_table,
    outcomes_of,
)
from nnunet_nacl.use._structure_fit import StructureFit, truth_of

FIT_NAME = "review_fit.json"


@dataclass(frozen=True)
class ReviewFit:
    """The fit of a review to predictions with ground truth, and the content of its JSON file.

    Attributes:
        provenance: of the predictions that it is fitted to; it is for such predictions of other cases.
        coverage: of the volume intervals and of the lower bound of the Dice.
        structures: what was fitted, by the structure's name.
        held_out: judges each part of the cases, say a fold, by a fit to the rest; empty if a rest is too small.
        patients: how many patients they are of, if one case of each is used; None if each case is taken for a patient.
        ignored: the share of ignored voxels in each case that is used.
        gt_folder: their ground truth.
        pred_folders: several, if the folds of a model are fitted together.
        skipped: cases that could not be used.
        version: of this package.
        file: where it was written, or read from.
    """

    provenance: Provenance
    coverage: float
    structures: dict[str, StructureFit]
    held_out: list[ByName]
    ignored: list[float]
    gt_folder: str
    pred_folders: list[str]
    skipped: list[Skipped]
    patients: int | None = None
    version: str = __version__
    file: Path | None = field(default=None, compare=False)

    @classmethod
    def read(cls, file: str | Path) -> "ReviewFit":
        """Read what ``fit_review`` wrote."""
        return replace(read_json(Path(file), cls), file=Path(file))

    def recall_threshold(self, structure: str, alpha: float) -> float:
        """Return the largest λ whose masks p ≥ λ miss at most a share alpha of a structure, on average over cases."""
        fit = self.structures[structure]
        try:
            threshold = recall_threshold(fit.missed, fit.num_present, alpha)
        except TooFewCasesError as error:
            raise TooFewCasesError(f"{structure}: {error}") from error
        if threshold == 0:
            raise ValueError(
                f"{structure}: only the whole image misses at most {alpha:g} of it on average over new cases. Give a "
                "larger alpha."
            )
        return threshold

    def check(self, made: Provenance, home: Path) -> list[str]:
        """Raise a ValueError if the fit must not be used for predictions in ``home``; return notes for users.

        nnU-Net leaves no trace in a folder of the checkpoint that made it: a note says for which one the fit is valid,
        if the model has two. If it is the calibrated one, it must be as it was for the fit.
        """
        notes = self.ignored_notes()
        fitted_to = self.provenance
        folders = list(map(Path, self.pred_folders))
        checkpoint = None
        if fitted_to.calibration:
            if all(folder.name == FOLD_VALIDATION for folder in folders):
                checkpoint = "calibrated one"
        elif any(folder.with_name(FOLD_CHECKPOINT).exists() for folder in folders):
            checkpoint = "one as trained"
        if checkpoint and not made.calibration:
            now = {calibration_of(folder.parent, FOLD_FIT) for folder in folders}
            # None of a model that is not there
            if fitted_to.calibration and now - {None, *fitted_to.calibration}:
                raise ValueError(
                    f"{self.file} cannot be used for {home}: {folders[0].parent.parent} was calibrated otherwise since "
                    "(or an earlier version wrote the fit). Fit again with nnunet_nacl review fit --calibrated."
                )
            notes.append(
                f"The fit is to {fitted_to.how_calibrated}. The folder {home} does not say which checkpoint made it: "
                f"the fit is valid only for the {checkpoint}."
            )
            fitted_to = replace(fitted_to, calibration=[])
        if mismatch := fitted_to.mismatch(made):
            raise ValueError(f"{self.file} cannot be used for {home}: it was fitted to {mismatch}.")
        return notes

    def ignored_notes(self) -> list[str]:
        """Return a warning, if the ground truth of the cases ignores voxels."""
        ignored = ignored_text(self.ignored, "The ground truth of the fit's cases")
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
        for judgement in self.held_out:
            if judgement["structure"] == ALL:
                continue
            for what, share, number in (
                ("bound of the Dice", "bound_coverage", "num_bounds"),
                ("interval of the volume", "interval_coverage", "num_intervals"),
            ):
                held = judgement[share]
                count = judgement[number]
                error = math.sqrt(self.coverage * (1 - self.coverage) / (count or 1))
                if held is not None and held < self.coverage - 2 * error:
                    notes.append(
                        f"Do not rely on the {what} of {judgement['structure']}: it held in {100 * held:.0f} % of the "
                        f"held-out cases, not in {100 * self.coverage:.0f} %."
                    )
        return notes

    def summary(self) -> str:
        """Return a text: what was fitted, and how well it works on held-out cases."""
        used = f"{len(self.provenance.cases)} cases"
        if self.patients is not None:
            used = f"one case of each of {self.patients} patients"
        lines = [f"Fitted to {used}, for a coverage of {self.coverage:g}."]
        if self.held_out:
            lines += ["On held-out cases:", judgement_table(self.held_out), *self.shortfalls()]
        else:
            lines.append("Too few cases to hold some out: the quality of the fit is unknown.")
        return "\n".join([*lines, *self.ignored_notes()])


def fit_review(
    predictions: Predictions,
    *,
    coverage: float = 0.9,
    by_patient: bool | str = False,
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
        by_patient: fit to one case of each patient, drawn by its name (``patients.cases_of_patients``). Guarantees need
            independent cases, and hold for a case of a new patient.
        output: the file; by default ``review_fit.json`` in the folder of predictions, or of the model.
        num_processes: how many cases are counted at a time.
        overwrite: replace an output that exists.
    """
    predictions.data_set.check_regions()
    file = check_output(output or predictions.home / FIT_NAME, overwrite=overwrite)
    predicted = predictions.for_fitting()
    provenance = predictions.provenance
    counted = count_for_review(
        predicted, output=None if output is None else file, num_processes=num_processes
    )
    assert predictions.gt_folder is not None
    patients = cases_of_patients(counted.cases, by_patient)
    one_of_each = {shuffled(cases)[0] for cases in patients.values()}
    used = counted.only(one_of_each)
    groups = [{case.name for case in cases} for cases in predicted.groups.values()]
    parts = [sorted(one_of_each & group) for group in groups if one_of_each & group]
    if len(parts) == 1:
        parts = split_cases(used.cases)
    result = ReviewFit(
        provenance=replace(provenance, cases=counted.cases),
        coverage=coverage,
        structures=_fit_structures(used, coverage),
        held_out=_hold_out(used, parts, coverage),
        ignored=truth_of(used.counts).ignored.tolist(),
        gt_folder=str(predictions.gt_folder.absolute()),
        pred_folders=[str(folder.absolute()) for folder in predictions.pred_folders],
        skipped=counted.skipped,
        patients=len(patients) if by_patient else None,
    )
    write_json(file, asdict(result))
    return replace(result, file=file)


def _fit_structures(counted: FolderResult, coverage: float) -> dict[str, StructureFit]:
    # Intervals of volumes need the most cases: raises an error if there are too few
    conformal_order(len(counted.cases), 1 - coverage, f"a coverage of {coverage:g}", tails=2)
    return {
        name: StructureFit.fitted(counted.counts.of_structure(number), coverage)
        for number, name in enumerate(counted.meaning.names)
    }


def _hold_out(
    counted: FolderResult, parts: Sequence[Sequence[str]], coverage: float
) -> list[ByName]:
    """Judge each part of the cases with a fit to the others; empty if any leaves too few others to fit to."""
    from pandas import concat

    outcomes = []
    for part in parts:
        try:
            fits = _fit_structures(counted.only({*counted.cases} - {*part}), coverage)
        except TooFewCasesError:
            return []
        outcomes.append(outcomes_of(counted.only(part), fits, coverage))
    return judge_structures(concat(outcomes))
