"""Calibrate saved predictions: fit to those that have ground truth, apply to others."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._fold import FOLD_CHECKPOINT
from nnunet_nacl.calibrate._methods import Calibration
from nnunet_nacl.calibrate._sample import Sample, join_enough, voxels_per_case
from nnunet_nacl.calibrate._trials import Fit, try_methods
from nnunet_nacl.cases import each_case
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import check_output
from nnunet_nacl.folders import NewFolder, new_predictions, write_cases
from nnunet_nacl.metrics import ratio, segment
from nnunet_nacl.nnunet import CALIBRATED_NAME, CaseFiles, DataSet, Predictions
from nnunet_nacl.typing import Floats

_BLOCK = 1 << 20  # voxels that are calibrated at a time
_NEVER = -1e4
"""The logit of a p of 0 that is no rounded one, as outside nnU-Net's crop: no temperature makes it plausible."""
_COARSE = 0.01
"""From this share of rounded errors on, T was off by 5 % and more in simulations; of classes, always too low."""


def calibrate_folder(
    predictions: Predictions,
    output: str | Path,
    *,
    method: str | None = None,
    by_patient: bool | str = False,
    num_processes: int = 1,
    overwrite: bool = False,
) -> Fit:
    """Fit a temperature to a folder of predictions with ground truth, and write the fit.

    Args:
        predictions: made with ``--save_probabilities``.
        output: the JSON file.
        method: ``temperature``; by default, ``as trained`` unless it qualifies (see ``Trials.best``).
        by_patient: hold out and resample patients, not their cases (see ``names.cases_of_patients``).
        num_processes: how many cases are read at a time.
        overwrite: replace the file.

    Raises:
        FileExistsError: ``output`` exists.
        ValueError: the predictions are calibrated already; too few cases with a structure.
    """
    if predictions.is_calibrated:
        raise ValueError(f"{predictions.home} is calibrated already ({CALIBRATED_NAME}).")
    file = check_output(output, overwrite=overwrite)
    data_set = predictions.data_set
    cases = {case.name: case for case in predictions.to_fit_to().cases}
    draw = partial(
        _draw, data_set=data_set, most=voxels_per_case(data_set.meaning.num_channels, len(cases))
    )
    drawn, skipped = each_case(cases, draw, doing="reading", num_processes=num_processes)
    samples = {name: sample for name, (sample, _) in drawn.items()}
    sample = join_enough(samples, skipped, by_patient)
    folders = list(map(str, predictions.pred_folders))
    settings = {"gt_folder": str(predictions.gt_folder), "pred_folders": folders}
    trials = try_methods(sample)
    if any(dtype == np.float16 for _, dtype in drawn.values()):
        rounded = _share_rounded(sample)
        if rounded > _COARSE:
            remark = (
                f"float16 rounds p to 0 or 1 in {100 * rounded:.0f} % of the errors: T may be off"
            )
            scores = {name: replace(score, remark=remark) for name, score in trials.scores.items()}
            trials = replace(trials, scores=scores)
    fit = Fit.of(trials, method, predictions.provenance, settings, skipped)
    fit.write(file)
    return fit


def _draw(files: CaseFiles, *, data_set: DataSet, most: int) -> tuple[Sample, "np.dtype[Any]"]:
    """Return a case's sample, and the type of its probabilities."""
    case = SavedCase(files, data_set)
    meaning = data_set.meaning
    p = case.probabilities()
    step = np.finfo(p.dtype)
    # Beyond half a step, p is stored as 0 or 1
    low = float(step.smallest_subnormal) / 2
    high = 1 if meaning.activation.exclusive else 1 - float(step.epsneg) / 2
    labels, geometry = case.read_truth()

    def values(index: NDArray[np.intp]) -> tuple[Floats, None]:
        stored = p.reshape(len(p), -1)[:, index].astype(np.float32).clip(low, high)
        logits = meaning.activation.logits(stored)
        logits[stored == 0] = _NEVER
        return logits, None

    sample = Sample.draw(
        files.name,
        meaning,
        labels,
        foreground=meaning.activation.foreground(p[: meaning.num_tops]),
        spacing_mm=geometry.spacing,
        most=most,
        values=values,
    )
    return sample, p.dtype


def _share_rounded(sample: Sample) -> float:
    """Return the share of wrong voxels whose truth has p = 0 in float16, so any p below 2⁻²⁵ (1 − p: 2⁻¹²)."""
    is_wrong = np.atleast_2d(sample.as_trained != sample.truth)
    nll = sample.activation.nll(sample.logits.astype(np.float64), sample.truth)
    steps = 25 if sample.activation.exclusive else np.where(sample.truth, 25, 12)
    is_rounded = is_wrong & (nll > 0.999 * np.log(2) * steps)
    return float(ratio((is_rounded @ sample.weights).sum(), (is_wrong @ sample.weights).sum()))


def apply_folder(
    fit_file: str | Path,
    pred_folder: str | Path,
    output: str | Path,
    *,
    num_processes: int = 1,
    overwrite: bool = False,
) -> NewFolder[None]:
    """Write a calibrated copy of a folder of predictions.

    Args:
        fit_file: the file of a temperature or ``as trained`` that ``calibrate_folder`` or
            ``calibrate_model`` wrote.
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write into; ``calibration_applied.json`` there records how it was made.
        num_processes: how many cases are calibrated at a time.
        overwrite: write into an existing folder and replace these cases there.

    Raises:
        FileExistsError: ``output`` holds something, or, with ``overwrite``, predictions of other cases.
        ValueError: the fit needs features, belongs to another model, or was fitted to cases of ``pred_folder``, which
            therefore cannot test it; or ``pred_folder`` is calibrated.
    """
    fit = Fit.read(Path(fit_file))
    if fit.calibration.needs_features:
        raise ValueError(
            f"{fit_file} is a last layer, which needs the network's features: predict with -chk {FOLD_CHECKPOINT}, or "
            "calibrate with --method temperature."
        )
    predictions = Predictions.of_folder(None, pred_folder)
    # Whose segmentations play no part
    made = replace(predictions.provenance, decoded=fit.provenance.decoded)
    if mismatch := fit.provenance.mismatch(made):
        raise ValueError(
            f"{fit_file} cannot be applied to {pred_folder}: it was fitted to {mismatch}."
        )
    folder = new_predictions(predictions, output, overwrite=overwrite)
    fit.write(folder / CALIBRATED_NAME, applied_to=predictions.home)
    apply = partial(
        _apply, folder=folder, calibration=fit.calibration, data_set=predictions.data_set
    )
    return write_cases(predictions, folder, "calibrated", apply, num_processes=num_processes)


def _apply(files: CaseFiles, *, folder: Path, calibration: Calibration, data_set: DataSet) -> None:
    """In double precision, so that rounding does not swap two classes."""
    activation = data_set.meaning.activation
    probabilities = SavedCase(files, data_set).probabilities(np.float32)
    flat = probabilities.reshape(len(probabilities), -1)
    for start in range(0, flat.shape[1], _BLOCK):
        part = flat[:, start : start + _BLOCK]
        logits = activation.logits(part.astype(np.float64))
        part[:] = activation.probabilities(calibration.logits(logits))
    # A temperature keeps the argmax, but not what thresholds gave
    labels = None if files.thresholds is None else segment(probabilities, data_set.meaning)
    files.write(folder, data_set.reader, labels=labels, probabilities=probabilities)
