"""Fits predicted Dice, volume intervals and recall thresholds to predictions with ground truth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Literal

from nnunet_nacl.confidence import DiceFit, fit_dice, fit_volume
from nnunet_nacl.files import check_file, only_writer
from nnunet_nacl.nnunet import Model, Predictions
from nnunet_nacl.review._cases import Basis, CountedCase, CountJournal, count_cases
from nnunet_nacl.review._counts import CountSettings
from nnunet_nacl.review._fit_file import REVIEW_FIT, HeldOut, HeldOutPart, MissedShare, ReviewFit, StructureFit
from nnunet_nacl.review._judgement import Judged, judge
from nnunet_nacl.review._rows import judged

FIT_NAME = "review_fit.json"
_EPSILON_VOXELS = 10
"""A difference in volume of so many voxels does not matter."""
_ISOTONIC = 100
"""From so many cases on the map from predicted to true Dice is isotonic, below it is a line."""


def fit_review(
    predictions: Predictions,
    *,
    coverage: float = 0.9,
    output: str | Path | None = None,
    num_processes: int = 1,
    seed: int = 0,
    ignore_geometry: bool = False,
    overwrite: bool = False,
) -> ReviewFit:
    """Fit predicted Dice, volume intervals and recall thresholds of each structure; write them as JSON.

    A case that cannot be used is in ``skipped`` with the reason. Of several folds each is held out in turn; a folder's
    cases are split into five parts. Run again after an interruption, it goes on with the cases that are left.

    Args:
        predictions: with ground truth: a folder, or the validation cases of a model, but not of fold ``all``.
        coverage: of the volume intervals and of the lower bound of the Dice, in (0, 1).
        output: the file; by default ``review_fit.json`` in the folder of predictions, or in the model's folder.
        num_processes: how many cases are counted at a time.
        seed: of the halves that the map of the Dice and its bound are fitted to, and of the five parts.
        ignore_geometry: take a case's files as they are, though their spacing, origin or direction differ.
        overwrite: replace a file that is no fit of a review, too.

    Raises:
        FileNotFoundError: ``dataset.json`` or ``plans.json`` is missing.
        OSError: the output cannot be written, or there is a file that is no fit of a review.
        ValueError: no case can be used, or too few for the coverage; an argument has a value that it cannot have.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be above 0 and below 1; got {coverage}.")
    if "fold all" in predictions.groups:
        raise ValueError(
            "fold all is validated on the cases that it was trained with: they look better than new ones would."
        )
    home = predictions.model_folder or predictions.pred_folders[0]
    file = check_file(Path(output) if output else home / FIT_NAME, REVIEW_FIT, overwrite=overwrite)
    predicted = predictions.to_fit_to()
    calibration = _calibration(predictions)
    data_set = predicted.read_data_set()
    if not data_set.meaning.structures:
        raise ValueError(f"{predictions.dataset_json}: expected 2 labels or more, the background being one; got 1.")
    settings = CountSettings(truth=True, curves=True, ignore_geometry=ignore_geometry)
    with only_writer(file):
        journal = CountJournal(file, Basis.of(data_set, settings))
        counted, skipped = count_cases(
            predicted.cases, data_set, settings, journal=journal, known={}, num_processes=num_processes
        )
        if not counted:
            raise ValueError(
                f"None of {len(predicted.cases)} cases can be used; the first: {skipped[0].case}: {skipped[0].reason}"
            )
        by_name = {case.case: case for case in counted}
        if len(predicted.groups) > 1:
            parts = {
                group: [case.name for case in cases if case.name in by_name]
                for group, cases in predicted.groups.items()
            }
        else:
            from nnunet_nacl.calibrate import split_cases

            parts = split_cases(list(by_name), seed)
        volumes = [case.counts.voxel_ml for case in counted]
        result = ReviewFit(
            model=Model.of_folder(home, predictions.plans, data_set),
            calibration=calibration,
            coverage=coverage,
            voxel_ml=(min(volumes), max(volumes)),
            structures=_fit_structures(counted, coverage, seed),
            held_out=HeldOut([], []),
            cases=sorted(by_name),
            gt_folder=str(predictions.gt_folder),
            pred_folders=list(map(str, predictions.pred_folders)),
            skipped=skipped,
        )
        result = replace(result, held_out=_hold_out(result, by_name, parts, seed))
        result.write(file, overwrite=overwrite)
        journal.remove()
    return replace(result, file=file)


def _calibration(predictions: Predictions) -> str | None:
    """How the predictions were calibrated; all folders alike."""
    from nnunet_nacl.calibrate import calibration_of

    found = {folder: calibration_of(folder) for folder in predictions.pred_folders}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{folder} ({how or 'not calibrated'})" for folder, how in found.items())
        raise ValueError(f"The folders are not calibrated alike: {listed}.")
    return next(iter(found.values()))


def _fit_structures(cases: Sequence[CountedCase], coverage: float, seed: int) -> dict[str, StructureFit]:
    epsilon_ml = _EPSILON_VOXELS * median(case.counts.voxel_ml for case in cases)
    fits: dict[str, StructureFit] = {}
    for name in cases[0].counts.structures:
        rows = [judged(case, name) for case in cases]
        try:
            volume = fit_volume(
                [row.expected_ml for row in rows],
                [row.true_ml for row in rows],
                epsilon_ml=epsilon_ml,
                coverage=coverage,
            )
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        truths = [truth for case in cases if (truth := case.counts.structures[name].truth) is not None]
        pairs = [(truth.sums.predicted_dice, truth.dice) for truth in truths if truth.sums.segmented]
        dice, reason = _fit_dice(pairs, coverage, seed)
        missed = MissedShare.of([truth.rates() for truth in truths if truth.voxels])
        fits[name] = StructureFit(volume, dice, missed, reason)
    return fits


def _fit_dice(pairs: Sequence[tuple[float, float]], coverage: float, seed: int) -> tuple[DiceFit | None, str | None]:
    """The fit, or the reason why there is none."""
    if not pairs:
        return None, "nothing of it is segmented in any case."
    predicted, dice = zip(*pairs, strict=True)
    try:
        kind: Literal["isotonic", "linear"] = "isotonic" if len(pairs) >= _ISOTONIC else "linear"
        return fit_dice(predicted, dice, kind=kind, coverage=coverage, seed=seed), None
    except ValueError as error:
        return None, str(error)


def _hold_out(
    fit: ReviewFit, cases: Mapping[str, CountedCase], parts: Mapping[str, Sequence[str]], seed: int
) -> HeldOut:
    """Judge each part with a fit to the others."""
    alpha = 1 - fit.coverage
    pooled: list[Judged] = []
    results: list[HeldOutPart] = []
    for part, names in parts.items():
        others = [cases[name] for other in parts if other != part for name in parts[other]]
        held_out = HeldOutPart(part, sorted(names), [])
        if not names or not others:
            results.append(replace(held_out, error="no case in it." if not names else "no case in the others."))
            continue
        try:
            of_others = replace(fit, structures=_fit_structures(others, fit.coverage, seed))
        except ValueError as error:
            results.append(replace(held_out, error=f"without it, {error}"))
            continue
        rows = [
            judged(cases[name], structure, of_others, _threshold(fitted, alpha))
            for structure, fitted in of_others.structures.items()
            for name in names
        ]
        results.append(replace(held_out, judgements=judge(rows)))
        pooled += rows
    by_structure = sorted(pooled, key=lambda row: list(fit.structures).index(row.structure))
    return HeldOut(results, judge(by_structure))


def _threshold(fit: StructureFit, alpha: float) -> float | None:
    """The recall threshold; None if too few cases have the structure."""
    if fit.missed.num_cases < math.ceil(1 / alpha - 1 - 1e-9):
        return None
    return fit.missed.threshold(alpha)
