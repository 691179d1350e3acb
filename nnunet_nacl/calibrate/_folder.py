"""A calibration of predictions that nnU-Net has saved with their probabilities: fitted to some, applied to others."""

import hashlib
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from nnunet_nacl.calibrate._fit import Fit, try_methods
from nnunet_nacl.calibrate._methods import Head, Method, Temperature
from nnunet_nacl.calibrate._sample import (
    Sample,
    check_sample,
    draw_voxels,
    link_of,
    near_prediction,
    truth_of,
    voxels_per_case,
)
from nnunet_nacl.cases import Skipped, each_case
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import check_output
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    CaseFiles,
    DataSet,
    Model,
    PredictionFolder,
    Predictions,
    write_prediction,
)


def calibrate_folder(
    predictions: Predictions,
    output: str | Path,
    *,
    method: str | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> Fit:
    """Fit temperature and vector scaling to a folder of predictions with ground truth, and write the better one.

    Args:
        predictions: made with ``--save_probabilities``.
        output: the JSON file.
        method: ``temperature`` or ``vector``; by default the one with the lowest NLL on held-out cases.
        num_processes: how many cases are read at a time.
        overwrite: replace the file.

    Raises:
        FileExistsError: ``output`` exists.
        ValueError: the predictions are calibrated already; too few cases, a structure without a voxel.
    """
    calibrated = [folder for folder in predictions.pred_folders if calibration_of(folder) is not None]
    if calibrated:
        raise ValueError(f"{calibrated[0]} is calibrated already ({CALIBRATED_NAME}).")
    file = check_output(output, overwrite=overwrite)
    data_set = predictions.read_data_set()
    cases = predictions.to_fit_to().cases
    most = voxels_per_case(data_set.meaning.num_channels, len(cases))
    draw = partial(_draw, data_set=data_set, most=most)
    samples, skipped = each_case(cases, draw, doing="reading", num_processes=num_processes)
    if not samples:
        raise ValueError(f"None of {len(cases)} cases can be used; the first: {skipped[0].case}: {skipped[0].reason}")
    sample = Sample.join(list(samples.values()))
    check_sample(sample, data_set.meaning)
    trials = try_methods(sample)
    folders = list(map(str, predictions.pred_folders))
    settings = {"gt_folder": str(predictions.gt_folder), "pred_folders": folders}
    model = Model.of_folder(predictions.pred_folders[0], predictions.plans, data_set)
    fit = Fit(trials.best(method), model, list(sample.names), trials.scores, settings, skipped)
    fit.write(file)
    return fit


def _draw(files: CaseFiles, *, data_set: DataSet, most: int) -> Sample:
    missing = files.missing()
    if missing is not None:
        raise FileNotFoundError(missing)
    meaning = data_set.meaning
    link = link_of(meaning)
    case = SavedCase(files, data_set)
    p = case.probabilities(np.float32)
    truth_labels, geometry = case.read_truth()
    labels = truth_labels.reshape(-1)
    near = near_prediction(p, link, geometry.spacing).reshape(-1)
    index, weights = draw_voxels(near, labels != meaning.ignored, most, files.name)
    logits = link.logits(p.reshape(len(p), -1)[:, index])
    truth = truth_of(labels[index], meaning)
    return Sample(link, logits, truth, weights, near[index], np.zeros(index.size, np.int32), (files.name,))


def apply_folder(
    fit_file: str | Path,
    pred_folder: str | Path,
    output: str | Path,
    *,
    num_processes: int = 1,
    overwrite: bool = False,
) -> tuple[list[str], list[Skipped]]:
    """Write a calibrated copy of a folder of predictions: probabilities, and segmentations where labels can change.

    Args:
        fit_file: what :func:`calibrate_folder` or :func:`calibrate_fold` wrote, of temperature or vector.
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write into; ``calibration_applied.json`` there says how it came to be.
        num_processes: how many cases are calibrated at a time.
        overwrite: write into a folder that is there; only files of the same names are replaced.

    Returns:
        The cases that were calibrated, and those that could not be.

    Raises:
        FileExistsError: ``output`` holds something.
        ValueError: the fit is of another model or was fitted to cases of ``pred_folder``, which it cannot test; it
            needs features; or ``pred_folder`` is calibrated.
    """
    fit = Fit.read(Path(fit_file))
    if isinstance(fit.method, Head):
        raise ValueError(
            f"{fit_file} is a last layer, which needs the network's features: predict with -chk "
            "checkpoint_calibrated.pth, or calibrate with --method vector."
        )
    if calibration_of(Path(pred_folder)) is not None:
        raise ValueError(f"{pred_folder} is calibrated already ({CALIBRATED_NAME}).")
    folder = check_output(output, overwrite=overwrite)
    predictions = PredictionFolder.read(pred_folder)
    if folder.resolve() == predictions.folder.resolve():
        raise ValueError(f"{folder} is the folder of the predictions: expected another one.")
    model = Model.of_folder(predictions.folder, predictions.plans, predictions.data_set)
    difference = fit.model.difference(model)
    if difference is not None:
        raise ValueError(f"{fit_file} cannot be applied to {pred_folder}: it was fitted to {difference}.")
    seen = sorted({case.name for case in predictions.cases} & set(fit.cases))
    if seen:
        raise ValueError(
            f"{fit_file} was fitted to {len(seen)} of the {len(predictions.cases)} cases in {pred_folder}, "
            f"{seen[0]} for one: they do not test it. Expected other cases."
        )
    folder.mkdir(exist_ok=True)
    fit.write(folder / CALIBRATED_NAME, applied_to=predictions.folder)  # first: a part is calibrated, too
    predictions.copy_descriptions(folder)
    work = partial(_apply, method=fit.method, data_set=predictions.data_set, folder=folder)
    done, skipped = each_case(predictions.cases, work, doing="calibrating", num_processes=num_processes)
    return list(done), skipped


def _apply(files: CaseFiles, *, method: Method, data_set: DataSet, folder: Path) -> None:
    probabilities = SavedCase(files, data_set).probabilities(np.float32)
    link = link_of(data_set.meaning)
    keeps = isinstance(method, Temperature)
    flat = probabilities.reshape(len(probabilities), -1)
    for start in range(0, flat.shape[1], 1 << 20):
        before = flat[:, start : start + (1 << 20)]
        after = link.probabilities(method.logits(link.logits(before)))
        flat[:, start : start + (1 << 20)] = link.keep_labels(before, after) if keeps else after
    labels = None if keeps and files.thresholds is None else data_set.meaning.segmentation(probabilities)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as temporary:
        write_prediction(files, Path(temporary), data_set.reader, labels=labels, probabilities=probabilities)
        for file in Path(temporary).iterdir():
            shutil.move(file, folder / file.name)


def calibration_of(folder: Path) -> str | None:
    """How a folder of predictions was calibrated: method and parameters, shortened; None if it was not.

    Raises:
        ValueError: the file that says so is damaged.
    """
    if not (folder / CALIBRATED_NAME).is_file():
        return None
    fit = Fit.read(folder / CALIBRATED_NAME)
    parameters = json.dumps(fit.parameters(), sort_keys=True)
    return f"{fit.method.method} {hashlib.sha256(parameters.encode()).hexdigest()[:12]}"
