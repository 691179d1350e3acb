"""Calibrate saved predictions: fit to those that have ground truth, apply to others."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nnunet_nacl.calibrate._draw import voxels_per_case
from nnunet_nacl.calibrate._methods import Calibration, Temperature
from nnunet_nacl.calibrate._sample import Sample, centered, join_enough
from nnunet_nacl.calibrate._trials import Fit, try_methods
from nnunet_nacl.case_loop import each_case
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import check_output
from nnunet_nacl.metrics import Activation, ratio, segment
from nnunet_nacl.new_folder import WrittenCases, new_predictions, write_cases
from nnunet_nacl.nnunet import CALIBRATED_NAME, FOLD_CHECKPOINT, CaseFiles, DataSet, Predictions
from nnunet_nacl.typing import Floats

_BLOCK = 1 << 20  # voxels that are calibrated at a time
_NEVER = -1e4
"""The logit of p = 0, as outside nnU-Net's crop: 0 at every temperature, unless float16 may have rounded it."""
_SMALLEST_REST = 2.0**-25
"""In float32, p rounds to 1 where 1 − p is below this."""
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
        by_patient: hold out and resample patients, not their cases (see ``patients.cases_of_patients``).
        num_processes: how many cases are read at a time.
        overwrite: replace the file.

    Raises:
        FileExistsError: ``output`` exists.
        ValueError: another method, calibrated predictions, or too few cases with a structure.
    """
    if predictions.provenance.calibration:
        raise ValueError(f"{predictions.home} is calibrated already ({CALIBRATED_NAME}).")
    if method not in {None, Temperature.method}:
        raise ValueError(f"method: expected {Temperature.method} for predictions; got {method!r}.")
    file = check_output(output, overwrite=overwrite)
    data_set = predictions.data_set
    cases = predictions.for_fitting().by_name
    draw = partial(
        _sample_saved,
        data_set=data_set,
        most=voxels_per_case(data_set.meaning.num_channels, len(cases)),
    )
    drawn, skipped = each_case(cases, draw, doing="reading", num_processes=num_processes)
    samples = {name: sample for name, (sample, _) in drawn.items()}
    sample = join_enough(samples, skipped, by_patient)
    folders = list(map(str, predictions.pred_folders))
    settings = {"gt_folder": str(predictions.gt_folder), "pred_folders": folders}
    trials = try_methods(sample)
    coarsest = np.float16 if any(dtype == np.float16 for _, dtype in drawn.values()) else np.float32
    rounded = _share_rounded(sample, coarsest)
    if rounded > _COARSE:
        score = trials.scores[Temperature.method]
        remarks = [
            *filter(None, [score.remark]),
            f"{coarsest.__name__} rounds p to 0 or 1 in {100 * rounded:.0f} % of the errors: T may be off",
        ]
        trials.scores[Temperature.method] = replace(score, remark="; ".join(remarks))
    fit = Fit.choose(trials, method, predictions.provenance, settings, skipped)
    fit.write(file)
    return fit


def _sample_saved(
    files: CaseFiles, *, data_set: DataSet, most: int
) -> tuple[Sample, "np.dtype[Any]"]:
    """Return a case's sample, and the type of its probabilities."""
    case = SavedCase(files, data_set)
    meaning = data_set.meaning
    p = case.probabilities()
    flat = p.reshape(len(p), -1)
    labels, geometry = case.read_truth()
    sample = Sample.draw(
        files.name,
        meaning,
        labels,
        foreground=meaning.activation.foreground(p[: meaning.num_predictions]),
        spacing_mm=geometry.spacing,
        most=most,
        values=lambda index: (_logits(flat[:, index], meaning.activation, np.float32), None),
    )
    return sample, p.dtype


def _logits(p: Floats, activation: Activation, dtype: DTypeLike) -> Floats:
    """Return the logits (C, n) of stored probabilities, in this dtype: ln p, for regions ln p − ln(1 − p).

    Where float16 has rounded p to 0, or a region's p has been rounded to 1, it counts as half the smallest step from
    there.
    """
    exact = p.astype(dtype)
    if p.dtype == np.float16:
        exact = exact.clip(2.0**-25, 1 if activation.exclusive else 1 - 2.0**-12)
    logits: Floats = np.log(np.maximum(exact, np.finfo(np.float32).tiny))
    if activation.exclusive:
        logits = centered(logits, activation)
    else:
        rest = np.maximum(1 - exact.astype(np.float64), _SMALLEST_REST)
        logits -= np.log(rest).astype(exact.dtype)
    logits[exact == 0] = _NEVER
    return logits


def _share_rounded(sample: Sample, dtype: type[np.floating[Any]]) -> float:
    """Return the share of wrong voxels whose truth's p the dtype rounds to 0: float16 any p below 2⁻²⁵.

    For regions, also those outside where it rounds p to 1: float16 any 1 − p below 2⁻¹², float32 below 2⁻²⁵.
    """
    activation = sample.meaning.activation
    is_wrong = np.atleast_2d(sample.as_trained != sample.truth)
    nll = sample.nll(sample.logits)
    to_0, to_1 = (25, 12) if dtype is np.float16 else (np.inf, 25)
    steps = to_0 if activation.exclusive else np.where(sample.truth, to_0, to_1)
    is_rounded = is_wrong & (nll > 0.999 * np.log(2) * steps)
    return float(ratio((is_rounded @ sample.weights).sum(), (is_wrong @ sample.weights).sum()))


def apply_folder(
    fit_file: str | Path,
    pred_folder: str | Path,
    output: str | Path,
    *,
    num_processes: int = 1,
    overwrite: bool = False,
) -> WrittenCases[None]:
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
    provenance = predictions.provenance
    # Whose segmentations play no part
    made = replace(provenance, decoded=fit.provenance.decoded)
    if mismatch := fit.provenance.mismatch(made):
        raise ValueError(
            f"{fit_file} cannot be applied to {pred_folder}: it was fitted to {mismatch}."
        )
    folder = new_predictions(predictions, output, overwrite=overwrite)
    fit.write(folder / CALIBRATED_NAME, applied_to=predictions.home)
    apply = partial(
        _apply,
        folder=folder,
        calibration=fit.calibration,
        data_set=predictions.data_set,
        is_decoded=provenance.decoded is not None,
    )
    return write_cases(predictions, folder, "calibrated", apply, num_processes=num_processes)


def _apply(
    files: CaseFiles, *, folder: Path, calibration: Calibration, data_set: DataSet, is_decoded: bool
) -> None:
    """Write a case's calibrated probabilities, computed in double precision, lest rounding swap two classes."""
    activation = data_set.meaning.activation
    stored = SavedCase(files, data_set).probabilities()
    probabilities = stored.astype(np.float32, copy=False)
    before = stored.reshape(len(stored), -1)
    after = probabilities.reshape(len(stored), -1)
    for start in range(0, before.shape[1], _BLOCK):
        block = slice(start, start + _BLOCK)
        logits = _logits(before[:, block], activation, np.float64)
        after[:, block] = activation.probabilities(calibration.logits(logits))
    # A temperature keeps the argmax, but not what thresholds gave
    labels = segment(probabilities, data_set.meaning) if is_decoded else None
    files.write(folder, data_set.reader, labels=labels, probabilities=probabilities)
