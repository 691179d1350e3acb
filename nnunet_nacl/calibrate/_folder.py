"""Calibrate saved predictions: fit to those that have ground truth, apply to others."""

from functools import partial
from pathlib import Path

import numpy as np

from nnunet_nacl.calibrate._methods import Calibration
from nnunet_nacl.calibrate._model import FOLD_CHECKPOINT
from nnunet_nacl.calibrate._sample import Sample, check_enough, voxels_per_case
from nnunet_nacl.calibrate._trials import Fit, check_method, try_methods
from nnunet_nacl.cases import each_case
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import check_output
from nnunet_nacl.folders import NewFolder, write_folder
from nnunet_nacl.metrics import Activation, segment
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    CUT_SHORT_NAME,
    DECODED_NAME,
    CaseFiles,
    DataSet,
    Predictions,
    cases_in,
)
from nnunet_nacl.typing import Floats

_BLOCK = 1 << 20  # voxels that are calibrated at a time


def calibrate_folder(
    predictions: Predictions,
    output: str | Path,
    *,
    method: str | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> Fit:
    """Fit temperature and vector scaling to a folder of predictions with ground truth, and write the best fit.

    Args:
        predictions: made with ``--save_probabilities``.
        output: the JSON file.
        method: ``temperature`` or ``vector``; by default the best on held-out cases, or ``as trained`` if none
            qualifies (see ``Trials.best``).
        num_processes: how many cases are read at a time.
        overwrite: replace the file.

    Raises:
        FileExistsError: ``output`` exists.
        ValueError: no such method; the predictions are calibrated already; too few cases with a structure.
    """
    check_method(method, with_features=False)
    _check_uncalibrated(predictions)
    file = check_output(output, overwrite=overwrite)
    data_set = predictions.data_set
    cases = {case.name: case for case in predictions.to_fit_to().cases}
    draw = partial(
        _draw, data_set=data_set, most=voxels_per_case(data_set.meaning.num_channels, len(cases))
    )
    samples, skipped = each_case(cases, draw, doing="reading", num_processes=num_processes)
    check_enough([sample.has_structure for sample in samples.values()], skipped)
    sample = Sample.join(list(samples.values()))
    folders = list(map(str, predictions.pred_folders))
    settings = {"gt_folder": str(predictions.gt_folder), "pred_folders": folders}
    fit = Fit.of(try_methods(sample), method, predictions.model, settings, skipped)
    fit.write(file)
    return fit


def _draw(files: CaseFiles, *, data_set: DataSet, most: int) -> Sample:
    case = SavedCase(files, data_set)
    meaning = data_set.meaning
    p = case.probabilities(np.float32)
    labels, geometry = case.read_truth()
    return Sample.draw(
        files.name,
        meaning,
        labels,
        foreground=meaning.activation.foreground(p[: meaning.num_tops]),
        spacing_mm=geometry.spacing,
        most=most,
        values=lambda index: (meaning.activation.logits(p.reshape(len(p), -1)[:, index]), None),
    )


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
        fit_file: the file of a temperature, a vector or ``as trained`` that ``calibrate_folder`` or
            ``calibrate_model`` wrote.
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write into; ``calibration_applied.json`` there records how it was made.
        num_processes: how many cases are calibrated at a time.
        overwrite: write into an existing folder and replace the cases that an earlier calibration wrote.

    Raises:
        FileExistsError: ``output`` holds something.
        ValueError: the fit needs features, belongs to another model, or was fitted to cases of ``pred_folder``, which
            therefore cannot test it; or ``pred_folder`` is calibrated already.
    """
    fit = Fit.read(Path(fit_file))
    folder = Path(output)
    if fit.calibration.needs_features:
        raise ValueError(
            f"{fit_file} is a last layer, which needs the network's features: predict with -chk {FOLD_CHECKPOINT}, or "
            "calibrate with --method vector."
        )
    predictions = Predictions.of_folder(None, pred_folder)
    _check_uncalibrated(predictions)
    refused = f"{fit_file} cannot be applied to {pred_folder}: it was fitted to"
    predictions.check_unseen(fit.model, fit.cases, refused)
    earlier = _calibrated_files(folder)
    with write_folder(
        [predictions],
        folder,
        "calibrated",
        partial(_apply, calibration=fit.calibration, data_set=predictions.data_set),
        of_predictions=True,
        num_processes=num_processes,
        overwrite=overwrite,
    ) as written:
        written.replaced.extend(earlier)
        fit.write(written.unfinished / CALIBRATED_NAME, applied_to=predictions.home)
        predictions.copy_descriptions(written.unfinished)
    return written


def _calibrated_files(folder: Path) -> list[Path]:
    """Of the cases that an earlier calibration wrote whole; a FileExistsError if there are other predictions."""
    if not cases_in(folder, ".npz") or (folder / CUT_SHORT_NAME).is_dir():
        return []
    if not (folder / CALIBRATED_NAME).is_file() or (folder / DECODED_NAME).is_file():
        raise FileExistsError(
            f"{folder} holds predictions that apply has not written; choose another folder."
        )
    files = []
    for case in Predictions.of_folder(None, folder).cases:
        if case.probabilities.is_file():
            files += [case.probabilities, case.prediction, case.probabilities.with_suffix(".pkl")]
    return files


def _apply(files: CaseFiles, folder: Path, *, calibration: Calibration, data_set: DataSet) -> None:
    case = SavedCase(files, data_set)
    probabilities = case.probabilities(np.float32)
    meaning = data_set.meaning
    if calibration.keeps_labels and files.thresholds is None:
        _calibrate(probabilities, calibration, meaning.activation)
        labels = None
    else:
        before = segment(probabilities, meaning)
        _calibrate(probabilities, calibration, meaning.activation)
        labels = segment(probabilities, meaning)
        if files.thresholds is None:  # what postprocessing removed stays removed
            labels[(case.labels == 0) & (before > 0)] = 0
    files.write(folder, data_set.reader, labels=labels, probabilities=probabilities)


def _calibrate(probabilities: Floats, calibration: Calibration, activation: Activation) -> None:
    """In place, and in double precision, so that rounding does not swap two classes."""
    flat = probabilities.reshape(len(probabilities), -1)
    for start in range(0, flat.shape[1], _BLOCK):
        part = flat[:, start : start + _BLOCK]
        logits = activation.logits(part.astype(np.float64))
        part[:] = activation.probabilities(calibration.logits(logits))


def _check_uncalibrated(predictions: Predictions) -> None:
    for folder in predictions.pred_folders:
        if (folder / CALIBRATED_NAME).is_file():
            raise ValueError(f"{folder} is calibrated already ({CALIBRATED_NAME}).")
