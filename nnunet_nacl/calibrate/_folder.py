"""A calibration of predictions that nnU-Net has saved with their probabilities: fitted to some, applied to others."""

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nnunet_nacl.calibrate._fit import Fit, try_methods
from nnunet_nacl.calibrate._methods import Head, Method, Temperature, Vector
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
from nnunet_nacl.evaluation import SavedCase, read_case_labels
from nnunet_nacl.files import check_output
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    CaseFiles,
    DataSet,
    Model,
    NpzChannels,
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
    seed: int = 0,
    overwrite: bool = False,
    ignore_geometry: bool = False,
) -> Fit:
    """Fit temperature and vector scaling to a folder of predictions with ground truth, and write the better one.

    Args:
        predictions: made with ``--save_probabilities``.
        output: the JSON file.
        method: ``temperature`` or ``vector``; by default the one with the lowest NLL on held-out cases.
        num_processes: how many cases are read at a time.
        seed: of the draw of voxels and of the division into parts.
        overwrite: replace the file.
        ignore_geometry: take a case's files as they are, though their spacing, origin or direction differ.

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
    draw = partial(_draw, data_set=data_set, most=most, seed=seed, ignore_geometry=ignore_geometry)
    samples, skipped = each_case(cases, draw, doing="reading", num_processes=num_processes)
    if not samples:
        raise ValueError(f"None of {len(cases)} cases can be used; the first: {skipped[0].case}: {skipped[0].reason}")
    sample = Sample.join(list(samples.values()))
    check_sample(sample, data_set.meaning)
    wanted = (Temperature.method, Vector.method) if method is None else tuple({Temperature.method, method})
    trials = try_methods(sample, wanted, seed=seed)
    settings = {"gt_folder": str(predictions.gt_folder), "seed": seed,
                "pred_folders": list(map(str, predictions.pred_folders))}  # fmt: skip
    model = Model.of_folder(predictions.pred_folders[0], predictions.plans, data_set)
    fit = Fit(trials.best(method), model, list(sample.names), trials.scores, settings, skipped)
    fit.write(file)
    return fit


def _draw(files: CaseFiles, *, data_set: DataSet, most: int, seed: int, ignore_geometry: bool) -> Sample:
    missing = files.missing()
    if missing is not None:
        raise FileNotFoundError(missing)
    meaning = data_set.meaning
    link = link_of(meaning)
    case = SavedCase(files, data_set)
    p = case.probabilities(np.float32)
    read = read_case_labels(files, NpzChannels(files.probabilities), data_set, ignore_geometry=ignore_geometry)
    labels = read.ground_truth.reshape(-1)
    near = near_prediction(p, link, read.geometry.spacing).reshape(-1)
    index, weights = draw_voxels(near, labels != meaning.ignored, most, files.name, seed)
    logits = link.logits(p.reshape(len(p), -1)[:, index])
    truth = truth_of(labels[index], meaning)
    return Sample(link, logits, truth, weights, near[index], np.zeros(index.size, np.int32), (files.name,))


@dataclass(frozen=True)
class Applied:
    """What :func:`apply_folder` did.

    Attributes:
        output: the new folder.
        cases: that were calibrated.
        skipped: those that could not be, and why.
        fitted_to: those of the cases that the method was fitted to, which do not test it.
    """

    output: Path
    cases: list[str]
    skipped: list[Skipped]
    fitted_to: list[str]


def apply_folder(
    fit_file: str | Path,
    pred_folder: str | Path,
    output: str | Path,
    *,
    num_processes: int = 1,
    force: bool = False,
    overwrite: bool = False,
) -> Applied:
    """Write a calibrated copy of a folder of predictions: probabilities, and segmentations where labels can change.

    Args:
        fit_file: what :func:`calibrate_folder` or :func:`calibrate_fold` wrote, of temperature or vector.
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write into; ``posthoc_applied.json`` there says how it came to be.
        num_processes: how many cases are calibrated at a time.
        force: apply it to cases that it was fitted to, too.
        overwrite: write into a folder that is there; only files of the same names are replaced.

    Raises:
        FileExistsError: ``output`` holds something.
        ValueError: the fit is of another model or of the same cases, needs features, or ``pred_folder`` is calibrated.
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
    if seen and not force:
        raise ValueError(
            f"{fit_file} was fitted to {len(seen)} of the {len(predictions.cases)} cases in {pred_folder}, "
            f"{seen[0]} for one: they do not test it. --force applies it nevertheless."
        )
    folder.mkdir(exist_ok=True)
    fit.write(
        folder / CALIBRATED_NAME, applied_to=predictions.folder
    )  # first: a folder that is written in part is calibrated, too
    predictions.copy_descriptions(folder)
    work = partial(_apply, method=fit.method, data_set=predictions.data_set, folder=folder)
    done, skipped = each_case(predictions.cases, work, doing="calibrating", num_processes=num_processes)
    return Applied(folder, list(done), skipped, [name for name in seen if name in done])


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
